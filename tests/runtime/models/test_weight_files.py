"""Files of weights that are torn, hostile or no such files are told from sound ones."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.models.weight_files import (
    DTYPE_BITS,
    MAX_HEADER_BYTES,
    check_unchanged,
    identify,
    read_header,
)
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    tensors = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.ones(3, np.float32)}
    save_file(tensors, path, metadata={"made by": "a test"})
    return path


def write(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def reason(path: Path) -> str:
    with pytest.raises(ModelFileProblem) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    return str(caught.value.details["reason"])


def test_a_sound_header_is_read(small: Path) -> None:
    header = read_header(small)
    assert header.file == identify(small)
    assert header.metadata == {"made by": "a test"}
    assert {name: (info.dtype, info.shape) for name, info in header.tensors.items()} == {
        "a": ("F16", (2, 3)),
        "b": ("F32", (3,)),
    }


def test_every_truncation_is_noticed(small: Path) -> None:
    whole = small.read_bytes()
    assert reason_of_cut(small, b"") == "the file is empty"
    for length in range(1, len(whole)):
        assert "truncated" in reason_of_cut(small, whole[:length]), length


def reason_of_cut(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return reason(path)


def test_bytes_after_the_last_tensor_are_refused(small: Path) -> None:
    assert "belong to no tensor" in reason_of_cut(small, small.read_bytes() + b"\0")


@pytest.mark.parametrize("suffix", [".ckpt", ".pt", ".pth", ".bin", ".PT"])
def test_a_file_that_would_be_unpickled_is_refused_by_its_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"x" * 100)
    assert "would have to be unpickled, which can run code" in reason(path)


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x80\x02}q\x00", b"\x80\x04\x95"])
def test_a_pickle_under_another_name_is_refused(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(start + b"x" * 100)
    assert "convert it to safetensors" in reason(path)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    assert reason(tmp_path / "absent.safetensors") == "there is no such file"
    assert reason(tmp_path) == "this is not a file"
    os.symlink(tmp_path / "loop", tmp_path / "loop")
    assert reason(tmp_path / "loop") == "there is no such file"


@pytest.mark.parametrize("length", [0, 1, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_a_header_length_that_makes_no_sense_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}" * 8)
    assert "not a safetensors file" in reason(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"\xff\xfe{}",
        b'{"a": {"dtype": "F16", "shape": [1e999], "data_offsets": [0, 2]}}',
        b'{"__metadata__": {"a": 1}}',
        b'{"a": {"dtype": "F16", "shape": [1], "data_offsets": [0, 2, 4]}}',
    ],
)
def test_a_header_of_nonsense_is_refused(tmp_path: Path, header: bytes) -> None:
    assert "not a safetensors file" in reason(write(tmp_path / "odd.safetensors", header))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
small_numbers = st.integers(-2, 12) | st.sampled_from([2**31, 2**62, 2**64])
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPE_BITS, "F4", ""]),
        "shape": st.lists(small_numbers, max_size=4),
        "data_offsets": st.lists(small_numbers, min_size=2, max_size=2),
    }
)
headers = st.dictionaries(st.text(max_size=4), entries | json_values, max_size=4)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=headers, data=st.binary(max_size=16))
def test_what_is_accepted_lies_wholly_in_the_file(
    tmp_path: Path, header: dict[str, Any], data: bytes
) -> None:
    path = write(tmp_path / "hostile.safetensors", json.dumps(header).encode(), data)
    try:
        accepted = read_header(path)
    except ModelFileProblem:
        return
    spans = sorted(info.data_offsets for info in accepted.tensors.values())
    assert [begin for begin, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == len(data)
    for info in accepted.tensors.values():
        begin, end = info.data_offsets
        assert end - begin == math.prod(info.shape) * DTYPE_BITS[info.dtype] // 8


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 200), byte=st.integers(0, 255))
def test_what_is_accepted_can_be_loaded(small: Path, place: int, byte: int) -> None:
    content = bytearray(small.read_bytes())
    content[place % len(content)] = byte
    path = small.with_name("changed.safetensors")
    path.write_bytes(content)
    try:
        names = set(read_header(path).tensors)
    except ModelFileProblem:
        return
    try:
        with safe_open(path, "np") as stream:
            assert set(stream.keys()) == names
    except SafetensorError as error:
        raise AssertionError(f"accepted, but: {error}") from error


def test_a_file_that_changed_is_another_file(small: Path) -> None:
    before = identify(small)
    check_unchanged(before)
    os.utime(small, ns=(0, before.mtime_ns + 1))
    with pytest.raises(ModelFileProblem, match="was changed"):
        check_unchanged(before)
    small.unlink()
    with pytest.raises(ModelFileProblem, match="no such file"):
        check_unchanged(before)


def test_a_link_is_the_file_that_it_leads_to(small: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.safetensors"
    os.symlink(small, link)
    assert identify(link) == identify(small)
