"""A process that saves pictures of many requests until it is done, or killed.

    python saving_process.py ROOT SAVES NUM_REQUESTS NUM_PICTURES

Says "saved REQUEST" after each. A picture's bytes say whose it is.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.save_names import NamePattern
from nodeloom.runtime.ops.saves import Save, save_once

PICTURE_BYTES = 20_000  # more than one write to a pipe or page


def content(request: int, index: int) -> bytes:
    """The bytes of one picture."""
    label = f"{request}/{index};".encode()
    return (label * (PICTURE_BYTES // len(label) + 1))[:PICTURE_BYTES]


def never() -> None:
    """`check_cancelled` of a request that goes on."""


def main(root: Path, saves: Path, num_requests: int, num_pictures: int) -> None:
    """Save all pictures of all requests, in order."""
    pattern = NamePattern(subfolder="deep", stem="x")
    for request in range(num_requests):
        save = Save(
            request_id=RequestId(f"request {request}"),
            node_id=NodeId("9"),
            root=root,
            saves=saves,
            check_cancelled=never,
        )
        encoders = [partial(content, request, index) for index in range(num_pictures)]
        save_once(save, pattern, encoders)
        sys.stdout.write(f"saved {request}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
