"""Random workflows: sound ones become verified Graphs, a mistake is told at its line."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodeloom.graph_import.dsl import CompositionError, Fault, run_source, workflows_in

from ..known_files import PICTURE
from .flows import FILE, bound, source

HEAD = """
class Blend(Model):
    def setup_io(self):
        self.add_input("first", "IMAGE")
        self.add_input("second", "IMAGE", deferred=True)
        self.add_input("share", float)
        self.add_output("blended", "IMAGE")
    def load(self, device, check=None): pass
    def execute(self, **inputs): return {"blended": inputs["first"]}

@workflow
def elsewhere(image: Image):
    leaked.append(image)
    return image

leaked = []
elsewhere.trace({})

def written(seed, steps, amount, words, picture):
    text_encoder, vae = TextEncoder("dream.safetensors"), Vae("dream.safetensors")
    denoiser, step = Denoiser("dream.safetensors"), SamplerStep()
    generator = LatentsGenerator(denoiser, sampler="heun")
    controlnet, lora = ControlNet("controlnet.safetensors"), LoRA("my-loras.safetensors", 0.5)
    blend, invert, combine = Blend(weight=1), Node("ImageInvert"), Node("ConditioningCombine")
    c0, i0 = text_encoder(words), vae.decode(vae.encode(blend(invert(picture), picture, amount)))
    c0 = combine(c0, c0)
    denoiser.add_patch(lora)
    l0 = generator(seed, 1, vae.encode(i0))
    l0 = step(denoiser(l0, c0, c0, controlnet(l0, c0, c0, i0)), l0)
"""
SCOPE = """
with Workflow("scope") as scope:
    given = written(
        scope.add_input("seed", int, 3), scope.add_input("steps", int, 2),
        scope.add_input("amount", float, 0.5), scope.add_input("words", str, "a cat"),
        scope.add_input("picture", "IMAGE"),
    )
    for index, image in enumerate(given):
        scope.add_output(image, f"out{index}")
"""
FUNCTION = """
@workflow
def function(
    picture: Image, seed: int = 3, steps: int = 2, amount: float = 0.5, words: str = "a cat"
):
    given = written(seed, steps, amount, words, picture)
    return {f"out{index}": image for index, image in enumerate(given)}
"""
WORDS, IMAGES, LATENTS = "CONDITIONING", "IMAGE", "LATENT"
# What a statement needs and gives; `{0}` and so on are variables of the needed types.
STATEMENTS: tuple[tuple[tuple[str, ...], str | None, str], ...] = (
    ((), WORDS, "{new} = text_encoder(words)"),
    ((), WORDS, "{new} = text_encoder('a dog')"),
    ((WORDS, WORDS), WORDS, "{new} = combine({0}, {1})"),
    ((IMAGES,), LATENTS, "{new} = vae.encode({0})"),
    ((LATENTS,), IMAGES, "{new} = vae.decode({0})"),
    ((IMAGES,), IMAGES, "{new} = invert({0})"),
    ((IMAGES, IMAGES), IMAGES, "{new} = blend({0}, {1}, amount)"),
    ((IMAGES, IMAGES), IMAGES, "{new} = blend({0}, second={1}, share=1)"),
    ((IMAGES,), IMAGES, "{new} = Node('ImageScale')({0}, 'area', 64, 64, crop='center')"),
    ((), LATENTS, "{new} = Node('EmptyLatentImage')(width=64, height=64)"),
    ((LATENTS,), LATENTS, "{new} = Node('LatentUpscale')({0}, 'area', 64, 64, 'center')"),
    ((IMAGES,), WORDS, "{new} = text_encoder('x') if steps is {0} else c0"),
    ((), None, "denoiser.add_patch(lora)"),
    ((), None, "text_encoder.add_patch(lora)"),
    (
        (LATENTS, WORDS, WORDS),
        LATENTS,
        "{new} = generator(seed, steps, {0})\n"
        "    for _ in range(steps):\n"
        "        {new} = step(denoiser({new}, {1}, {2}, cfg=amount), {new})",
    ),
    (
        (LATENTS, WORDS, WORDS, IMAGES, IMAGES),
        LATENTS,
        "{new} = generator(1, 2, {0}, denoise=0.5)\n"
        "    for i in range(2):\n"
        "        added = [controlnet({new}, {1}, {2}, h, 0.5) for h in ({3}, {4})]\n"
        "        {new} = step(denoiser({new}, {1}, {2}, added[i:]), {new})",
    ),
)
MISTAKES: tuple[tuple[tuple[str, ...], str, Fault], ...] = (
    ((WORDS,), "vae.decode({0})", Fault.WRONG_TYPE),
    ((IMAGES,), "vae.decode({0})", Fault.WRONG_TYPE),
    ((LATENTS,), "text_encoder({0})", Fault.WRONG_TYPE),
    ((LATENTS, IMAGES), "combine({0}, {1})", Fault.WRONG_TYPE),
    ((WORDS,), "blend({0}, {0}, amount)", Fault.WRONG_TYPE),
    ((IMAGES,), "blend({0}, {0}, words)", Fault.WRONG_TYPE),
    ((IMAGES,), "blend({0}, {0}, share=[1])", Fault.WRONG_TYPE),
    ((IMAGES,), "step({0}, l0)", Fault.WRONG_TYPE),
    ((), "generator(seed, 'many')", Fault.WRONG_TYPE),
    ((), "generator(-3, 1)", Fault.WRONG_VALUE),
    ((IMAGES,), "blend({0}, {0})", Fault.MISSING_INPUT),
    ((IMAGES,), "combine({0})", Fault.MISSING_INPUT),
    ((IMAGES,), "blend({0}, {0}, 1, 2)", Fault.UNKNOWN_INPUT),
    ((IMAGES,), "invert(picture={0})", Fault.UNKNOWN_INPUT),
    ((IMAGES,), "blend({0}, {0}, 1, share=1)", Fault.DUPLICATE_NAME),
    ((), "invert(leaked[0])", Fault.FOREIGN_VALUE),
    ((IMAGES,), "invert({0} or picture)", Fault.USED_AS_DATA),
    ((WORDS,), "combine(*{0})", Fault.USED_AS_DATA),
    ((), "generator(seed + 1, 1)", Fault.USED_AS_DATA),
    ((), "text_encoder(f'a {{words}}')", Fault.USED_AS_DATA),
    ((), "range(amount)", Fault.USED_AS_DATA),
    ((LATENTS,), "structural({0})", Fault.USED_AS_DATA),
    ((), "Vae('dream.safetensors')", Fault.UNUSED_MODEL),
    ((), "LoRA('my-loras.safetensors')", Fault.UNUSED_MODEL),
    ((), "denoiser.rm_patch(LoRA('other'))", Fault.WRONG_VALUE),
)


@dataclass
class Body:
    """Statements of `written`, and the variables that there are by now."""

    lines: list[str] = field(default_factory=list)
    variables: dict[str, list[str]] = field(
        default_factory=lambda: {WORDS: ["c0"], IMAGES: ["i0", "picture"], LATENTS: ["l0"]}
    )

    def chosen(self, draw: st.DrawFn, needed: tuple[str, ...]) -> list[str]:
        return [draw(st.sampled_from(self.variables[type_])) for type_ in needed]

    def add(self, statement: str) -> None:
        self.lines += ("    " + statement).splitlines()

    def text(self) -> str:
        images = ", ".join(self.variables[IMAGES][:8])
        return HEAD + "\n".join([*self.lines, f"    return [{images}]"]) + "\n"


def extend(draw: st.DrawFn, body: Body, num_statements: int) -> None:
    for _ in range(num_statements):
        needed, gives, statement = draw(st.sampled_from(STATEMENTS))
        new = f"v{len(body.lines)}"
        body.add(statement.format(*body.chosen(draw, needed), new=new))
        if gives is not None:
            body.variables[gives].append(new)


@st.composite
def sound(draw: st.DrawFn) -> str:
    body = Body()
    extend(draw, body, draw(st.integers(0, 8)))
    return body.text() + draw(st.sampled_from([SCOPE, FUNCTION]))


@st.composite
def mistaken(draw: st.DrawFn) -> tuple[str, Fault, int]:
    body = Body()
    extend(draw, body, draw(st.integers(0, 5)))
    needed, statement, fault = draw(st.sampled_from(MISTAKES))
    body.add(statement.format(*body.chosen(draw, needed)))
    line = 1 + len(HEAD.strip().splitlines()) + len(body.lines)
    extend(draw, body, draw(st.integers(0, 3)))
    return body.text() + draw(st.sampled_from([SCOPE, FUNCTION])), fault, line


@settings(max_examples=100, deadline=None)
@given(text=sound(), steps=st.integers(1, 4), seed=st.integers(0, 3))
def test_a_sound_workflow_becomes_a_verified_graph(text: str, steps: int, seed: int) -> None:
    found = workflows_in(run_source(source(text), FILE))
    definition = found.get("function") or found["scope"]
    values = {"seed": seed, "picture": PICTURE} | ({"steps": steps} if "function" in found else {})
    invocation = bound(definition, **values)
    assert invocation.graph.pending == ()
    assert set(invocation.roots) == set(invocation.outputs.values())
    assert bound(definition, **values).graph == invocation.graph


@settings(max_examples=200, deadline=None)
@given(written=mistaken())
def test_a_mistake_is_told_at_its_line(written: tuple[str, Fault, int]) -> None:
    text, fault, line = written
    with pytest.raises(CompositionError) as caught:
        workflows_in(run_source(source(text), FILE))["function"].trace({})
    assert (caught.value.fault, caught.value.place.line) == (fault, line), caught.value.message
