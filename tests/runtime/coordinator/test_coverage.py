"""What LoRAs changed, from executors' reports to the record of a request."""

from __future__ import annotations

from kit.graphs import graph, model, node, patched
from nodeloom.graph_import.handles import ModelRef, Role
from nodeloom.runtime.coordinator.coverage import MAX_KEPT, CoverageBook
from nodeloom.runtime.protocol import PatchCoverage

DENOISER = patched(model("base"), "a.safetensors")
ENCODER = patched(model("base", Role.TEXT_ENCODER), "a.safetensors")


def report(ref: ModelRef, index: int = 0, *, num_applied: int = 3) -> PatchCoverage:
    return PatchCoverage(
        key=ref.key,
        file=ref.patches[index].file,
        num_applied=num_applied,
        num_ignored=2,
        num_misshapen=1,
        ignored=("x", "y"),
        misshapen=("z",),
    )


def test_a_request_is_told_of_its_patches_alone_and_of_each_model() -> None:
    book = CoverageBook()
    other = patched(model("base"), "other.safetensors")
    book.note([report(DENOISER), report(ENCODER, num_applied=4), report(other)])
    nodes = [
        node("1", "text_encode", ref=ENCODER),
        node("2", "denoise", ref=DENOISER),
        node("3", "denoise", ref=DENOISER),
        node("4", "vae_decode", ref=model("base", Role.VAE)),
        node("5"),
    ]
    common = {"file": "a.safetensors", "ignored": 2, "misshapen": 1}
    common |= {"ignored_keys": ["x", "y"], "misshapen_keys": ["z"]}
    assert book.of(graph(*nodes)) == [
        common | {"model": "sd15/text_encoder:base", "applied": 4},
        common | {"model": "sd15/denoiser:base", "applied": 3},
    ]


def test_what_no_executor_has_reported_is_left_out() -> None:
    assert CoverageBook().of(graph(node("1", "denoise", ref=DENOISER))) == []


def test_the_last_report_counts_and_old_ones_go() -> None:
    book = CoverageBook()
    book.note([report(DENOISER, num_applied=1)])
    book.note([report(DENOISER, num_applied=2)])
    (told,) = book.of(graph(node("1", "denoise", ref=DENOISER)))
    assert told["applied"] == 2
    for index in range(MAX_KEPT):
        book.note([report(patched(model("base"), f"{index}"))])
    assert book.of(graph(node("1", "denoise", ref=DENOISER))) == []
