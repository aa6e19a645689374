"""`nodeloom register WORKFLOW`: make workflows invokable by name on a server.

A Python file must lie in the server's --workflow-directory, with the same content: it is run here
first and sent by name and hash, never as text. A graph is sent as it is. Exit status: 0 registered;
1 the server can't be reached; 2 bad usage, or it was refused.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ...graph_import.errors import NodeloomError
from ...graph_import.workflow_file import NodeTable
from ..client import PromptRefused, ServerClient, ServerUnreachable, object_info_of
from .python_file import is_python, run_file, workflow_of
from .run import DEFAULT_SERVER
from .terminal import put, put_json, tell
from .workflow_file import BadSetting, find_input, note_lines, read_workflow

OK: Final = 0
FAILED: Final = 1
REFUSED: Final = 2

Json = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        bodies = _of_file(args) if is_python(args.workflow) else _of_graph(args)
        answers = asyncio.run(_register(args.server, bodies))
    except ServerUnreachable as problem:
        tell(problem.message)
        return FAILED
    except PromptRefused as refused:
        tell(refused.message)
        for item in refused.problems:
            tell(f"  {item.line()}")
        return REFUSED
    except NodeloomError as problem:
        tell(problem.message)
        return REFUSED
    if args.json:
        put_json(answers)
        return OK
    for answer in answers:
        put(_described(answer))
    return OK


async def _register(server: str, bodies: dict[str, Json]) -> list[Json]:
    async with ServerClient(server) as client:
        return [await client.register(name, body) for name, body in bodies.items()]


def _of_file(args: argparse.Namespace) -> dict[str, Json]:
    """What to send, by the name to register: all workflows of the file, or the named one."""
    if args.parameters or args.outputs:
        raise BadSetting("--parameter and --output are for graphs; a file declares its own")
    file = run_file(args.workflow)
    names = list(file.workflows)
    if args.name is not None or args.of is not None or not names:
        names = [workflow_of(file, args.of).name]
    for name in names:
        file.workflows[name].trace({})
    common = {"file": args.file or args.workflow.name, "sha256": file.sha256}
    return {args.name or name: {**common, "workflow": name} for name in names}


def _of_graph(args: argparse.Namespace) -> dict[str, Json]:
    if args.name is None:
        raise BadSetting("a graph needs a --name")
    opened = read_workflow(
        args.workflow, lambda: NodeTable(asyncio.run(object_info_of(args.server)))
    )
    for line in note_lines(opened):
        tell(line)
    prompt = opened.prompt
    parameters: Json = {}
    for given in args.parameters:
        name, separator, target = given.partition("=")
        if not separator or "." not in target:
            raise BadSetting(f"--parameter {given}: must look like NAME=NODE.input")
        node_id, input_ = find_input(prompt, target)
        parameters[name] = {"node": node_id, "input": input_}
    outputs = dict(given.partition("=")[::2] for given in args.outputs)
    return {
        args.name: {
            "prompt": prompt,
            "parameters": parameters,
            **({"outputs": outputs} if outputs else {}),
        }
    }


def _described(answer: Json) -> str:
    """`name, version 2: prompt STRING, steps INT = 8 -> image`."""
    inputs = ", ".join(
        f"{item['name']} {item['type']}" + (f" = {item['default']!r}" if "default" in item else "")
        for item in answer["inputs"]
    )
    outputs = ", ".join(answer["outputs"])
    return f"{answer['name']}, version {answer['version']}: {inputs} -> {outputs}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nodeloom register",
        description="Register workflows on a server, to be invoked by name.",
    )
    parser.add_argument(
        "workflow", type=Path, help="a Python file that the server has too, or API-format JSON"
    )
    parser.add_argument("--name", help="what to call it; default: the workflow's own name")
    parser.add_argument("--server", default=DEFAULT_SERVER, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print the server's answers")
    of_file = parser.add_argument_group("of a Python file")
    of_file.add_argument("--workflow", dest="of", help="which workflow; default: all of them")
    of_file.add_argument(
        "--file", help="its name below the server's --workflow-directory; default: its own name"
    )
    of_graph = parser.add_argument_group("of a graph; may be given again")
    of_graph.add_argument(
        "--parameter", dest="parameters", action="append", default=[], metavar="NAME=NODE.input"
    )
    of_graph.add_argument(
        "--output", dest="outputs", action="append", default=[], metavar="NAME=NODE"
    )
    return parser
