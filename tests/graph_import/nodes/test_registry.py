from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES
from nodeloom.graph_import.sampling.schedules import SCHEDULE_NAMES

from ..known_files import CHECKPOINT, PICTURE, KnownFiles, NoFiles
from ..probes import recorded_registry

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "object_info.json").read_text())[
    "classes"
]


def as_recorded(info: Any) -> dict[str, Any]:
    """Ours as the recording has it: without the empty tooltips; key order is kept as text."""
    return {key: value for key, value in info.items() if key != "output_tooltips"}


@pytest.mark.parametrize("class_type", sorted(RECORDED))
def test_a_class_is_described_as_recorded(class_type: str) -> None:
    described = Registry().object_info(NoFiles(), class_type)
    expected = RECORDED[class_type]
    if class_type == "KSamplerSelect":
        options = expected["input"]["required"]["sampler_name"][1]
        assert set(SAMPLER_NAMES) <= set(options["options"])
        options["options"] = list(SAMPLER_NAMES)
    elif class_type.startswith("KSampler"):
        inputs = expected["input"]["required"]
        assert set(SAMPLER_NAMES) <= set(inputs["sampler_name"][0])
        assert set(SCHEDULE_NAMES) <= set(inputs["scheduler"][0])
        inputs["sampler_name"][0] = list(SAMPLER_NAMES)
        inputs["scheduler"][0] = list(SCHEDULE_NAMES)
    assert list(described) == [class_type]
    assert json.dumps(as_recorded(described[class_type])) == json.dumps(expected)


def test_all_classes_are_described_at_once(registry: Registry) -> None:
    assert registry.object_info(NoFiles()).keys() == RECORDED.keys()


def test_classes_of_python_workflows_are_there_but_not_described(registry: Registry) -> None:
    assert "nodeloom.SamplerStep" in registry
    assert registry.object_info(NoFiles(), "nodeloom.SamplerStep") == {}


def test_an_unknown_class_is_described_by_nothing(registry: Registry) -> None:
    assert registry.object_info(NoFiles(), "NoSuchNode") == {}


def test_lists_of_files_are_those_of_now(registry: Registry) -> None:
    files = KnownFiles()

    def offered(class_type: str, name: str) -> Any:
        info: Any = registry.object_info(files, class_type)
        return info[class_type]["input"]["required"][name][0]

    assert offered("CheckpointLoaderSimple", "ckpt_name") == [CHECKPOINT]
    assert offered("LoadImage", "image") == [PICTURE]
    files.pictures["dog.png"] = files.pictures[PICTURE]
    assert offered("LoadImage", "image") == [PICTURE, "dog.png"]


def test_a_v3_class_lists_its_tooltips_and_flags(registry: Registry) -> None:
    info: Any = registry.object_info(NoFiles(), "GetImageSize")
    assert list(info["GetImageSize"])[5:7] == ["output_tooltips", "output_matchtypes"]
    assert info["GetImageSize"]["output_tooltips"] == [None, None, None]


def test_optional_inputs_and_new_combos_have_their_own_form() -> None:
    info: Any = recorded_registry().object_info(NoFiles(), "ProbeTypes")
    inputs = info["ProbeTypes"]["input"]
    assert inputs["required"]["big"] == [[f"opt{index:02}" for index in range(25)]]
    assert inputs["required"]["c2"] == ["COMBO", {"options": ["a", "b", 3]}]
    assert inputs["optional"] == {"oi": ["INT", {"min": 0, "max": 5}], "oc": [["p", "q"]]}
