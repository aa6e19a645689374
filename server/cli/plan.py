"""`nodeloom plan WORKFLOW`: what a workflow is lowered to, without running it and without a server.

Exit status: 0 the plan is printed; 2 bad usage, or the workflow can't be run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...graph_import.comfy.importer import import_prompt
from ...graph_import.comfy.validate import validate
from ...graph_import.errors import ImportProblem, ImportRejected, NodeloomError
from ...graph_import.ir import Graph
from ...graph_import.nodes.registry import Registry
from ...runtime.config import Settings, read_settings
from ..catalog import FolderCatalog
from ..client import FieldProblem
from ..files import Folders
from ..model_paths import ModelPaths
from ..workflows.user_files import UserFiles
from .plan_report import BatchReport, NodeReport, PendingReport, PlanReport, report_on
from .python_file import is_python, trace_file
from .terminal import put, put_json, tell
from .workflow_file import Prompt, local_table, note_lines, read_workflow, with_settings

OK: Final = 0
REFUSED: Final = 2
SHOWN_NODES: Final = 6


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    args = _parser().parse_args(arguments)
    place: Callable[[FieldProblem], FieldProblem] = _as_it_is
    user_files = UserFiles(None, None)
    try:
        settings = read_settings(args, os.environ)
        if is_python(args.workflow):
            traced = trace_file(args.workflow, args.of, args.settings)
            prompt, place = traced.prompt, traced.place
            # Its own models are looked at where the file lies; nothing of them runs or is copied.
            user_files = UserFiles(args.workflow.parent, args.workflow.parent)
        else:
            opened = read_workflow(args.workflow, lambda: local_table(settings))
            for line in () if args.json else note_lines(opened):
                tell(line)
            prompt = with_settings(opened.prompt, args.settings)
        graph, problems = plan(prompt, settings, user_files)
    except NodeloomError as refused:
        return _refuse(refused, args.json, place)
    report = report_on(graph)
    left_out = [place(_field_problem(problem)) for problem in problems]
    if args.json:
        document = msgspec.to_builtins(report) | {"problems": msgspec.to_builtins(left_out)}
        put_json(document)
        return OK
    for problem in left_out:
        tell(f"left out: {problem.line()}")
    for line in describe(args.workflow.name, report):
        put(line)
    return OK


def plan(
    prompt: Prompt, settings: Settings, user_files: UserFiles
) -> tuple[Graph, tuple[ImportProblem, ...]]:
    """Validate and lower as the server would; also the problems of outputs that are left out.

    Raises: ImportRejected: nothing in the workflow can run. SettingsProblem.
    """
    catalog = FolderCatalog(ModelPaths.of(settings), Folders.of(settings), user_files)
    registry = Registry()
    validated = validate(prompt, registry, catalog)
    graph = import_prompt(validated.prompt, validated.roots, registry, catalog)
    return graph, validated.problems


def describe(name: str, report: PlanReport) -> list[str]:
    """The report as lines for people."""
    lines = [
        f"{name}: {report.num_members} ComfyUI nodes, lowered to {report.num_nodes} DAG nodes; "
        f"{report.num_edges} edges ({report.num_deferred} deferred), "
        f"longest path {report.longest_path} nodes",
        "",
        "Nodes (by ComfyUI node)",
    ]
    by_id = {node.id: node for node in report.nodes}
    for member in report.members:
        note = " (output)" if member.is_output else ""
        if member.shared_with is not None:
            note += f": same as node {member.shared_with}"
        elif not member.nodes:
            note += ": nothing to run"
        lines.append(f"  {member.class_type} #{member.node_id}{note}")
        lines += [f"    {_node_line(by_id[node_id])}" for node_id in member.nodes]
    if report.pending:
        lines += ["", "Pending: lowered when the values are there"]
        lines += [f"  {_pending_line(item)}" for item in report.pending]
    lines += ["", "Loads"]
    lines += [
        f"  {load.file}: {load.num_bytes / 1e6:.1f} MB, for {', '.join(load.models)}"
        for load in report.loads
    ] or ["  no weights"]
    lines += ["", "What would batch (same op, same weights; over all requests)"]
    lines += [f"  {_batch_line(batch)}" for batch in report.batches] or ["  nothing"]
    return lines


def _node_line(node: NodeReport) -> str:
    needs = ", ".join(
        f"{item.name} <{'~' if item.kind == 'deferred' else '-'} {item.source}"
        for item in node.inputs
    )
    model = f"  [{node.model}]" if node.model else ""
    return f"depth {node.depth:>2}  {node.id}  {node.op}{model}" + (f"  {needs}" if needs else "")


def _pending_line(item: PendingReport) -> str:
    awaited = ", ".join(item.waits_for) or "a pending node"
    return f"{item.class_type} #{item.node_id} waits for {awaited}"


def _batch_line(batch: BatchReport) -> str:
    shown = ", ".join(batch.nodes[:SHOWN_NODES])
    if len(batch.nodes) > SHOWN_NODES:
        shown += f", ... {batch.nodes[-1]}"
    alone = "one at a time within this request"
    here = f"up to {batch.num_at_once} at once here" if batch.num_at_once > 1 else alone
    return f"{len(batch.nodes)} x {batch.op} [{batch.model}]: {here}: {shown}"


def _refuse(
    problem: NodeloomError, as_json: bool, place: Callable[[FieldProblem], FieldProblem]
) -> int:
    found: list[FieldProblem] = []
    message = problem.message
    if isinstance(problem, ImportRejected):
        found = [place(_field_problem(item)) for item in problem.problems]
        if problem.text and not found:
            message = f"{message}: {problem.text}"
    if as_json:
        put_json({"message": message, "problems": msgspec.to_builtins(found)})
        return REFUSED
    tell(message)
    for item in found:
        tell(f"  {item.line()}")
    return REFUSED


def _as_it_is(problem: FieldProblem) -> FieldProblem:
    return problem


def _field_problem(problem: ImportProblem) -> FieldProblem:
    field = str(problem.extra_info.get("input_name", ""))
    details = problem.details.removeprefix(f"{field}: ")
    has_more = details and details != field
    return FieldProblem(
        node_id=problem.node_id,
        class_type=problem.class_type,
        field=field,
        reason=f"{problem.message}: {details}" if has_more else problem.message,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nodeloom plan",
        description="Show what a workflow is lowered to: nodes, models, edges, batches, loads.",
    )
    parser.add_argument(
        "workflow",
        type=Path,
        help="a workflow as JSON, a picture that carries one, or a Python file, which is run",
    )
    parser.add_argument(
        "--workflow", dest="of", metavar="NAME", help="which workflow of a Python file"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NODE.input=value",
        help="change an input first (of a Python file: NAME=value); may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    folders = parser.add_argument_group("folders, as `nodeloom serve` takes them")
    absent = argparse.SUPPRESS
    folders.add_argument("--config", help="YAML file with settings")
    folders.add_argument("--base-directory", default=absent, metavar="PATH")
    folders.add_argument("--input-directory", default=absent, metavar="PATH")
    folders.add_argument("--output-directory", default=absent, metavar="PATH")
    folders.add_argument("--extra-model-paths-config", nargs="+", default=absent, metavar="PATH")
    return parser
