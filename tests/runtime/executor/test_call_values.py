"""Which outputs of a call outlive their executor, and that nothing is left of those given up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from kit.executors import node_call, tree
from nodeloom.runtime.data_plane.checkpoints import own_checkpoints
from nodeloom.runtime.data_plane.local import LocalPlane
from nodeloom.runtime.executor.call_values import CallValues
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.ops.base import OpResult
from nodeloom.runtime.protocol import CallDone, CallFailed, NodeCall
from nodeloom.runtime.values import Latent

BIG = (1, 4, 32, 32)


@pytest.fixture
def values(tmp_path: Path) -> CallValues:
    own = own_checkpoints(tmp_path)
    return CallValues(LocalPlane(ExecutorId("e"), "i", "ipc://none", "cpu", own))


def call_of(*checkpoints: int) -> NodeCall:
    return msgspec.structs.replace(node_call("n", num_outputs=3), checkpoints=checkpoints)


def result(last: torch.Tensor) -> OpResult:
    masked = Latent(samples=torch.ones(BIG), noise_mask=torch.ones(1, 1, 64, 64))
    return OpResult(outputs=(torch.zeros(BIG), masked, last))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_all_tensors_of_the_named_ports_are_in_files(values: CallValues, tmp_path: Path) -> None:
    done = values.publish(call_of(1, 2), result(torch.zeros(3)))
    assert isinstance(done, CallDone)
    names = [[ref.checkpoint for ref in tree(value).tensors] for value in done.outputs]
    assert names == [[None], ["e.i.2", "e.i.3"], [None]]  # the last one is in its ref
    assert files(tmp_path) == ["e.i.2", "e.i.3"]
    values.discard([done])
    assert files(tmp_path) == []


def test_an_output_that_cannot_be_carried_leaves_no_files(
    values: CallValues, tmp_path: Path
) -> None:
    bad = torch.zeros(8).to(torch.float8_e4m3fnuz)
    assert isinstance(values.publish(call_of(0, 1, 2), result(bad)), CallFailed)
    assert files(tmp_path) == []
