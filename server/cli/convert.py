"""`nodeloom convert FILE`: any workflow file as a prompt in API format.

The prompt goes to standard output, remarks to standard error. Exit status: 0 converted; 1 it was,
but has node classes that are not known here; 2 bad usage, or the file holds no workflow.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...graph_import.errors import NodeloomError
from ...graph_import.workflow_file import NodeTable
from ...runtime.config import read_settings
from ..client import object_info_of
from .terminal import put_json, tell
from .workflow_file import local_table, note_lines, read_workflow

OK: Final = 0
UNKNOWN: Final = 1
REFUSED: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    args = _parser().parse_args(arguments)

    def table() -> NodeTable:
        if args.server is not None:
            return NodeTable(asyncio.run(object_info_of(args.server)))
        return local_table(read_settings(args, os.environ))

    try:
        opened = read_workflow(args.workflow, table)
    except NodeloomError as problem:
        tell(problem.message)
        return REFUSED
    if args.notes:
        put_json({"prompt": opened.prompt, "notes": msgspec.to_builtins(opened.notes)})
    else:
        put_json(opened.prompt)
        for line in note_lines(opened):
            tell(line)
    return UNKNOWN if opened.explained else OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nodeloom convert",
        description="Print a workflow file (JSON in either format, or a picture that carries one) "
        "as a prompt in API format.",
    )
    parser.add_argument("workflow", type=Path)
    parser.add_argument(
        "--server", metavar="URL", help="take the node classes of this server, not our own"
    )
    parser.add_argument("--notes", action="store_true", help="print prompt and notes as one JSON")
    parser.add_argument("--config", help="YAML file with settings")
    parser.add_argument("--base-directory", default=argparse.SUPPRESS, metavar="PATH")
    return parser
