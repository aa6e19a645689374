"""Texts run in processes of their own, within bounds, no oftener than needed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nodeloom.server.app_keys import REGISTRAR
from nodeloom.server.workflows import registrar, tracer

from ..conftest import Client
from .conftest import FLOW, invoke, pending, put


async def test_data_never_runs_the_text_again_and_structure_does(
    client: Client, flows: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    count = f"with open({str(runs)!r}, 'a') as file: file.write('x')"
    (flows / "paint.py").write_text(f"{FLOW}\n{count}\n", "utf-8")
    await put(client, file="paint.py")
    for values in ({"width": 17}, {"color": 9}):
        assert (await invoke(client, inputs=values))[0] == 200
    assert runs.read_text() == "x"
    for values in ({"copies": 3}, {"copies": 3, "color": 5}, {"copies": 1}):
        assert (await invoke(client, inputs=values))[0] == 200
    assert runs.read_text() == "xx"
    assert len(await pending(client)) == 5


@pytest.mark.parametrize(
    ("text", "type_", "words"),
    [
        ("import os; os._exit(7)", "trace_failed", "exited with 7"),
        ("import os; os.kill(os.getpid(), 11)", "trace_failed", "signal 11 (SIGSEGV)"),
        ("\nraise SystemExit('bye')", "composition_error", "x.py:2: SystemExit: bye"),
        ("\n\n1/0", "composition_error", "x.py:3: ZeroDivisionError"),
        ("def", "composition_error", "x.py:1: this is no Python"),
        ("print('noise')\nimport sys; sys.stdout.write('x' * 99)", "composition_error", "none"),
        ("x = bytearray(2**40)", "composition_error", "x.py:1: MemoryError"),
        ("import sys; sys.stdin.read(); input()", "composition_error", "EOFError"),
        ("raise ValueError(chr(0xD800))", "composition_error", "x.py:1: something of it can't"),
        (FLOW.replace("width: int = 16", f"width: int = {10**30}"), "composition_error", "x.py:4"),
        (
            FLOW.replace("color: int", r"t: str = '\ud800', color: int"),
            "composition_error",
            "x.py:4",
        ),
    ],
)
async def test_what_a_text_does_is_its_own_fault(
    client: Client, flows: Path, text: str, type_: str, words: str
) -> None:
    (flows / "x.py").write_text(text, "utf-8")
    status, refused = await put(client, file="x.py")
    assert (status, refused["error"]["type"]) == (400, type_)
    assert words in refused["error"]["message"]
    assert (await put(client, file="paint.py"))[0] == 201


async def test_a_text_without_end_is_stopped(client: Client, flows: Path) -> None:
    (flows / "x.py").write_text("while True: pass", "utf-8")
    client.server.app[REGISTRAR]._tracer.limit_s = 1.5  # type: ignore[union-attr]  # a TestServer
    status, refused = await put(client, file="x.py")
    assert (status, refused["error"]["type"]) == (400, "trace_failed")
    assert "not traced after 1.5 s" in refused["error"]["message"]


async def test_no_more_than_so_many_wait_to_be_traced(
    client: Client, flows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "MAX_WAITING", 1)
    (flows / "slow.py").write_text("import time\ntime.sleep(60)", "utf-8")
    registering = [asyncio.ensure_future(put(client, file="slow.py")) for _ in range(4)]
    done, left = await asyncio.wait(registering, return_when=asyncio.FIRST_COMPLETED)
    for status, refused in [task.result() for task in done]:
        assert (status, refused["error"]["type"]) == (429, "admission_rejected")
    for task in left:
        task.cancel()
    await asyncio.wait(left)


async def test_programs_are_remembered_up_to_so_many_calls(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrar, "MAX_CALLS_REMEMBERED", 20)
    remembered = client.app[REGISTRAR]._programs
    for name, copies in (("a", 3), ("b", 12), ("a", 4)):
        await put(client, name, file="paint.py" if name == "a" else "more/deep.py")
        assert (await invoke(client, name, inputs={"copies": copies}))[0] == 200
    assert [key[0] for key in remembered] == ["paint.py"]


async def test_a_composition_error_says_line_and_types(client: Client, flows: Path) -> None:
    text = FLOW.replace("return images", 'return Vae("dream.safetensors").decode(images)')
    (flows / "x.py").write_text(text, "utf-8")
    status, refused = await put(client, file="x.py")
    line = text.splitlines().index('    return Vae("dream.safetensors").decode(images)') + 1
    told = refused["error"]["extra_info"]
    assert (status, told["fault"], told["line"]) == (400, "wrong_type", line)
    assert (told["file"], told["expected"], told["received"]) == ("x.py", "LATENT", "IMAGE")
