"""Workflows in Python: models are called in ordinary Python text, and a Graph comes out.

Write
    Workflow            `with Workflow(name) as flow:` add_input, add_output; traced once
    workflow            `@workflow def f(prompt: str, steps: int = 8): ... return pictures`; traced
                        for each set of structural values
    structural          the value of an input, to shape the workflow by
    Image               the annotation of a picture among a function's parameters
    TextEncoder, Denoiser, Vae, ControlNet, LoRA, LatentsGenerator, SamplerStep
                        built-in models; `Node(class_type)` is any node class of ComfyUI graphs
    Model               the base of a model of one's own: setup_io, load, execute

Load, list, bind
    run_source(data, file)                  bytes of a Python file -> module
    workflows_in(module)                    name -> Definition, those that the file defines
    workflow_in(module, name)               one of them, or the only one
    describe(definition)                    typed inputs, outputs, for JSON
    bind(definition, values, registry, catalog) -> Invocation
                                            prompt and roots to store (they lower again like any
                                            prompt), the Graph, output name -> node id

What is wrong is a `CompositionError` (with fault, file, line, and both types) or an
`InvocationRejected` (with a problem per input).
"""

from ..errors import CompositionError, Fault, InvocationProblem, InvocationRejected, Place
from ..model import Model
from .built_in import LoRA, Node
from .invocation import (
    Definition,
    Invocation,
    bind,
    checked_values,
    describe,
    describe_program,
    rejection,
)
from .models import ControlNet, Denoiser, LatentsGenerator, SamplerStep, TextEncoder, Vae
from .module import workflow_in, workflows_in
from .placeholder import Placeholder, structural
from .program import Program, WorkflowInput, WorkflowOutput
from .source import ModuleSource, run_source
from .tracing import Image, WorkflowFunction, workflow
from .workflow import Workflow

__all__ = (
    "CompositionError",
    "ControlNet",
    "Definition",
    "Denoiser",
    "Fault",
    "Image",
    "Invocation",
    "InvocationProblem",
    "InvocationRejected",
    "LatentsGenerator",
    "LoRA",
    "Model",
    "ModuleSource",
    "Node",
    "Place",
    "Placeholder",
    "Program",
    "SamplerStep",
    "TextEncoder",
    "Vae",
    "Workflow",
    "WorkflowFunction",
    "WorkflowInput",
    "WorkflowOutput",
    "bind",
    "checked_values",
    "describe",
    "describe_program",
    "rejection",
    "run_source",
    "structural",
    "workflow",
    "workflow_in",
    "workflows_in",
)
