"""The web application: which path has which handler. Nothing happens at import.

Every dynamic route exists twice, `/x` and `/api/x`. Source: spec comfyui-api/api.md, section 1.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from ..graph_import.nodes.registry import Registry
from ..runtime.config import Settings
from ..runtime.coordinator.service import Coordinator
from ..runtime.errors import SettingsProblem
from ..runtime.notices import AnyNotice
from .app_keys import (
    COORDINATOR,
    FOLDERS,
    IMPORTER,
    MODEL_PATHS,
    NOTICE_HUB,
    REGISTRAR,
    REQUEST_WATCH,
    SETTINGS,
)
from .catalog import FolderCatalog
from .files import Folders
from .middleware import allow_cors, answer_errors, cache_headers, check_origin, limit_body
from .model_paths import ModelPaths
from .notice_hub import NoticeHub
from .pass_options import PassReader
from .prompt_importer import PromptImporter
from .request_watch import RequestWatch
from .routes import (
    control,
    convert,
    frontend,
    history,
    internal,
    invoke,
    models,
    nodeloom,
    object_info,
    prompt,
    queue,
    system,
    upload,
    view,
    workflows,
)
from .websocket import SOCKETS, close_sockets, get_ws
from .workflows.registrar import Registrar
from .workflows.store import WorkflowStore
from .workflows.tracer import Tracer
from .workflows.user_files import UserFiles

_GET: dict[str, Handler] = {
    "/ws": get_ws,
    "/prompt": prompt.get_prompt,
    "/queue": queue.get_queue,
    "/history": history.get_history,
    "/history/{prompt_id}": history.get_history_entry,
    "/view": view.get_view,
    "/object_info": object_info.get_object_info,
    "/object_info/{class_type}": object_info.get_object_info_of_class,
    "/embeddings": models.get_embeddings,
    "/models": models.get_models,
    "/models/{kind}": models.get_models_of_kind,
    "/system_stats": system.get_system_stats,
    "/features": system.get_features,
    "/nodeloom/requests/{request_id}": invoke.get_request,
    "/nodeloom/requests/{request_id}/graph": nodeloom.get_request_graph,
    "/nodeloom/workflows": workflows.get_workflows,
    "/nodeloom/workflows/{name}": workflows.get_workflow,
    "/nodeloom/workflows/{name}/versions/{version}": workflows.get_version,
    "/nodeloom/executors": nodeloom.get_executors,
    "/healthz": system.get_healthz,
    "/readyz": system.get_readyz,
    "/": frontend.get_index,
}
_POST: dict[str, Handler] = {
    "/prompt": prompt.post_prompt,
    "/queue": queue.post_queue,
    "/history": history.post_history,
    "/interrupt": control.post_interrupt,
    "/free": control.post_free,
    "/upload/image": upload.post_upload_image,
    "/nodeloom/convert": convert.post_convert,
    "/nodeloom/workflows/{name}/invoke": invoke.post_invoke,
}
_WORKFLOW = "/nodeloom/workflows/{name}"


@dataclass(frozen=True, slots=True)
class Front:
    """An application and the coordinator that it speaks for, which is not started yet."""

    app: web.Application
    coordinator: Coordinator


def build_front(settings: Settings) -> Front:
    """All parts of a server but its executors, joined. Raises: SettingsProblem."""
    folders, model_paths, hub = Folders.of(settings), ModelPaths.of(settings), NoticeHub()
    user_files, watch = UserFiles.of(settings), RequestWatch()
    catalog = FolderCatalog(model_paths, folders, user_files)
    importer = PromptImporter(Registry(), catalog, PassReader.of(settings))

    def notify(notice: AnyNotice) -> None:
        hub.publish(notice)
        watch.publish(notice)

    coordinator = Coordinator(settings, importer, notify)
    app = build_app(settings, coordinator)
    app[IMPORTER], app[NOTICE_HUB], app[REQUEST_WATCH] = importer, hub, watch
    store = WorkflowStore(settings.state_directory / "workflows.db")
    app[REGISTRAR] = Registrar(store, Tracer(), user_files, importer)
    app.cleanup_ctx.append(_keep_workflows)
    app[FOLDERS], app[MODEL_PATHS] = folders, model_paths
    return Front(app=app, coordinator=coordinator)


def build_app(settings: Settings, coordinator: Coordinator) -> web.Application:
    """Routes and middlewares around a coordinator; `build_front` adds what handlers look up."""
    cors = settings.enable_cors_header
    app = web.Application(
        client_max_size=settings.max_upload_bytes,
        middlewares=[
            check_origin if cors is None else allow_cors(cors),
            cache_headers,
            answer_errors,
            limit_body,
        ],
    )
    app[SETTINGS], app[COORDINATOR], app[SOCKETS] = settings, coordinator, set()
    app[view.DECODING] = asyncio.Semaphore(view.MAX_DECODING)
    for prefix in ("", "/api"):
        for path, handler in _GET.items():
            app.router.add_get(prefix + path, handler)
        for path, handler in _POST.items():
            app.router.add_post(prefix + path, handler)
        app.router.add_put(prefix + _WORKFLOW, workflows.put_workflow)
        app.router.add_delete(prefix + _WORKFLOW, workflows.delete_workflow)
    app.router.add_get("/internal/files/{folder}", internal.get_files)  # has no twin below /api
    app.router.add_get("/{path:.*}", frontend.get_file)  # last: whatever is left
    app.on_shutdown.append(close_sockets)
    return app


async def _keep_workflows(app: web.Application) -> AsyncIterator[None]:
    """Open and close the database of registered workflows. Raises: SettingsProblem."""
    store = app[REGISTRAR].store
    try:
        await store.open()
    except sqlite3.Error as problem:
        raise SettingsProblem(f"database of workflows: {problem}") from problem
    yield
    await store.close()
