"""Small Graphs for tests of the scheduler, built from IR structs directly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Patch, Role
from nodeloom.graph_import.ir import Edge, EdgeKind, Graph, Node, NodeId, Origin, Pending, Port
from nodeloom.graph_import.types import CONDITIONING, IMAGE, LATENT, SAMPLER_STATE

Source = str | tuple[str, int]  # a node's id, or its id and port


def model(name: str, role: Role = Role.DENOISER, *, size_bytes: int = 2 * 10**9) -> ModelRef:
    """A model of the file `name`; loading it is guessed at 1 GB/s."""
    file = FileIdentity(path=f"/models/{name}", size_bytes=size_bytes, mtime_ns=1)
    return ModelRef(key=ModelKey(role=role, family="sd15", file=file, dtype="float16"))


def patched(ref: ModelRef, lora: str) -> ModelRef:
    """The same weights with a LoRA on them."""
    file = FileIdentity(path=f"/loras/{lora}", size_bytes=10**6, mtime_ns=1)
    return ModelRef(key=ref.key, patches=(*ref.patches, Patch(file=file, strength=1.0)))


def node(
    node_id: str,
    op: str = "image_scale",
    *,
    ref: ModelRef | None = None,
    reads: Sequence[Source] | Mapping[str, Source] = (),
    gives: Sequence[str] = (LATENT,),
    hidden: tuple[str, ...] = (),
    depth: int = 0,
    deferred: bool | Collection[str] = False,
) -> Node:
    """A node; `reads` names its inputs, or numbers them `a`, `b` ...; `gives` are port types.

    `deferred` says which of the inputs are, or that all are.
    """
    named = reads if isinstance(reads, Mapping) else {chr(97 + i): s for i, s in enumerate(reads)}
    late = set(named if isinstance(deferred, bool) else deferred) if deferred else set()
    kinds = {name: EdgeKind.DEFERRED if name in late else EdgeKind.EAGER for name in named}
    return Node(
        id=NodeId(node_id),
        op=op,
        model=ref,
        params=(),
        inputs=tuple((name, edge(source, kinds[name])) for name, source in named.items()),
        outputs=tuple(Port(name=f"out{i}", type=type_) for i, type_ in enumerate(gives)),
        hidden=hidden,
        origin=Origin(node_id=node_id, class_type="Test"),
        depth=depth,
        signature=node_id,
    )


def edge(source: Source, kind: EdgeKind = EdgeKind.EAGER) -> Edge:
    """An edge from a node's port (0 unless told)."""
    node_id, port = (source, 0) if isinstance(source, str) else source
    return Edge(source=NodeId(node_id), port=port, kind=kind)


def pending(node_id: str, *waits_for: Source) -> Pending:
    """A node that can't be lowered before these values are known."""
    return Pending(
        id=NodeId(node_id), class_type="Test", waits_for=tuple(edge(item) for item in waits_for)
    )


def graph(
    *nodes: Node, sinks: Sequence[str] | None = None, pending: Sequence[Pending] = ()
) -> Graph:
    """A graph whose depths are computed; without `sinks`, the nodes that nobody reads are them."""
    read = {input_.source for item in nodes for _, input_ in item.inputs}
    found = [item.id for item in nodes if item.id not in read]
    depths: dict[NodeId, int] = {}
    placed = []
    for item in nodes:
        above = [depths[input_.source] for _, input_ in item.inputs]
        depths[item.id] = 1 + max(above) if above else 0
        placed.append(_at_depth(item, depths[item.id]))
    return Graph(
        nodes=tuple(placed),
        sinks=tuple(found if sinks is None else map(NodeId, sinks)),
        pending=tuple(pending),
        members=(),
    )


def _at_depth(item: Node, depth: int) -> Node:
    fields = {name: getattr(item, name) for name in item.__struct_fields__}
    return Node(**(fields | {"depth": depth}))


def chain(length: int, ref: ModelRef | None, op: str = "denoise") -> Graph:
    """`s0` -> `s1` -> ...: one op after another on one model."""
    nodes = [
        node(f"s{i}", op, ref=ref, reads=[f"s{i - 1}"] if i else [], gives=[SAMPLER_STATE])
        for i in range(length)
    ]
    return graph(*nodes)


def side_by_side(lanes: str, length: int, ref: ModelRef) -> Graph:
    """`x0` -> `x1` -> ..., `y0` -> `y1` -> ...: several such chains in one request."""
    nodes = [
        node(
            f"{lane}{i}",
            "denoise",
            ref=ref,
            reads=[f"{lane}{i - 1}"] if i else [],
            gives=[SAMPLER_STATE],
        )
        for lane in lanes
        for i in range(length)
    ]
    return graph(*nodes)


def text_to_image(num_steps: int, name: str = "sd15.safetensors") -> Graph:
    """What a text-to-image prompt lowers to: 6 + `num_steps` nodes and three models."""
    text_encoder = model(name, Role.TEXT_ENCODER, size_bytes=250 * 10**6)
    denoiser = model(name, Role.DENOISER)
    vae = model(name, Role.VAE, size_bytes=160 * 10**6)
    nodes = [
        node("positive", "text_encode", ref=text_encoder, gives=[CONDITIONING]),
        node("negative", "text_encode", ref=text_encoder, gives=[CONDITIONING]),
        node("empty", "empty_latent"),
        node("begin", "sample_begin", reads=["empty"], gives=[SAMPLER_STATE]),
    ]
    previous = "begin"
    for i in range(num_steps):
        reads = {"state": previous, "positive": "positive", "negative": "negative"}
        nodes.append(node(f"eval-{i}", "denoise", ref=denoiser, reads=reads, gives=[SAMPLER_STATE]))
        previous = f"eval-{i}"
    nodes += [
        node("end", "sample_end", reads=[previous]),
        node("decode", "vae_decode", ref=vae, reads=["end"], gives=[IMAGE]),
        node("save", "save_image", reads=["decode"], gives=[], hidden=("prompt",)),
    ]
    return graph(*nodes)
