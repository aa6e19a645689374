"""`nodeloom run WORKFLOW`: run a workflow on a server, show its progress, fetch its pictures.

Exit status: 0 the pictures are there; 1 the run failed; 2 bad usage, or the workflow was refused;
130 stopped with Ctrl-C (the server is told to stop too).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ...graph_import.errors import CompositionError, InvocationRejected, NodeloomError
from ...graph_import.workflow_file import NodeTable
from ..client import (
    FieldProblem,
    PromptRefused,
    SavedPicture,
    ServerClient,
    ServerUnreachable,
    object_info_of,
    saved_pictures,
)
from ..embedded import NoWorkflow
from .python_file import Traced, is_python, trace_file
from .run_progress import RunProgress
from .terminal import ProgressBar, plain, put, put_json, tell
from .workflow_file import (
    BadSetting,
    Prompt,
    node_name,
    note_lines,
    read_workflow,
    with_settings,
)

DEFAULT_SERVER: Final = "http://127.0.0.1:8188"
OK: Final = 0
FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130
CANCEL_LIMIT_S: Final = 10.0

Json = dict[str, Any]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: what `--json` prints."""

    exit_status: int
    prompt_id: str | None
    seconds_s: float
    pictures: list[str]
    message: str
    problems: list[Json]


class RunFailed(NodeloomError):
    """The request ended without success; `prompt_id` is in the details."""

    code = "run_failed"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    args = _parser().parse_args(arguments)
    traced: Traced | None = None
    try:
        if is_python(args.workflow):
            traced = trace_file(args.workflow, args.of, args.settings)
            prompt = traced.prompt
        else:
            opened = read_workflow(
                args.workflow, lambda: NodeTable(asyncio.run(object_info_of(args.server)))
            )
            for line in note_lines(opened):
                tell(line)
            prompt = with_settings(opened.prompt, args.settings)
    except (
        NoWorkflow,
        BadSetting,
        CompositionError,
        InvocationRejected,
        ServerUnreachable,
    ) as problem:
        return _report(_refused(problem.message), args.json)
    work = run_workflow(
        prompt,
        title=args.workflow.name,
        server=args.server,
        folder=args.output,
        timeout_s=args.timeout,
        place=None if traced is None else traced.place,
    )
    try:
        return _report(asyncio.run(work), args.json)
    except (KeyboardInterrupt, asyncio.CancelledError):
        tell("interrupted; the server was told to stop the run")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nodeloom run",
        description="Run a workflow on a server, show its progress, and save its pictures.",
    )
    parser.add_argument(
        "workflow",
        type=Path,
        help="a workflow as JSON, a picture that carries one, or a Python file, which is run here "
        "(models that it defines run on servers that have the file and allow it)",
    )
    parser.add_argument(
        "--workflow", dest="of", metavar="NAME", help="which workflow of a Python file"
    )
    parser.add_argument("--server", default=DEFAULT_SERVER, help="default: %(default)s")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NODE.input=value",
        help="change an input before running (of a Python file: NAME=value); may be given again",
    )
    parser.add_argument(
        "--output", type=Path, default=Path(), metavar="DIR", help="where pictures go; default: ."
    )
    parser.add_argument(
        "--timeout", type=_seconds, metavar="S", help="stop the run after this many seconds"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document as result")
    return parser


async def run_workflow(
    prompt: Prompt,
    *,
    title: str,
    server: str,
    folder: Path,
    timeout_s: float | None,
    place: Callable[[FieldProblem], FieldProblem] | None = None,
) -> Outcome:
    """Submit `prompt`, follow it with a progress bar on stderr, download its pictures.

    `place` says of what the server refuses where the workflow's text has it.
    """
    started_s = time.monotonic()
    current = asyncio.current_task()
    if current is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    try:
        async with ServerClient(server) as client:
            return await _run_on(client, prompt, title, folder, timeout_s)
    except PromptRefused as refused:
        placed = refused.problems if place is None else map(place, refused.problems)
        return _refused(refused.message, [msgspec.to_builtins(item) for item in placed])
    except NodeloomError as problem:
        prompt_id = problem.details.get("prompt_id")
        return Outcome(
            exit_status=FAILED,
            prompt_id=None if prompt_id is None else str(prompt_id),
            seconds_s=time.monotonic() - started_s,
            pictures=[],
            message=problem.message,
            problems=[],
        )


async def _run_on(
    client: ServerClient, prompt: Prompt, title: str, folder: Path, timeout_s: float | None
) -> Outcome:
    """Raises: PromptRefused, RunFailed, ServerUnreachable, UnsafeName."""
    accepted = await client.submit(prompt, title)
    for problem in accepted.problems:
        tell(f"left out: {problem.line()}")
    started_s = time.monotonic()
    bar = ProgressBar(sys.stderr)
    progress = RunProgress(prompt, bar)
    try:
        async with asyncio.timeout(timeout_s):
            async for heard in client.follow(accepted.prompt_id):
                progress.hear(heard)
    except TimeoutError as problem:
        await client.cancel(accepted.prompt_id)
        message = f"not done after {timeout_s:g} s; the server was told to stop the run"
        raise RunFailed(message, prompt_id=accepted.prompt_id) from problem
    except asyncio.CancelledError:
        await _cancel_in_time(client, accepted.prompt_id)
        raise
    finally:
        bar.close()
    entry = await client.history_entry(accepted.prompt_id)
    pictures = _pictures_of(entry, prompt, accepted.prompt_id)
    paths = [str(await client.download(picture, folder)) for picture in pictures]
    return Outcome(
        exit_status=OK,
        prompt_id=accepted.prompt_id,
        seconds_s=time.monotonic() - started_s,
        pictures=paths,
        message="",
        problems=[msgspec.to_builtins(problem) for problem in accepted.problems],
    )


def _pictures_of(entry: Json | None, prompt: Prompt, prompt_id: str) -> list[SavedPicture]:
    """The output pictures of a request that succeeded. Raises: RunFailed."""
    if entry is None:
        raise RunFailed("the request was taken out of the server's queue", prompt_id=prompt_id)
    if entry["status"]["completed"]:
        return saved_pictures(entry)
    told = dict(entry["status"]["messages"])
    error = told.get("execution_error")
    if error is None:
        raise RunFailed("the run was interrupted on the server", prompt_id=prompt_id)
    where = node_name(prompt, str(error.get("node_id")))
    kind = error.get("exception_type", "error")
    reason = str(error.get("exception_message", "")).strip()
    raise RunFailed(f"{where}: {kind}: {reason}", prompt_id=prompt_id)


async def _cancel_in_time(client: ServerClient, prompt_id: str) -> None:
    """Tell the server to stop; a server that does not answer must not hold Ctrl-C up."""
    try:
        async with asyncio.timeout(CANCEL_LIMIT_S):
            await client.cancel(prompt_id)
    except (ServerUnreachable, TimeoutError) as problem:
        tell(f"the server could not be told to stop: {problem}")


def _refused(message: str, problems: list[Json] | None = None) -> Outcome:
    return Outcome(
        exit_status=REFUSED,
        prompt_id=None,
        seconds_s=0.0,
        pictures=[],
        message=message,
        problems=problems or [],
    )


def _report(outcome: Outcome, as_json: bool) -> int:
    if as_json:
        put_json(msgspec.to_builtins(outcome))
        return outcome.exit_status
    for path in outcome.pictures:
        put(path)
    if outcome.exit_status == OK and not outcome.pictures:
        tell("done; the workflow saved no picture")
    if outcome.message:
        tell(outcome.message)
    if outcome.exit_status == REFUSED:
        for problem in outcome.problems:
            tell(f"  {_line(problem)}")
    return outcome.exit_status


def _line(problem: Json) -> str:
    where = f"node {problem['node_id']} ({problem['class_type']})" if problem["node_id"] else ""
    field = f", {problem['field']}" if problem["field"] else ""
    what = f"{where}{field}"
    return plain(f"{what}: {problem['reason']}" if what else problem["reason"])


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return seconds
