"""Models of users' own over HTTP: the flag, and texts that stay when files change."""

from __future__ import annotations

from pathlib import Path

from kit.workflow_server import EXAMPLES
from nodeloom.runtime.config import Settings

from ..conftest import Client, Serve
from .conftest import OWN, invoke, pending, picture, prompt_of, put


async def test_models_of_users_own_need_a_flag_of_their_own(
    client: Client, serve: Serve, flows: Path, tmp_path: Path
) -> None:
    (flows / "own.py").write_text((EXAMPLES / "custom_model.py").read_text("utf-8"), "utf-8")
    status, refused = await put(client, file="own.py")
    assert (status, refused["error"]["type"]) == (403, "user_code_refused")
    assert "--allow-user-models" in refused["error"]["message"]
    fields = {"workflow_directory": flows, "allow_user_models": True}
    async with serve(**fields, user_directory=tmp_path / "other") as open_:
        (tmp_path / "base" / "input" / "x.png").write_bytes(picture())
        assert (await put(open_, file="own.py"))[0] == 201
        assert (await invoke(open_, inputs={"image": "x.png"}))[0] == 200
        ((_, _, prompt, _, _),) = await pending(open_)
        assert (await open_.post("/prompt", json={"prompt": prompt})).status == 200
        (flows / "own.py").unlink()
        status, refused = await invoke(open_, inputs={"image": "x.png"})
        assert (status, refused["error"]["type"]) == (400, "invocation_rejected")
    answer = await client.post("/prompt", json={"prompt": prompt})
    assert answer.status == 400
    assert "--allow-user-models" in await answer.text()


async def test_a_version_keeps_its_text_for_models_that_its_defaults_do_not_call(
    with_models: Client, flows: Path
) -> None:
    assert (await put(with_models, "own", file="own.py"))[0] == 201
    (flows / "own.py").write_text(OWN + "# changed", "utf-8")
    assert (await invoke(with_models, "own", inputs={"copies": 1}))[0] == 200


async def test_a_registered_graph_keeps_the_texts_of_its_models(
    with_models: Client, flows: Path, server_settings: Settings
) -> None:
    prompt = await prompt_of(with_models, copies=1)
    for copy in server_settings.user_models_directory.iterdir():
        copy.unlink()
    assert (await put(with_models, "graph", prompt=prompt))[0] == 201
    (flows / "own.py").write_text(OWN + "# changed", "utf-8")
    assert (await invoke(with_models, "graph"))[0] == 200


async def test_only_the_files_that_outputs_need_must_be_there_and_all_are_told(
    with_models: Client, flows: Path
) -> None:
    prompt = await prompt_of(with_models, copies=2)
    (output,) = (node for node in prompt if node.startswith("output-"))
    first, second = (node for node in prompt if node.startswith("Own-"))
    (flows / "own.py").unlink()
    answer = await with_models.post("/prompt", json={"prompt": prompt})
    assert answer.status == 400
    assert (await answer.json())["node_errors"].keys() == {first, second}
    empty = next(node for node in prompt if node.startswith("EmptyImage-"))
    prompt[output]["inputs"]["images"] = [empty, 0]
    assert (await with_models.post("/prompt", json={"prompt": prompt})).status == 200
