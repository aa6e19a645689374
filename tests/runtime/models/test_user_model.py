"""Models of users' own: found by the hash of their text, isolated in what they do."""

from __future__ import annotations

import hashlib
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from kit.op_calls import run_op
from nodeloom.graph_import.dsl.user_code import kept_name
from nodeloom.graph_import.errors import CompositionError, ModelFileProblem
from nodeloom.graph_import.handles import (
    FileIdentity,
    IoSpec,
    ModelKey,
    ModelRef,
    Role,
    UserClass,
)
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import InputsLost, NodeFailed, OutOfMemory
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.models import user_model
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.values import CondEntry, Conditioning, Latent

PATH = "/flows/own.py"
IMAGE = IoSpec(name="image", type="IMAGE")
TEXT = """
import torch
from nodeloom import *
from nodeloom import SamplerStep as Imported

class Own(Model):
    def setup_io(self):
        self.add_input("image", "IMAGE")
        self.add_output("image", "IMAGE")

    def load(self, device, check=None):
        {load}

    def execute(self, **inputs):
        image = inputs["image"]
        {execute}
        return {{"image": image}}
"""


def ref_of(
    folder: Path,
    text: str,
    inputs: tuple[IoSpec, ...] = (IMAGE,),
    outputs: tuple[IoSpec, ...] = (IMAGE,),
    name: str = "Own",
    settings: tuple[tuple[str, Any], ...] = (),
) -> ModelRef:
    """A handle of a model of `text`, of which `folder` has a copy."""
    data = textwrap.dedent(text).encode()
    digest = hashlib.sha256(data).hexdigest()
    kept = kept_name(PATH, digest)
    assert kept is not None
    (folder / kept).write_bytes(data)
    user_class = UserClass(
        name=name, sha256=digest, settings=settings, inputs=inputs, outputs=outputs
    )
    file = FileIdentity(path=PATH, size_bytes=len(data), mtime_ns=1)
    key = ModelKey(role=Role.USER, family="user", file=file, dtype="", user_class=user_class)
    return ModelRef(key=key)


def own(folder: Path, execute: str = "pass", load: str = "pass", text: str = TEXT) -> Model:
    """The model, loaded."""
    model = build(ref_of(folder, text.format(load=load, execute=execute)), folder)
    model.load("cpu")
    return model


def image() -> torch.Tensor:
    return torch.full((1, 2, 2, 3), 0.5)


def test_a_model_runs_as_the_op_of_its_node(tmp_path: Path) -> None:
    model = own(tmp_path, "image = image * self.factor", "self.factor = 0.5")
    result = run_op("user_model", {"image": image()}, model=model)
    (given,) = result.outputs
    assert isinstance(given, torch.Tensor)
    assert torch.equal(given, image() * 0.5)


def test_what_it_writes_into_its_inputs_is_its_own_copy(tmp_path: Path) -> None:
    shared = image()
    given = own(tmp_path, "image.zero_()").execute(image=shared)["image"]
    assert isinstance(given, torch.Tensor)
    assert given.sum() == 0
    assert torch.equal(shared, image())


def test_settings_reach_it_and_load_may_leave_check_out(tmp_path: Path) -> None:
    text = TEXT.replace("device, check=None", "device").format(
        load="self.factor = self.settings['factor']", execute="image = image * self.factor"
    )
    model = build(ref_of(tmp_path, text, settings=(("factor", 0.25),)), tmp_path)
    model.load("cpu")
    given = model.execute(image=image())["image"]
    assert isinstance(given, torch.Tensor)
    assert torch.equal(given, image() * 0.25)


@pytest.mark.parametrize(
    ("load", "execute", "kind", "words"),
    [
        ("1 / 0", "pass", NodeFailed, r"own\.py:12: ZeroDivisionError: division by zero"),
        ("pass", "image.nothing", NodeFailed, r"own\.py:16: AttributeError: .*nothing"),
        ("pass", "raise SystemExit(3)", NodeFailed, r"own\.py:16: SystemExit: 3"),
        ("pass", "raise KeyboardInterrupt", NodeFailed, r"own\.py:16: KeyboardInterrupt"),
        ("raise MemoryError('all')", "pass", OutOfMemory, r"own\.py:12: MemoryError: all"),
        ("pass", "return {}", NodeFailed, "execute gave no 'image'"),
        ("pass", "return image", NodeFailed, "execute returned Tensor"),
        ("pass", "return {'image': image, 'x': 1}", NodeFailed, "gave 'x', which setup_io"),
        ("pass", "image = image[0]", NodeFailed, r"must be pictures.*\[2, 2, 3\]"),
        ("pass", "image = image.long()", NodeFailed, "must be pictures.*int64"),
        ("pass", "image = image[:0]", NodeFailed, "must be pictures"),
        ("pass", "image = None", NodeFailed, "not NoneType None"),
    ],
)
def test_what_it_does_wrong_fails_the_node_and_names_the_line(
    tmp_path: Path, load: str, execute: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        own(tmp_path, execute, load).execute(image=image())


def test_the_users_frames_are_in_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(NodeFailed) as caught:
        own(tmp_path, "1 / 0").execute(image=image())
    files = [entry.path for entry in caught.traceback]
    assert str(files[-1]) == "/flows/own.py"


def test_a_text_that_raises_when_it_runs_says_its_line(tmp_path: Path) -> None:
    ref = ref_of(tmp_path, "x = 1\ny = 1 / 0\n")
    with pytest.raises(CompositionError, match=r"own\.py:2: ZeroDivisionError"):
        build(ref, tmp_path).load("cpu")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Other"}, "defines no model 'Other'"),
        ({"name": "Imported"}, "defines no model 'Imported'"),
        ({"name": "Model"}, "it imports it"),
        ({"inputs": ()}, "declares other inputs or outputs"),
        ({"outputs": (IoSpec(name="image", type="MASK"),)}, "declares other inputs or outputs"),
    ],
)
def test_a_class_that_is_not_as_declared_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    ref = ref_of(tmp_path, TEXT.format(load="pass", execute="pass"), **change)
    with pytest.raises(NodeFailed, match=words):
        build(ref, tmp_path).load("cpu")


def test_only_a_kept_text_with_the_right_hash_runs(tmp_path: Path) -> None:
    text = TEXT.format(load="pass", execute="pass")
    ref = ref_of(tmp_path, text)
    with pytest.raises(ModelFileProblem, match="runs no models of users' own"):
        build(ref).load("cpu")
    (kept,) = tmp_path.glob("*.py")
    kept.write_text(text + "# more")
    with pytest.raises(ModelFileProblem, match="not the one that the request was accepted with"):
        build(ref, tmp_path).load("cpu")
    kept.unlink()
    with pytest.raises(ModelFileProblem, match="can't be read"):
        build(ref, tmp_path).load("cpu")


@pytest.mark.parametrize("sha256", ["", "../x", "/etc/passwd", "A" * 64, "0" * 63])
def test_a_hash_that_is_none_names_no_file(sha256: str) -> None:
    assert kept_name(PATH, sha256) is None


def test_the_copy_of_another_file_does_not_run(tmp_path: Path) -> None:
    key = ref_of(tmp_path, TEXT.format(load="pass", execute="pass")).key
    other = msgspec.structs.replace(key.file, path="/flows/other.py")
    ref = ModelRef(key=msgspec.structs.replace(key, file=other))
    with pytest.raises(ModelFileProblem, match="can't be read"):
        build(ref, tmp_path).load("cpu")


def declared(
    folder: Path, inputs: tuple[IoSpec, ...], outputs: tuple[IoSpec, ...], body: str
) -> Model:
    """A model with these inputs and outputs, loaded."""
    lines = [f"self.add_input({i.name!r}, {i.type!r}, deferred={i.is_deferred})" for i in inputs]
    lines += [f"self.add_output({o.name!r}, {o.type!r})" for o in outputs]
    text = f"""
from nodeloom import *
class Own(Model):
    def setup_io(self):
        {"; ".join(lines)}
    def load(self, device, check=None): pass
    def execute(self, **inputs):
        {body}
"""
    model = build(ref_of(folder, text, inputs, outputs), folder)
    model.load("cpu")
    return model


LATENT = Latent(samples=torch.ones(1, 4, 2, 2), batch_index=(3,))
COND = Conditioning(entries=(CondEntry(cond=torch.ones(1, 77, 8), pooled=None),))
GOOD: list[tuple[str, object, str]] = [
    ("INT", 5, "v + 1"),
    ("FLOAT", 0.5, "2"),
    ("STRING", "a", "v * 2"),
    ("BOOLEAN", True, "not v"),
    ("MASK", torch.ones(1, 2, 2), "v * 0.5"),
    ("LATENT", LATENT, "v"),
    ("LATENT", LATENT, "v.samples.double()"),
    ("CONDITIONING", COND, "v"),
]


@pytest.mark.parametrize(("type_", "value", "result"), GOOD)
def test_values_of_every_type_go_in_and_out(
    tmp_path: Path, type_: str, value: object, result: str
) -> None:
    spec = (IoSpec(name="v", type=type_),)
    model = declared(tmp_path, spec, spec, f"v = inputs['v']; return {{'v': {result}}}")
    given = model.execute(v=value)["v"]
    if isinstance(value, torch.Tensor):
        assert isinstance(given, torch.Tensor)
        assert given.dtype is torch.float32
    elif type_ == "FLOAT":
        assert given == 2.0
        assert isinstance(given, float)
    else:
        assert type(given) is type(value)
    if isinstance(given, Latent):
        assert given.samples.dtype is torch.float32
        assert torch.equal(given.samples, LATENT.samples)


@pytest.mark.parametrize(
    ("type_", "result"),
    [
        ("INT", "True"),
        ("INT", "2.5"),
        ("INT", "2**70"),
        ("FLOAT", "'1'"),
        ("FLOAT", "True"),
        ("STRING", "b'x'"),
        ("BOOLEAN", "1"),
        ("MASK", "1"),
        ("LATENT", "{'samples': 1}"),
        ("CONDITIONING", "[]"),
    ],
)
def test_values_of_other_types_are_refused(tmp_path: Path, type_: str, result: str) -> None:
    spec = (IoSpec(name="v", type=type_),)
    model = declared(tmp_path, (), spec, f"return {{'v': {result}}}")
    with pytest.raises(NodeFailed, match="output 'v' must be"):
        model.execute()


def late(folder: Path, body: str) -> Model:
    spec = (IoSpec(name="late", type="INT", is_deferred=True),)
    return declared(folder, spec, (IoSpec(name="v", type="INT"),), body)


def test_a_deferred_input_is_fetched_where_it_is_called(tmp_path: Path) -> None:
    fetched = []

    def fetch() -> int:
        fetched.append(1)
        return 4

    model = late(tmp_path, "return {'v': inputs['late']() + inputs['late']()}")
    assert model.execute(late=fetch) == {"v": 8}
    assert fetched == [1]
    assert model.execute(late=3) == {"v": 6}
    unused = late(tmp_path, "return {'v': 0}")
    assert unused.execute(late=fetch) == {"v": 0}
    assert fetched == [1]


def test_a_lost_input_is_no_fault_of_the_model(tmp_path: Path) -> None:
    def lost() -> object:
        raise InputsLost("gone", keys=())

    wrapped = """
        try: inputs['late']()
        except Exception as problem: raise ValueError('mine') from problem"""
    for body in ("inputs['late']()", wrapped.strip()):
        with pytest.raises(InputsLost):
            late(tmp_path, body).execute(late=lost)


def test_several_calls_get_a_result_each(tmp_path: Path) -> None:
    model = own(tmp_path, "image = image + 1")
    calls: list[Mapping[str, object]] = [{"image": image()}, {"image": image() * 0}]
    first, second = (result["image"] for result in model.execute_batch(calls))
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert (first[0, 0, 0, 0], second[0, 0, 0, 0]) == (1.5, 1.0)
    text = TEXT + "    def execute_batch(self, calls): return []\n"
    broken = build(ref_of(tmp_path, text.format(load="pass", execute="pass")), tmp_path)
    broken.load("cpu")
    with pytest.raises(NodeFailed, match="a result per call"):
        broken.execute(image=image())


def test_what_load_leaves_counts_in_the_memory_budget(tmp_path: Path) -> None:
    held = "self.parts = {'a': [torch.zeros(1000)], 'm': torch.nn.Linear(10, 10)}"
    ref = ref_of(tmp_path, TEXT.format(load=held, execute="pass"))
    cache = ModelCache(4500, "cpu", lambda ref: build(ref, tmp_path))
    assert cache.get(ref, lambda: None).num_bytes == 4000 + 440
    other = ref_of(tmp_path, TEXT.format(load="self.x = torch.zeros(1100)", execute="pass"))
    cache.get(other, lambda: None)
    assert cache.resident() == (other.key,)
    large = ref_of(tmp_path, TEXT.format(load="self.x = torch.zeros(1200)", execute="pass"))
    with pytest.raises(OutOfMemory):
        cache.get(large, lambda: None)


def test_a_class_may_say_how_large_it_is(tmp_path: Path) -> None:
    text = TEXT + "    @property\n    def num_bytes(self): return {size}\n"
    says = text.replace("{size}", "12345").format(load="pass", execute="pass")
    model = build(ref_of(tmp_path, says), tmp_path)
    model.load("cpu")
    assert model.num_bytes == 12345
    raises = text.replace("{size}", "1 / 0").format(load="pass", execute="pass")
    with pytest.raises(NodeFailed, match=r"own\.py:19: ZeroDivisionError"):
        build(ref_of(tmp_path, raises), tmp_path).load("cpu")


def test_old_texts_do_not_pile_up(tmp_path: Path) -> None:
    for number in range(user_model.MAX_MODULES + 3):
        own(tmp_path, f"pass  # {number}")
    loaded = [name for name in sys.modules if name.startswith("nodeloom_user_code_own_")]
    assert len(loaded) <= user_model.MAX_MODULES
