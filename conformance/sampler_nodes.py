"""samplers.json: nodes that make samplers, guiders, patched models and noise, sampled with.

The nodes are lowered and their DAG nodes run with the ops' bodies, on the toy denoiser. Its latent
format has a scale of 1, ours the scale of SD1.5: latents are divided and multiplied by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from kit.toy_denoiser import ToyDenoiser, steer
from nodeloom.graph_import.builder import GraphBuilder
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import MODEL_SAMPLING
from nodeloom.graph_import.ir import Edge, NodeId, Origin
from nodeloom.graph_import.nodes.lowering import Constant, Handle, KnownValues, Lowering, Value
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.nodes.schema import ports
from nodeloom.graph_import.nodes.values import SigmasValue
from nodeloom.graph_import.sampling.model_sampling import sampling_text
from nodeloom.graph_import.sampling.model_sampling_flow import FlowModelSampling
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews
from nodeloom.runtime.values import Latent
from safetensors.torch import load_file

from .case import Case, Outcome, close, worst

TOLERANCE: Final = 1e-4
SCALE: Final = family("sd15").scale_factor
FLOW: Final = sampling_text(FlowModelSampling(shift=3.0, multiplier=1.0))
KINDS: Final = ("node", "patch", "guider", "addnoise")
# `first3steps` doesn't say so, but its run, followed backwards, starts at noise on this latent.
ON_A_LATENT: Final = ("disable_noise_from3", "first3steps")
DUAL: Final = {"cond1": 0.4, "cond2": 0.1, "negative": -0.25}
CLASSES: Final = {
    "EpsilonScaling": "Epsilon Scaling",
    "LatentApplyOperationCFG_Tonemap": "LatentOperationTonemapReinhard",
    "LatentApplyOperationCFG_Sharpen": "LatentOperationSharpen",
}


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each run that a node other than KSampler has a part in."""
    runs = json.loads((goldens / "samplers.json").read_text("utf-8"))["runs"]
    tensors = load_file(goldens / "samplers.safetensors")
    for key, run in runs.items():
        kind = key.split("/")[0].partition("_")[2]
        if kind in KINDS and "error" not in run and f"{key}/final" in tensors:
            yield Case(f"samplers/{key}", partial(_RUNS[kind], key, run, tensors))


class Graph:
    """Nodes that are lowered one after another, and then run."""

    def __init__(self, key: str) -> None:
        self.model = ToyDenoiser()
        ref = self.model.ref
        if key.startswith("flow"):
            ref = ref.with_option(MODEL_SAMPLING, FLOW)
        self.handle: Value = Handle(ref=ref)
        self._builder = GraphBuilder()
        self._values: dict[tuple[str, int], object] = {}
        self._registry = Registry()
        self._count = 0

    def given(self, value: object, type_: str) -> Edge:
        """An edge that brings `value`."""
        self._count += 1
        name = NodeId(f"given-{self._count}")
        origin = Origin(node_id=name, class_type="given")
        (edge,) = self._builder.add(
            name, "given", params={}, inputs={}, outputs=ports(value=type_), origin=origin
        )
        self._values[edge.source, 0] = value
        return edge

    def side(self, value: float) -> Edge:
        """A conditioning of the toy denoiser."""
        return self.given(steer(value), "CONDITIONING")

    def node(self, class_type: str, **inputs: Any) -> tuple[Value, ...]:
        """The outputs of a node of a class; plain inputs are constants."""
        cls = self._registry[class_type]
        self._count += 1
        values = {
            name: Constant(value=value) if isinstance(value, int | float | str | bool) else value
            for name, value in inputs.items()
        }
        lowering = Lowering(
            node_id=f"node-{self._count}",
            schema=cls.schema,
            inputs=values,
            known=KnownValues(),
            catalog=_NO_FILES,
            builder=self._builder,
        )
        return cls.lower(lowering)

    def latents(self, value: Value) -> torch.Tensor:
        """Run the graph; the samples of the LATENT that an output brings."""
        for node in self._builder.build().nodes:
            if node.op == "given":
                continue
            args: dict[str, object] = dict(node.params)
            args |= {name: self._values[edge.source, edge.port] for name, edge in node.inputs}
            if node.model is not None:
                self.model.ref = node.model
            call = OpCall(request_id=RequestId("r"), node_id=node.id, args=args, hidden={})
            (result,) = body(node.op)(_context(self.model), [call])
            for port, output in enumerate(result.outputs):
                self._values[node.id, port] = output
        if not isinstance(value, Edge):
            raise TypeError(f"{type(value).__name__} is no edge")
        latent = self._values[value.source, value.port]
        if not isinstance(latent, Latent):
            raise TypeError(f"{type(latent).__name__} is no latent")
        return latent.samples


def _never() -> None:
    """Nobody cancels."""


class _NoFiles:
    """No files are asked for."""


_NO_FILES: Any = _NoFiles()


def _context(model: ToyDenoiser) -> OpContext:
    return OpContext(
        model=model,
        folders=Folders(*[Path("/nonexistent")] * 4),
        check_cancelled=_never,
        is_strict=True,
        previews=Previews(64, (), "cpu"),
        is_metadata_disabled=False,
    )


Tensors = Mapping[str, torch.Tensor]


def _zeros(recorded: torch.Tensor) -> Latent:
    return Latent(samples=torch.zeros(len(recorded), 4, 8, 8))


def _sampled(
    graph: Graph, key: str, tensors: Tensors, outputs: tuple[Value, ...], scale: float = SCALE
) -> Outcome:
    output, denoised = outputs
    found = [close(graph.latents(output) * scale, tensors[f"{key}/final"], TOLERANCE)]
    if f"{key}/denoised_output" in tensors:
        wanted = tensors[f"{key}/denoised_output"]
        found.append(close(graph.latents(denoised) * scale, wanted, TOLERANCE))
    return worst(found)


def _sigmas(key: str, tensors: Tensors) -> SigmasValue:
    return SigmasValue(sigmas=tuple(tensors[f"in/{key.split('_')[0]}_sigmas6"].tolist()))


def _of_node(key: str, run: Any, tensors: Tensors) -> Outcome:
    graph, class_type = Graph(key), key.split("/")[1]
    inputs = dict(run["inputs"])
    if class_type == "SamplerSASolver":
        inputs["model"] = graph.handle
    (named,) = graph.node(class_type, **inputs)
    return _sampled(
        graph, key, tensors, _custom(graph, key, run, tensors, graph.handle, named, 4.0)
    )


def _custom(
    graph: Graph, key: str, run: Any, tensors: Tensors, model: Value, named: Value, cfg: float
) -> tuple[Value, ...]:
    return graph.node(
        "SamplerCustom",
        model=model,
        add_noise=True,
        noise_seed=42,
        cfg=cfg,
        positive=graph.side(0.4),
        negative=graph.side(-0.25),
        sampler=named,
        sigmas=_sigmas(key, tensors),
        latent_image=graph.given(_zeros(tensors[f"{key}/final"]), "LATENT"),
    )


def _of_patch(key: str, run: Any, tensors: Tensors) -> Outcome:
    graph, name = Graph(key), key.split("/")[1]
    class_type = CLASSES.get(name, CLASSES.get(name.split("_")[0], name.split("_")[0]))
    inputs, model = dict(run["inputs"]), graph.handle
    if class_type.startswith("LatentOperation"):
        (operation,) = graph.node(class_type, **inputs)
        (model,) = graph.node("LatentApplyOperationCFG", model=model, operation=operation)
    elif name == "PerpNeg":
        empty = graph.side(inputs["empty"])
        scale = inputs["neg_scale"]
        (model,) = graph.node(name, model=model, empty_conditioning=empty, neg_scale=scale)
    elif name != "none":
        (model,) = graph.node(class_type, model=model, **inputs)
    (named,) = graph.node("KSamplerSelect", sampler_name="euler")
    return _sampled(graph, key, tensors, _custom(graph, key, run, tensors, model, named, 5.0))


def _of_guider(key: str, run: Any, tensors: Tensors) -> Outcome:
    graph, name = Graph(key), key.split("/")[1]
    sampler_name = key.split("/")[2] if key.count("/") == 2 else "euler"
    (named,) = graph.node("KSamplerSelect", sampler_name=sampler_name)
    sigmas, latent = SigmasValue(sigmas=tuple(run["sigmas"])), _zeros(tensors[f"{key}/final"])
    (noise,) = graph.node("RandomNoise", noise_seed=42)
    if name == "disable_noise_from3":
        (noise,) = graph.node("DisableNoise")
    if name in ON_A_LATENT:
        latent = Latent(samples=tensors["in/i2i_latent"] / SCALE)
    (guider,) = _guider(graph, name)
    outputs = graph.node(
        "SamplerCustomAdvanced",
        noise=noise,
        guider=guider,
        sampler=named,
        sigmas=sigmas,
        latent_image=graph.given(latent, "LATENT"),
    )
    return _sampled(graph, key, tensors, outputs)


def _guider(graph: Graph, name: str) -> tuple[Value, ...]:
    class_type = name.split("_")[0]
    sides = {"positive": graph.side(0.4), "negative": graph.side(-0.25)}
    if class_type == "BasicGuider":
        return graph.node(class_type, model=graph.handle, conditioning=sides["positive"])
    if class_type == "PerpNegGuider":
        more = {"cfg": 5.0, "neg_scale": 0.0 if "negscale0" in name else 0.7}
        empty = graph.side(0.05)
        return graph.node(class_type, model=graph.handle, empty_conditioning=empty, **sides, **more)
    if class_type == "DualCFGGuider":
        is_one = name.endswith("_1_1")
        return graph.node(
            class_type,
            model=graph.handle,
            **{side: graph.side(value) for side, value in DUAL.items()},
            cfg_conds=1.0 if is_one else 5.0,
            cfg_cond2_negative=1.0 if is_one else 3.0,
            style="nested" if "nested" in name else "regular",
        )
    cfg = 0.0 if name.endswith("cfg0") else 5.0
    return graph.node("CFGGuider", model=graph.handle, cfg=cfg, **sides)


def _of_add_noise(key: str, run: Any, tensors: Tensors) -> Outcome:
    """The recorded ones have SD1.5's scale, the flow ones another: theirs is taken out."""
    graph, sigmas = Graph(key), _sigmas(key, tensors).sigmas
    part = {"all": sigmas, "one": sigmas[2:3], "part": sigmas[1:4]}[key.split("/")[1]]
    theirs = SCALE if key.startswith("eps") else 0.3611
    (noise,) = graph.node("RandomNoise", noise_seed=5)
    samples = tensors["in/i2i_latent"] * (theirs / SCALE)
    (output,) = graph.node(
        "AddNoise",
        model=graph.handle,
        noise=noise,
        sigmas=SigmasValue(sigmas=part),
        latent_image=graph.given(Latent(samples=samples), "LATENT"),
    )
    ours = graph.latents(output) * (SCALE / theirs)
    return close(ours, tensors[f"{key}/final"], TOLERANCE / theirs)


_RUNS: Final = {
    "node": _of_node,
    "patch": _of_patch,
    "guider": _of_guider,
    "addnoise": _of_add_noise,
}
