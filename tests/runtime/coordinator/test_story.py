"""DAG events folded into ComfyUI's view of a request."""

from __future__ import annotations

import msgspec
from kit.graphs import node
from nodeloom.graph_import.ir import Graph, Member, Node, NodeId, Origin, Pending
from nodeloom.runtime.coordinator.records import Submission
from nodeloom.runtime.coordinator.story import Story
from nodeloom.runtime.ids import ClientId, RequestId
from nodeloom.runtime.notices import (
    AnyNotice,
    NodeExecuted,
    NodeExecuting,
    Progress,
    ProgressState,
    Started,
)


def part(node_id: str, member: str, value: int = 0, max_value: int = 0) -> Node:
    origin = Origin(node_id=member, class_type="KSampler", value=value, max_value=max_value)
    return msgspec.structs.replace(node(node_id), origin=origin)


def member(node_id: str, *nodes: str, shared_with: str | None = None) -> Member:
    return Member(
        node_id=node_id,
        class_type="KSampler",
        nodes=tuple(NodeId(name) for name in nodes),
        is_output=False,
        shared_with=shared_with,
    )


def story_of(
    nodes: tuple[Node, ...], members: tuple[Member, ...], pending: tuple[Pending, ...] = ()
) -> Story:
    submission = Submission(
        request_id=RequestId("r"),
        client_id=ClientId("c"),
        number=0,
        prompt={},
        extra_data={},
        roots=(),
        hidden={},
    )
    graph = Graph(nodes=nodes, sinks=(), pending=pending, members=members)
    return Story(submission=submission, graph=graph)


def words(notices: list[AnyNotice]) -> list[str]:
    """Notices in short."""
    said = []
    for notice in notices:
        match notice:
            case Started():
                said.append("started")
            case ProgressState():
                last = notice.nodes[-1]
                states = ",".join(f"{n.node_id}:{n.state}:{n.value}/{n.max_value}" for n in [last])
                said.append(f"state {states}")
            case NodeExecuting():
                said.append(f"executing {notice.node_id}")
            case Progress():
                said.append(f"progress {notice.node_id} {notice.value}/{notice.max_value}")
            case NodeExecuted():
                said.append(f"executed {notice.node_id} {notice.ui}")
            case _:
                raise AssertionError(notice)
    return said


def sampler() -> Story:
    nodes = (
        part("3/begin", "3"),
        part("3/eval-0", "3", 1, 2),
        part("3/eval-1", "3", 2, 2),
        part("3/end", "3"),
    )
    members = (member("4"), member("3", "3/begin", "3/eval-0", "3/eval-1", "3/end"))
    return story_of(nodes, members)


def test_a_loader_is_told_as_running_and_finished_at_the_start() -> None:
    assert words(sampler().started(0)) == [
        "started",
        "state 4:running:0.0/1.0",
        "executing 4",
        "state 4:finished:1.0/1.0",
    ]


def test_a_sampler_of_many_dag_nodes_is_one_node_with_steps() -> None:
    story = sampler()
    story.started(0)
    told = list(story.node_started(NodeId("3/begin")))
    for name in ("3/begin", "3/eval-0", "3/eval-1", "3/end"):
        told += story.node_started(NodeId(name))
        told += story.node_finished(NodeId(name), None, None)
    assert words(told) == [
        "state 3:running:0.0/1.0",
        "executing 3",
        "state 3:running:1/2",
        "progress 3 1/2",
        "state 3:running:2/2",
        "progress 3 2/2",
        "state 3:finished:2/2",
    ]


def test_what_runs_again_after_a_loss_is_not_told_twice() -> None:
    story = sampler()
    story.started(0)
    for name in ("3/begin", "3/eval-0"):
        story.node_started(NodeId(name))
        story.node_finished(NodeId(name), None, None)
    again = []
    for name in ("3/begin", "3/eval-0"):
        again += story.node_started(NodeId(name))
        again += story.node_finished(NodeId(name), None, None)
    assert again == []


def test_ui_output_is_told_before_the_node_is_finished_and_kept_for_the_history() -> None:
    story = story_of((part("9", "9"),), (member("9", "9"),))
    story.started(0)
    story.node_started(NodeId("9"))
    told = story.node_finished(NodeId("9"), '{"images": []}', None)
    assert words(told) == ['executed 9 {"images": []}', "state 9:finished:1.0/1.0"]
    assert story.outputs == {"9": {"images": []}}
    assert story.executed == ("9",)


def test_an_equal_node_takes_the_result_without_executing() -> None:
    members = (member("9", "9"), member("19", shared_with="9"))
    story = story_of((part("9", "9"),), members)
    story.started(0)
    story.node_started(NodeId("9"))
    told = words(story.node_finished(NodeId("9"), '{"images": []}', None))
    assert told[-2:] == ['executed 19 {"images": []}', "state 19:finished:1.0/1.0"]
    assert story.outputs["19"] == story.outputs["9"]


def test_a_pending_node_is_told_when_its_graph_has_grown() -> None:
    waits = Pending(id=NodeId("3"), class_type="KSampler", waits_for=())
    story = story_of((part("2", "2"),), (member("2", "2"), member("3")), (waits,))
    assert words(story.started(0)) == ["started"]
    story.node_started(NodeId("2"))
    story.node_finished(NodeId("2"), None, None)
    nodes = (part("2", "2"), part("3/begin", "3"))
    members = (member("2", "2"), member("3", "3/begin"), member("5"))
    assert words(story.grown(Graph(nodes=nodes, sinks=(), pending=(), members=members))) == [
        "state 5:running:0.0/1.0",
        "executing 5",
        "state 5:finished:1.0/1.0",
    ]
    told = story.node_started(NodeId("3/begin")) + story.node_finished(
        NodeId("3/begin"), None, None
    )
    assert words(told)[-1] == "state 3:finished:1.0/1.0"


def test_a_picture_in_the_making_goes_with_its_step() -> None:
    story = sampler()
    story.started(0)
    told = story.node_finished(NodeId("3/eval-0"), None, b"jpeg")
    progress = [notice for notice in told if isinstance(notice, Progress)]
    assert [notice.preview for notice in progress] == [b"jpeg"]
