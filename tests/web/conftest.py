"""A real server, a real headless Chromium, and pages whose console must stay clean."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from kit.base_directory import make_base, make_checkpoint
from kit.cluster import ServerProcess
from kit.page_window import RUN_LIMIT_MS, Window
from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for one module of tests that are not async: its driver holds the event loop."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium here: the page is not tested in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def web_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One executor: a second request waits while the first one runs."""
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("web-checkpoint"))
    base = make_base(tmp_path_factory.mktemp("web-base"), checkpoint)
    with ServerProcess(
        base, executors=1, flags=("--threads", "1", "--demo-models", "on")
    ) as server:
        yield server


@pytest.fixture
def window(browser: Browser, web_server: ServerProcess) -> Iterator[Window]:
    """A page of its own at 1280 x 800; fails if its console complained."""
    expect.set_options(timeout=RUN_LIMIT_MS)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    window = Window(context.new_page(), web_server.url)
    window.open()
    yield window
    context.close()
    assert window.unexpected() == []
