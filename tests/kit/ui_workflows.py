"""Small workflows in UI format, and a table of made-up node classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodeloom.graph_import.workflow_file import Converted, NodeTable, convert

Json = dict[str, Any]


def described(required: Json, outputs: tuple[str, ...] = ("IMAGE",), **more: Any) -> Json:
    return {"input": {"required": required}, "output": list(outputs), **more}


TABLE = NodeTable(
    {
        "Source": described({"text": ["STRING", {"default": "", "dynamicPrompts": True}]}),
        "Filter": described({"image": ["IMAGE"], "amount": ["FLOAT", {"default": 0.5}]}),
        "Save": described(
            {"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "x"}]}, ()
        ),
        "SaveImage": described(
            {"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "x"}]}, ()
        ),
        "Sampler": described(
            {
                "seed": ["INT", {"default": 0, "control_after_generate": True}],
                "steps": ["INT", {"default": 20}],
                "sampler": [["euler", "heun"], {}],
            }
        ),
        "Resize": described(
            {
                "image": ["IMAGE"],
                "how": [
                    "COMFY_DYNAMICCOMBO_V3",
                    {
                        "options": [
                            {
                                "key": "by",
                                "inputs": {"required": {"factor": ["FLOAT", {"default": 1.0}]}},
                            },
                            {
                                "key": "to",
                                "inputs": {
                                    "required": {"width": ["INT", {}], "height": ["INT", {}]}
                                },
                            },
                        ]
                    },
                ],
                "sharp": ["BOOLEAN", {}],
            }
        ),
        "Join": described({"images": ["COMFY_AUTOGROW_V3", {"template": {}}]}),
        "Forced": described({"a": ["INT", {"forceInput": True}], "b": ["INT", {"default": 1}]}),
        "Upload": described({"image": [["a.png"], {"image_upload": True}]}),
    }
)


def node(id_: int | str, type_: str, inputs: tuple[Any, ...] = (), **more: Any) -> Json:
    """Inputs are (name, link) or (name, link, widget)."""
    slots = [
        {
            "name": name,
            "type": more.get("type", "IMAGE"),
            "link": link,
            **({"widget": {"name": widget[0]}} if widget else {}),
        }
        for name, link, *widget in inputs
    ]
    outputs = [{"name": "out", "type": more.pop("type", "IMAGE")}]
    return {"id": id_, "type": type_, "inputs": slots, "outputs": outputs, **more}


def made(nodes: list[Json], links: Sequence[Any] = (), **more: Any) -> Converted:
    return convert({"nodes": nodes, "links": list(links), **more}, TABLE)


def inputs(nodes: list[Json], links: list[Any], key: str, **more: Any) -> Json:
    found: Json = made(nodes, links, **more).prompt[key]["inputs"]
    return found


def subgraph(**more: Any) -> Json:
    """Sampler 5 and Filter 6, one after the other; inputs `steps` and `amount` of the second."""
    return {
        "id": "sub",
        "name": "Inner",
        "inputs": [{"name": "steps", "linkIds": [1]}, {"name": "amount", "linkIds": [2]}],
        "outputs": [{"name": "image", "linkIds": [4]}],
        "nodes": [
            node(5, "Sampler", (("steps", 1, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
            node(6, "Filter", (("image", 3), ("amount", 2, "amount")), widgets_values=[0.1]),
        ],
        "links": [
            link(1, -10, 0, 5, 0),
            link(2, -10, 1, 6, 1),
            link(3, 5, 0, 6, 0),
            link(4, 6, 0, -20, 0),
        ],
        **more,
    }


def link(id_: int, origin: int, slot: int, target: int, target_slot: int) -> Json:
    keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
    return dict(zip(keys, (id_, origin, slot, target, target_slot), strict=True))


DEFINITIONS = {"subgraphs": [subgraph()]}
OUT = [[90, 1, 0, 2, 0, "IMAGE"]]


def host(**more: Any) -> list[Json]:
    return [node(1, "sub", **more), node(2, "Save", (("images", 90),))]
