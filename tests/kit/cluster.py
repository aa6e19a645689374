"""A real server with real executor processes, and a small client of its HTTP and websocket API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

START_LIMIT_S = 120.0
RUN_LIMIT_S = 180.0

Json = dict[str, Any]


class ServerProcess:
    """`nodeloom serve` below a base directory; use it as a context manager."""

    def __init__(self, base: Path, *, executors: int = 1, flags: tuple[str, ...] = ()) -> None:
        self.base = base
        self.num_executors = executors
        self.flags = flags
        self.url = ""
        self.log: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "nodeloom.server.cli", "serve", "--port", "0"]
        command += ["--base-directory", str(self.base), "--device", "cpu"]
        command += ["--executors", str(self.num_executors), *self.flags]
        environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1"}
        self.log = []
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        threading.Thread(target=self._read_log, args=(self._process, self.log), daemon=True).start()
        try:
            self.wait_for(lambda: bool(self._find_url()), "the ready line")
            self.url = self._find_url()
            self.wait_for(lambda: len(self.executors()) >= self.num_executors, "the executors")
        except BaseException:
            self._process.kill()
            raise

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(timeout=30)

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=30)

    def executors(self) -> list[Json]:
        return self.get("/nodeloom/executors")

    def kill_executor(self, executor: Json) -> None:
        os.kill(executor["pid"], signal.SIGKILL)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.loads(answer.read())

    def post(self, path: str, body: object) -> tuple[int, Any]:
        return self.ask("POST", path, body)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and answer, JSON where it is JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = None if body is None else data
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, sent, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=RUN_LIMIT_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as refused:
            with refused:
                text = refused.read()
            try:
                return refused.code, json.loads(text)
            except ValueError:
                return refused.code, text.decode()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while not condition():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self._process.kill()
                raise AssertionError(f"waiting for {what}: exit {ended}\n" + "\n".join(self.log))
            threading.Event().wait(0.05)

    @staticmethod
    def _read_log(process: subprocess.Popen[str], log: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                log.append(line.rstrip())  # noqa: PERF401  (read by another thread meanwhile)

    def _find_url(self) -> str:
        for line in list(self.log):
            found = re.search(r"https?://[\w.:\[\]]+:\d+", line)
            if found:
                return found.group()
        return ""


class Client:
    """One websocket and the prompts that are posted beside it."""

    def __init__(self, url: str, client_id: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.client_id = client_id
        self.session = session
        self.messages: list[Json | bytes] = []
        self.socket: aiohttp.ClientWebSocketResponse | None = None

    async def submit(self, prompt: Json, **more: object) -> Json:
        body = {"prompt": prompt, "client_id": self.client_id, **more}
        async with self.session.post(self.url + "/prompt", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def until(self, condition: Callable[[Json | bytes], bool]) -> Json | bytes:
        """Read messages, keeping them, until one satisfies the condition."""
        assert self.socket is not None
        async with asyncio.timeout(RUN_LIMIT_S):
            while True:
                frame = await self.socket.receive()
                if frame.type is aiohttp.WSMsgType.BINARY:
                    message: Json | bytes = frame.data
                elif frame.type is aiohttp.WSMsgType.TEXT:
                    message = json.loads(frame.data)
                else:
                    raise AssertionError(f"socket ended: {frame.type}")
                self.messages.append(message)
                if condition(message):
                    return message

    async def end_of(self, prompt_id: str) -> None:
        """Read until the end marker of that prompt."""
        await self.until(lambda message: is_end(message, prompt_id))

    async def run(self, prompt: Json, **more: object) -> Json:
        """Submit, wait for the end marker, return the history entry."""
        accepted = await self.submit(prompt, **more)
        await self.end_of(accepted["prompt_id"])
        return await self.history(accepted["prompt_id"])

    async def history(self, prompt_id: str) -> Json:
        async with self.session.get(f"{self.url}/history/{prompt_id}") as answer:
            return (await answer.json())[prompt_id]

    async def picture(self, entry: Json, node: str, index: int = 0) -> bytes:
        """The bytes of a saved picture."""
        query = entry["outputs"][node]["images"][index]
        async with self.session.get(self.url + "/view", params=query) as answer:
            assert answer.status == 200
            return await answer.read()

    def texts(self, prompt_id: str) -> list[Json]:
        """The text messages about one prompt."""
        texts = [message for message in self.messages if isinstance(message, dict)]
        return [m for m in texts if m["data"].get("prompt_id") == prompt_id]


def is_end(message: Json | bytes, prompt_id: str) -> bool:
    """Whether it is the end marker of a prompt."""
    if isinstance(message, bytes) or message["type"] != "executing":
        return False
    data = message["data"]
    return data["node"] is None and data.get("prompt_id") == prompt_id


@contextlib.asynccontextmanager
async def connect(url: str, client_id: str | None = None) -> AsyncIterator[Client]:
    """A client with an open websocket."""
    async with aiohttp.ClientSession() as session:
        client = Client(url, client_id or uuid.uuid4().hex, session)
        address = f"{url}/ws?clientId={client.client_id}"
        async with session.ws_connect(address, max_msg_size=0) as socket:
            client.socket = socket
            yield client
