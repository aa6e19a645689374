"""One request's story as ComfyUI tells it: DAG events folded into the view per submitted node.

Pure: actions in, notices out. A KSampler of twenty evaluations is one node with value and max; a
node of handles announces itself as running and finished too; what runs again after a loss isn't
told twice. Source: architecture, section 14 ("Messages"); spec comfyui-api/api.md, section 8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ...graph_import.ir import Graph, Member, Node, NodeId
from ..ids import ClientId
from ..notices import (
    AnyNotice,
    NodeExecuted,
    NodeExecuting,
    NodeProgress,
    NodeState,
    Progress,
    ProgressState,
    Started,
)
from .records import Json, Submission


@dataclass(slots=True)
class Story:
    """What has been told of a request, and what its history entry will say."""

    submission: Submission
    graph: Graph
    outputs: dict[str, Json] = field(default_factory=dict)
    current_node: str | None = None
    _nodes: dict[NodeId, Node] = field(default_factory=dict)
    _told: dict[str, NodeProgress] = field(default_factory=dict)
    _done: set[NodeId] = field(default_factory=set)
    _ui: dict[NodeId, dict[str, list[object]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._nodes = self.graph.by_id()

    @property
    def client_id(self) -> ClientId | None:
        """Who hears it."""
        return self.submission.client_id

    @property
    def executed(self) -> tuple[str, ...]:
        """Submitted nodes that are finished, in order of first touch."""
        return tuple(
            node_id for node_id, told in self._told.items() if told.state is NodeState.FINISHED
        )

    def started(self, timestamp_ms: int) -> list[AnyNotice]:
        """The request begins; nodes that cost nothing are told at once."""
        begun = Started(
            request_id=self.submission.request_id,
            client_id=self.client_id,
            cached_nodes=(),
            timestamp_ms=timestamp_ms,
        )
        return [begun, *self._tell_free_members()]

    def grown(self, graph: Graph) -> list[AnyNotice]:
        """The graph was lowered further."""
        self.graph = graph
        self._nodes = graph.by_id()
        notices = self._tell_free_members()
        members = {member.node_id: member for member in graph.members}
        for twin in graph.members:  # a new node may equal one that is done
            original = members.get(twin.shared_with) if twin.shared_with else None
            if original is not None and original.node_id in self.executed:
                notices += self._finish_twin(twin, original)
        return notices

    def node_started(self, node_id: NodeId) -> list[AnyNotice]:
        """A DAG node was sent to an executor."""
        return self._touch(self._nodes[node_id].origin.node_id)

    def node_finished(
        self, node_id: NodeId, ui: str | None, preview: bytes | None
    ) -> list[AnyNotice]:
        """A DAG node is done: perhaps a step of its submitted node, perhaps all of it."""
        node = self._nodes[node_id]
        if node_id in self._done:
            return []
        self._done.add(node_id)
        origin = node.origin
        notices = self._touch(origin.node_id)
        if origin.value > 0:
            notices += self._step(origin.node_id, origin.value, origin.max_value, preview)
        if ui is not None:
            self._ui[node_id] = json.loads(ui)
        for member in self.graph.members:
            if node_id in member.nodes and self._done.issuperset(member.nodes):
                notices += self._tell_ui(member)
                notices += self._finish(member)
        return notices

    def _tell_ui(self, member: Member) -> list[AnyNotice]:
        """What the calls of an output node gave, as one; source: validation.md, section 8."""
        calls = [self._ui[node_id] for node_id in member.nodes if node_id in self._ui]
        if not calls:
            return []
        merged = {key: [item for ui in calls for item in ui[key]] for key in calls[0]}
        whole: Json = dict(calls[0] if len(calls) == 1 else merged)
        self.outputs[member.node_id] = whole
        return [self._executed(member.node_id, json.dumps(whole))]

    def _tell_free_members(self) -> list[AnyNotice]:
        """Loaders and folded constants: nothing runs for them."""
        waiting = {pending.id for pending in self.graph.pending}
        notices: list[AnyNotice] = []
        for member in self.graph.members:
            is_free = not member.nodes and member.shared_with is None
            if is_free and NodeId(member.node_id) not in waiting:
                notices += self._touch(member.node_id) + self._finish(member)
        return notices

    def _touch(self, node_id: str) -> list[AnyNotice]:
        if node_id in self._told:
            return []
        self.current_node = node_id
        self._told[node_id] = NodeProgress(
            node_id=node_id, value=0.0, max_value=1.0, state=NodeState.RUNNING
        )
        executing = NodeExecuting(
            request_id=self.submission.request_id, client_id=self.client_id, node_id=node_id
        )
        return [self._progress_state(), executing]

    def _step(
        self, node_id: str, value: int, max_value: int, preview: bytes | None
    ) -> list[AnyNotice]:
        if self._told[node_id].value >= value and isinstance(self._told[node_id].value, int):
            return []
        self._told[node_id] = NodeProgress(
            node_id=node_id, value=value, max_value=max_value, state=NodeState.RUNNING
        )
        progress = Progress(
            request_id=self.submission.request_id,
            client_id=self.client_id,
            node_id=node_id,
            value=value,
            max_value=max_value,
            preview=preview,
        )
        return [self._progress_state(), progress]

    def _finish(self, member: Member) -> list[AnyNotice]:
        told = self._told.get(member.node_id)
        if told is not None and told.state is NodeState.FINISHED:
            return []
        is_stepwise = told is not None and isinstance(told.value, int)
        max_value = told.max_value if told is not None and is_stepwise else 1.0
        self._told[member.node_id] = NodeProgress(
            node_id=member.node_id,
            value=max_value,
            max_value=max_value,
            state=NodeState.FINISHED,
        )
        notices: list[AnyNotice] = [self._progress_state()]
        for twin in self.graph.members:
            if twin.shared_with == member.node_id:
                notices += self._finish_twin(twin, member)
        return notices

    def _finish_twin(self, twin: Member, original: Member) -> list[AnyNotice]:
        """An equal node takes the result without `executing`; source: validation.md, section 10."""
        told = self._told.get(twin.node_id)
        if told is not None and told.state is NodeState.FINISHED:
            return []
        ui = self.outputs.get(original.node_id)
        if ui is not None:
            self.outputs[twin.node_id] = ui
        text = None if ui is None else json.dumps(ui)
        return [self._executed(twin.node_id, text), *self._finish(twin)]

    def _executed(self, node_id: str, ui: str | None) -> AnyNotice:
        return NodeExecuted(
            request_id=self.submission.request_id,
            client_id=self.client_id,
            node_id=node_id,
            ui=ui,
        )

    def _progress_state(self) -> AnyNotice:
        return ProgressState(
            request_id=self.submission.request_id,
            client_id=self.client_id,
            nodes=tuple(self._told.values()),
        )
