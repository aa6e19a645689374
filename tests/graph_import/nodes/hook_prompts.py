"""Prompts with hooks, and what became of them in a Graph."""

from __future__ import annotations

from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Patch
from nodeloom.graph_import.ir import Graph, Node

from ..prompts import Prompt, node, text_to_image


def hook(name: str, strength: object = 0.5, **more: object) -> Prompt:
    return node("CreateHookLoraModelOnly", lora_name=name, strength_model=strength, **more)


def properties(text: str, hooks: list[object]) -> Prompt:
    return node(
        "ConditioningSetProperties",
        cond_NEW=[text, 0],
        strength=1.0,
        set_cond_area="default",
        hooks=hooks,
    )


def hooked(*keyframes: tuple[float, float], steps: object = 4) -> Prompt:
    """Text to image, LoRA a on the positive text; keyframes are (start, strength)."""
    prompt = text_to_image(steps=steps, positive=["30", 0])
    prompt["20"] = hook("a")
    prompt["30"] = properties("6", ["20", 0])
    for index, (start, strength) in enumerate(keyframes):
        frame = node("CreateHookKeyframe", strength_mult=strength, start_percent=start)
        if index:
            frame["inputs"]["prev_hook_kf"] = [f"4{index - 1}", 0]
        prompt[f"4{index}"] = frame
    if keyframes:
        last = f"4{len(keyframes) - 1}"
        prompt["21"] = node("SetHookKeyframes", hooks=["20", 0], hook_kf=[last, 0])
        prompt["30"]["inputs"]["hooks"] = ["21", 0]
    return prompt


def evaluations(graph: Graph, op: str = "denoise_hooked") -> list[Node]:
    return [n for n in graph.nodes if n.op == op]


def patches(node: Node) -> tuple[Patch, ...]:
    assert node.model is not None
    return node.model.patches


def problems(rejected: ImportRejected) -> list[tuple[str, str, object]]:
    return [(p.node_id, p.details, p.extra_info.get("input_name")) for p in rejected.problems]
