"""What handlers find in their Application, typed."""

from __future__ import annotations

from aiohttp import web

from ..runtime.config import Settings
from ..runtime.coordinator.service import Coordinator
from .files import Folders
from .model_paths import ModelPaths
from .notice_hub import NoticeHub
from .prompt_importer import PromptImporter
from .request_watch import RequestWatch
from .workflows.registrar import Registrar

SETTINGS: web.AppKey[Settings] = web.AppKey("settings", Settings)
COORDINATOR: web.AppKey[Coordinator] = web.AppKey("coordinator", Coordinator)
IMPORTER: web.AppKey[PromptImporter] = web.AppKey("importer", PromptImporter)
FOLDERS: web.AppKey[Folders] = web.AppKey("folders", Folders)
MODEL_PATHS: web.AppKey[ModelPaths] = web.AppKey("model_paths", ModelPaths)
NOTICE_HUB: web.AppKey[NoticeHub] = web.AppKey("notice_hub", NoticeHub)
REGISTRAR: web.AppKey[Registrar] = web.AppKey("registrar", Registrar)
REQUEST_WATCH: web.AppKey[RequestWatch] = web.AppKey("request_watch", RequestWatch)
