"""GET /internal/files/{folder}. Source: spec comfyui-api/api.md, section 10."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from aiohttp import web

from ..app_keys import FOLDERS
from ..files import FolderKind

MAX_LISTED_FILES: Final = 100_000


async def get_files(request: web.Request) -> web.Response:
    """Names of the files directly in `input`, `output` or `temp`, newest first; 400 for another."""
    name = request.match_info["folder"]
    if name not in list(FolderKind):
        return web.json_response({"error": "Invalid directory type"}, status=400)
    folder = request.app[FOLDERS].root(FolderKind(name))
    return web.json_response(await asyncio.to_thread(newest_first, folder))


def newest_first(folder: Path) -> list[str]:
    """Names of the files directly in `folder`; hidden ones, unfinished pictures, are left out."""
    found: list[tuple[int, str]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:  # `temp` may not be there yet
        for entry in islice(entries, MAX_LISTED_FILES):
            with suppress(OSError):  # gone meanwhile, or a link that leads nowhere
                if not entry.name.startswith(".") and entry.is_file():
                    found.append((entry.stat().st_mtime_ns, entry.name))
    return [name for _, name in sorted(found, reverse=True)]
