"""Workflow files: whatever a person saved or was sent, as a prompt in API format.

converted = convert(workflow, NodeTable(object_info))
converted.prompt, converted.notes
"""

from .convert import convert
from .interface import NodeTable
from .notes import Converted, Note, NoteKind, WorkflowFileProblem
from .recognise import WorkflowFile, parse_text, recognise

__all__ = [
    "Converted",
    "NodeTable",
    "Note",
    "NoteKind",
    "WorkflowFile",
    "WorkflowFileProblem",
    "convert",
    "parse_text",
    "recognise",
]
