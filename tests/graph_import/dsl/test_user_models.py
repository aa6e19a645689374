"""Models of users' own: what a prompt says of them, and the node that an executor gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nodeloom.graph_import.comfy.api_format import parse_prompt
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.dsl import (
    CompositionError,
    Fault,
    Image,
    InvocationRejected,
    Model,
    Placeholder,
    bind,
    workflow,
)
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import FileIdentity, ModelRef, Role
from nodeloom.graph_import.ir import EdgeKind, Node
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import PICTURE, KnownFiles, every_file
from .flows import FILE, bound, files, flow, refused

MIXER = """
class Mixer(Model):
    def setup_io(self):
        self.add_input("image", "IMAGE")
        self.add_input("late", "IMAGE", deferred=True)
        self.add_input("amount", float)
        {more}
        self.add_output("mixed", "IMAGE")
        self.add_output("mean", float)

    def load(self, device, check=None):
        self.mean = self.settings["mean"]

    def execute(self, **inputs):
        return {{"mixed": inputs["image"], "mean": self.mean}}

@workflow
def mix(image: Image, amount: float = 0.5):
    mixed, mean = Mixer(mean={mean}, name="m")(image, Node("ImageInvert")(image), amount=amount)
    mixed, _ = Mixer(mean=1, name="n")(mixed, mixed, mean)
    return mixed
"""
TEXT = MIXER.format(more="pass", mean="0.25")


def mixers(text: str = TEXT, **values: object) -> list[Node]:
    graph = bound(flow(text), image=PICTURE, **values).graph
    return [node for node in graph.nodes if node.op == "user_model"]


def test_a_call_is_a_node_on_the_users_class() -> None:
    first, second = mixers()
    assert [port.type for port in first.outputs] == ["IMAGE", "FLOAT"]
    assert first.model is not None
    key = first.model.key
    assert (key.role, key.file.path, key.label()) == (
        Role.USER,
        "/files/flow.py",
        "user/Mixer:flow.py",
    )
    assert key.user_class is not None
    assert key.user_class.name == "Mixer"
    assert key.user_class.settings == (("mean", 0.25), ("name", "m"))
    assert len(key.user_class.sha256) == 64
    assert dict(first.params) == {"amount": 0.5}
    assert dict(second.inputs)["amount"].source == first.id
    assert dict(second.inputs)["amount"].port == 1


def test_a_deferred_input_is_a_deferred_edge() -> None:
    first, _ = mixers()
    kinds = {name: edge.kind for name, edge in first.inputs}
    assert kinds == {"image": EdgeKind.EAGER, "late": EdgeKind.DEFERRED}


def test_an_executor_makes_the_model_of_its_ref() -> None:
    first, _ = mixers()
    assert first.model is not None
    made = flow(TEXT)._function.__globals__["Mixer"](first.model)  # type: ignore[attr-defined]  # a @workflow
    assert isinstance(made, Model)
    assert made.settings == {"mean": 0.25, "name": "m"}
    assert [item.name for item in made.inputs] == ["image", "late", "amount"]
    assert made.ref == first.model
    made.load("cpu")
    assert made.execute(image="x") == {"mixed": "x", "mean": 0.25}


def key_of(text: str) -> ModelRef:
    ref = mixers(text)[0].model
    assert ref is not None
    return ref


def test_another_text_or_setting_is_another_model() -> None:
    same = key_of(TEXT)
    assert key_of(TEXT) == same
    assert key_of(TEXT + "\n# a remark\n") != same
    assert key_of(MIXER.format(more="pass", mean="0.5")) != same


def test_a_stored_prompt_needs_the_users_file_only_by_name() -> None:
    invocation = bound(flow(TEXT), image=PICTURE)
    stored = json.loads(json.dumps(invocation.prompt.to_json()))
    assert import_prompt(parse_prompt(stored), invocation.roots, Registry(), files()) == (
        invocation.graph
    )
    again = validate(stored, Registry(), files())
    assert again.problems == ()


def test_a_server_without_the_file_refuses() -> None:
    with pytest.raises(InvocationRejected, match=r"no file 'flow.py' in user_models"):
        bind(flow(TEXT), {"image": PICTURE}, Registry(), every_file())


class NoUserCode(KnownFiles):
    """A catalog that has no such kind."""

    def file(self, kind: str, name: str) -> FileIdentity:
        raise KeyError(kind)


def test_a_server_that_runs_no_users_code_refuses() -> None:
    with pytest.raises(InvocationRejected, match="runs no models of users' own"):
        bind(flow(TEXT), {"image": PICTURE}, Registry(), NoUserCode())


def broken(change: dict[str, Any]) -> dict[str, Any]:
    """The stored prompt with the first declaration changed."""
    prompt = bound(flow(TEXT), image=PICTURE).prompt.to_json()
    written = json.loads(prompt["Mixer-1"]["inputs"]["declaration"]) | change
    prompt["Mixer-1"]["inputs"]["declaration"] = json.dumps(written)
    return prompt


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Other"},
        {"file": "other.py"},
        {"sha256": "0" * 64},
        {"settings": [["mean", 2**70]]},
        {"settings": [["mean", [1]]]},
        {"inputs": []},
        {"outputs": [{"name": "model", "type": "MODEL"}]},
        {"more": 1},
    ],
)
def test_a_declaration_that_is_not_what_the_class_says_is_no_class(change: dict[str, Any]) -> None:
    with pytest.raises(ImportRejected, match="does not exist"):
        validate(broken(change), Registry(), files())


@pytest.mark.parametrize("declaration", [None, 3, "", "[]", "{" * 500, {"a": 1}])
def test_garbage_for_a_declaration_is_no_class(declaration: object) -> None:
    prompt = bound(flow(TEXT), image=PICTURE).prompt.to_json()
    for name in ("Mixer-1", "Mixer-2"):
        prompt[name]["inputs"]["declaration"] = declaration
    with pytest.raises(ImportRejected, match="does not exist"):
        validate(prompt, Registry(), files())


def test_a_wrong_link_into_a_users_model_is_a_problem_of_its_node() -> None:
    prompt = bound(flow(TEXT), image=PICTURE).prompt.to_json()
    prompt["Mixer-1"]["inputs"]["amount"] = ["input-image", 0]
    with pytest.raises(ImportRejected) as caught:
        validate(prompt, Registry(), files())
    assert [(p.node_id, p.type) for p in caught.value.problems] == [
        ("Mixer-1", "return_type_mismatch")
    ]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ('self.add_input("model", "MODEL")', "of type MODEL"),
        ('self.add_input("image", int)', "two inputs are called 'image'"),
        ('self.add_input("a b", int)', "no input can be called 'a b'"),
        ('self.add_input("declaration", int)', "no input can be called 'declaration'"),
        ('self.outputs.clear(); self.add_output("state", "SAMPLER_STATE")', "SAMPLER_STATE"),
        ("[self.add_output(f'o{i}', int) for i in range(64)]", "more than 64"),
        ("self.patches.append('lora')", "takes no LoRA"),
    ],
)
def test_a_class_that_cant_be_a_node_is_refused_where_it_is_called(more: str, reason: str) -> None:
    error = refused(MIXER.format(more=more, mean=1), Fault.BAD_MODEL, 19)
    assert reason in error.message


def test_a_type_that_is_none_is_refused_in_setup_io() -> None:
    text = MIXER.format(more="self.add_input('list', list)", mean=1)
    refused(text, Fault.WRONG_TYPE, 7)


@pytest.mark.parametrize("mean", ["float('nan')", "10**30", r"'\ud800'"])
def test_a_setting_must_be_one_that_can_be_stored(mean: str) -> None:
    refused(MIXER.format(more="pass", mean=mean), Fault.WRONG_VALUE, 19)


def test_settings_are_plain_values() -> None:
    refused(MIXER.format(more="pass", mean="image"), Fault.WRONG_TYPE, 19, received="Placeholder")


class Here(Model):
    """A model in a file that was not loaded as a workflow."""

    def setup_io(self) -> None:
        self.add_input("image", "IMAGE")
        self.add_output("image", "IMAGE")

    def load(self, device: str, check: object = None) -> None:
        """Nothing to load."""

    def execute(self, **inputs: object) -> dict[str, object]:
        return inputs


def test_a_model_that_executors_cant_find_is_refused() -> None:
    @workflow
    def local(image: Image) -> Placeholder:
        picture: Placeholder = Here()(image)
        return picture

    with pytest.raises(CompositionError, match="where executors can't find it") as caught:
        local.trace({})
    assert caught.value.fault is Fault.BAD_MODEL


def test_a_class_inside_a_function_is_refused() -> None:
    text = """
    def make():
        class Inner(Model):
            def setup_io(self): self.add_output("image", "IMAGE")
            def load(self, device, check=None): pass
            def execute(self, **inputs): return {}
        return Inner()

    @workflow
    def hidden():
        return make()()
    """
    error = refused(text, Fault.BAD_MODEL, 11)
    assert "must stand at the top" in error.message


def test_outside_executors_a_model_has_no_ref() -> None:
    with pytest.raises(AttributeError, match="no ref outside executors"):
        _ = Here().ref


def test_the_file_name_is_what_executors_look_for() -> None:
    declared = bound(flow(TEXT), image=PICTURE).prompt.to_json()["Mixer-1"]["inputs"]
    assert json.loads(declared["declaration"])["file"] == FILE
