"""A client of a ComfyUI-compatible server: submit a workflow, follow it, fetch its pictures.

It uses ComfyUI's routes and messages only, so it works with the original too. When the websocket
drops, it goes on by asking for the history and comes back to the socket when there is one.
Source: spec comfyui-api/api.md, sections 2 to 9.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from ..graph_import.errors import NodeloomError
from .files import resolve_under

ANSWER_TIMEOUT_S: Final = 60.0
SILENCE_S: Final = 3.0  # without a message for this long, ask whether the request still lives
RETRY_S: Final = 0.5
UNREACHABLE_LIMIT_S: Final = 60.0
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1 << 18

Json = dict[str, Any]


class ServerUnreachable(NodeloomError):
    """No server answers at that address, or not as one should."""

    code = "server_unreachable"


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the server refused; node and field are empty where none is to blame."""

    node_id: str
    class_type: str
    field: str
    reason: str

    def line(self) -> str:
        """For people: `KSampler #3, steps: Value 0 smaller than min of 1`."""
        where = f"{self.class_type} #{self.node_id}" if self.node_id else ""
        if self.field:
            where += f", {self.field}"
        return f"{where}: {self.reason}" if where else self.reason


class PromptRefused(NodeloomError):
    """The server did not take the workflow; `problems` holds everything that it named."""

    code = "prompt_refused"

    def __init__(self, message: str, problems: tuple[FieldProblem, ...]) -> None:
        super().__init__(message)
        self.problems = problems


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the server has taken; `problems` of outputs that it left out."""

    prompt_id: str
    problems: tuple[FieldProblem, ...]


class SavedPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a node saved; `type` is output, temp or input."""

    filename: str
    subfolder: str
    type: str


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A websocket message about the request that is followed."""

    type: str
    data: Json


class ServerClient:
    """Use as an async context manager; its websocket is open from the start."""

    def __init__(self, address: str) -> None:
        self.address = check_address(address)
        self._client_id = uuid.uuid4().hex
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def __aenter__(self) -> ServerClient:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=ANSWER_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout)
        try:
            self._socket = await self._open_socket()
        except (aiohttp.ClientError, TimeoutError) as problem:
            await self._session.close()
            raise ServerUnreachable(f"no server at {self.address}: {problem}") from problem
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._session is not None:
            await self._session.close()

    async def submit(
        self, prompt: Mapping[str, Any], title: str, passes: Mapping[str, Any] | None = None
    ) -> Accepted:
        """POST /prompt, opting in to `passes`. Raises: PromptRefused, ServerUnreachable."""
        extra_data: Json = {"nodeloom_title": title}
        if passes:
            extra_data["passes"] = passes
        body = {"prompt": prompt, "client_id": self._client_id, "extra_data": extra_data}
        status, answer = await self._ask("POST", "/prompt", body)
        if status != 200 or not isinstance(answer, dict) or "prompt_id" not in answer:
            raise _refusal(status, answer)
        problems = tuple(_field_problems(answer.get("node_errors")))
        return Accepted(prompt_id=str(answer["prompt_id"]), problems=problems)

    async def register(self, name: str, body: Json) -> Json:
        """PUT /nodeloom/workflows/{name}: nodeloom's own. Raises: PromptRefused."""
        path = f"/nodeloom/workflows/{quote(name, safe='')}"
        status, answer = await self._ask("PUT", path, body)
        if status not in (200, 201) or not isinstance(answer, dict):
            raise _refusal(status, answer)
        return answer

    async def follow(self, prompt_id: str) -> AsyncIterator[Heard]:
        """What the server tells of the request, until it has ended or has left the queue.

        Raises: ServerUnreachable: it has been gone for `UNREACHABLE_LIMIT_S`.
        """
        answered_s = time.monotonic()
        while True:
            heard = await self._hear()
            if heard is None:
                try:
                    if await self._has_left_queue(prompt_id):
                        return
                    answered_s = time.monotonic()
                except ServerUnreachable:
                    if time.monotonic() - answered_s > UNREACHABLE_LIMIT_S:
                        raise
            elif heard.data.get("prompt_id") == prompt_id:
                yield heard
                if heard.type == "executing" and heard.data.get("node") is None:
                    return

    async def history_entry(self, prompt_id: str) -> Json | None:
        """The request's history entry; None while it runs, or if it is unknown."""
        status, answer = await self._ask("GET", f"/history/{quote(prompt_id, safe='')}")
        if status != 200 or not isinstance(answer, dict):
            raise ServerUnreachable(f"GET /history answered {status}")
        return cast("Json | None", answer.get(prompt_id))

    async def cancel(self, prompt_id: str) -> None:
        """Take the request out of the queue, or interrupt it if it runs."""
        await self._ask("POST", "/queue", {"delete": [prompt_id]})
        await self._ask("POST", "/interrupt", {"prompt_id": prompt_id})

    async def num_executors(self) -> int:
        """How many executors have joined: nodeloom's own surface. Raises: ServerUnreachable."""
        status, executors = await self._ask("GET", "/nodeloom/executors")
        if status != 200 or not isinstance(executors, list):
            raise ServerUnreachable(f"GET /nodeloom/executors answered {status}")
        return len(executors)

    async def object_info(self) -> Json:
        """The server's node classes. Raises: ServerUnreachable."""
        status, answer = await self._ask("GET", "/object_info")
        if status != 200 or not isinstance(answer, dict):
            raise ServerUnreachable(f"GET /object_info answered {status}")
        return answer

    async def download(self, picture: SavedPicture, folder: Path) -> Path:
        """Fetch a picture into `folder`, below its subfolder; a name taken by another picture gets
        a number. Raises: UnsafeName: the server's name leaves the folder. ServerUnreachable."""
        target = resolve_under(folder, picture.subfolder, picture.filename)
        target.parent.mkdir(parents=True, exist_ok=True)
        query = msgspec.to_builtins(picture)
        try:
            async with self._http().get(self.address + "/view", params=query) as answer:
                if answer.status != 200:
                    raise ServerUnreachable(f"GET /view {picture.filename}: {answer.status}")
                parts = [part async for part in answer.content.iter_chunked(_CHUNK_BYTES)]
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise ServerUnreachable(f"GET /view {picture.filename}: {problem}") from problem
        return await asyncio.to_thread(_store, target, b"".join(parts))

    async def _hear(self) -> Heard | None:
        """The next message; None after silence, or after a gap in which messages may be lost."""
        if self._socket is None:
            self._socket = await self._reopen_socket()
            return None
        try:
            message = await self._socket.receive(timeout=SILENCE_S)
        except TimeoutError:
            return None
        if message.type is aiohttp.WSMsgType.TEXT:
            return _parse_message(message.data)
        if message.type is not aiohttp.WSMsgType.BINARY:
            self._socket = None  # closed, or broken
        return Heard(type="binary", data={})

    async def _open_socket(self) -> aiohttp.ClientWebSocketResponse:
        address = f"{self.address}/ws?clientId={self._client_id}"
        return await self._http().ws_connect(address, max_msg_size=MAX_MESSAGE_BYTES)

    async def _reopen_socket(self) -> aiohttp.ClientWebSocketResponse | None:
        await asyncio.sleep(RETRY_S)
        try:
            return await self._open_socket()
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _has_left_queue(self, prompt_id: str) -> bool:
        """Whether the request neither runs nor waits: it has ended, or was taken out."""
        status, queue = await self._ask("GET", "/queue")
        if status != 200 or not isinstance(queue, dict):
            raise ServerUnreachable(f"GET /queue answered {status}")
        items = [*queue.get("queue_running", ()), *queue.get("queue_pending", ())]
        return all(item[1] != prompt_id for item in items)

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Status and parsed JSON of an answer; text where it is no JSON."""
        try:
            sent = self._http().request(method, self.address + path, json=body)
            async with sent as answer:
                text = await answer.text()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise ServerUnreachable(f"{method} {path}: {problem}") from problem
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, text

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("ServerClient is used outside `async with`")
        return self._session


async def object_info_of(address: str) -> Json:
    """The node classes of a server. Raises: ServerUnreachable."""
    async with ServerClient(address) as client:
        return await client.object_info()


def check_address(address: str) -> str:
    """`address` with a scheme and without a slash at the end. Raises: ServerUnreachable."""
    full = address if "://" in address else f"http://{address}"
    parts = urlsplit(full)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServerUnreachable(f"{address!r} is no address of a server, as http://127.0.0.1:8188")
    return full.rstrip("/")


def _parse_message(text: str) -> Heard:
    """A text frame; one that is no JSON, as packs may send, is nothing to us."""
    try:
        frame = json.loads(text)
    except ValueError:
        return Heard(type="unreadable", data={})
    data = frame.get("data") if isinstance(frame, dict) else None
    if not isinstance(data, dict):
        return Heard(type="unreadable", data={})
    return Heard(type=str(frame.get("type")), data=data)


def saved_pictures(entry: Mapping[str, Any], kind: str = "output") -> list[SavedPicture]:
    """The pictures of a history entry that lie in the folder `kind`."""
    return [
        SavedPicture(
            filename=str(image["filename"]),
            subfolder=str(image.get("subfolder", "")),
            type=kind,
        )
        for ui in entry.get("outputs", {}).values()
        for image in ui.get("images", ())
        if image.get("type") == kind
    ]


def _refusal(status: int, answer: object) -> PromptRefused:
    if not isinstance(answer, dict):
        return PromptRefused(f"the server answered {status}: {str(answer)[:200]}", ())
    error = answer.get("error")
    problems = tuple(_field_problems(answer.get("node_errors")))
    if not isinstance(error, dict):
        return PromptRefused(f"the server answered {status}: {str(error)[:200]}", problems)
    message = str(error.get("message", status))
    details = str(error.get("details", ""))
    if details and not problems and details != message:
        message = f"{message}: {details}"
    return PromptRefused(message, problems)


def _field_problems(node_errors: object) -> list[FieldProblem]:
    if not isinstance(node_errors, dict):
        return []
    return [
        _field_problem(str(node_id), str(node.get("class_type", "")), error)
        for node_id, node in node_errors.items()
        for error in node.get("errors", ())
    ]


def _field_problem(node_id: str, class_type: str, error: Json) -> FieldProblem:
    field = str(error.get("extra_info", {}).get("input_name", ""))
    reason = str(error.get("message", ""))
    details = str(error.get("details", "")).removeprefix(f"{field}: ")
    if details and details != field:
        reason = f"{reason}: {details}"
    return FieldProblem(node_id=node_id, class_type=class_type, field=field, reason=reason)


def _store(target: Path, content: bytes) -> Path:
    """Write `content` under the first free name; a file with the same content is that file."""
    number = 0
    while True:
        name = target.name if number == 0 else f"{target.stem} ({number}){target.suffix}"
        path = target.with_name(name)
        try:
            with path.open("xb") as file:
                file.write(content)
            return path
        except FileExistsError:
            if path.is_file() and path.read_bytes() == content:
                return path
        number += 1
