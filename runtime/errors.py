"""The error tree below `graph_import.errors.NodeloomError`.

NodeloomError
  ImportRejected        400  a prompt that can't be run           graph_import/errors.py
  ModelFileProblem      400  a file that can't be used            graph_import/errors.py
  GraphBroken                our bug, found by the verifier       graph_import/errors.py
  WireProblem                a message that can't be read         runtime/wire.py
  SettingsProblem            a flag, variable or config key that makes no sense
  AdmissionRejected     429  the queue is full
  NodeFailed                 a node of a request failed
    PatchMatchesNothing      ... because a LoRA is for another model
    OutOfMemory              ... because a hard budget would be exceeded
  Cancelled                  the request was interrupted
  InputsLost                 a tensor is gone with its executor: run the producers again
  InvariantBroken            our bug in the scheduler: tells the story, stops the process
"""

from __future__ import annotations

from ..graph_import.errors import NodeloomError


class SettingsProblem(NodeloomError):
    """A setting is unknown, malformed or contradicts another."""

    code = "settings_problem"


class AdmissionRejected(NodeloomError):
    """The server can't take another request now (HTTP 429)."""

    code = "admission_rejected"


class NodeFailed(NodeloomError):
    """A node of a request failed; the request ends, others go on."""

    code = "node_failed"


class PatchMatchesNothing(NodeFailed):
    """A patch file changes nothing of the model that it was put on."""

    code = "patch_matches_nothing"


class OutOfMemory(NodeFailed):
    """A hard memory budget would be exceeded."""

    code = "out_of_memory"


class Cancelled(NodeloomError):
    """The request was interrupted."""

    code = "cancelled"


class InputsLost(NodeloomError):
    """A tensor that a node needs can't be fetched any more; `keys` in the details name them."""

    code = "inputs_lost"


class InvariantBroken(NodeloomError):
    """The scheduler contradicts itself: our bug."""

    code = "invariant_broken"
