"""Our page in a browser: open it, drop files on it, and notice what its console complains about."""

from __future__ import annotations

import base64

from playwright.sync_api import ConsoleMessage, Page, expect

RUN_LIMIT_MS = 60_000
_DROP = """([name, type, content]) => {
    const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, { type }));
    const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
    const zone = document.getElementById("drop");
    zone.dispatchEvent(new DragEvent("dragover", options));
    zone.dispatchEvent(new DragEvent("drop", options));
}"""


class Window:
    """The page in a browser, and everything that its console complained about."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.expected: list[str] = []
        page.set_default_timeout(RUN_LIMIT_MS)
        page.on("console", self._hear_console)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))

    def open(self) -> None:
        """Load the page and wait until it is connected."""
        self.page.goto(self.url)
        expect(self.page.locator("#connection")).to_have_attribute("data-state", "open")

    def drop(self, name: str, content: bytes, kind: str = "application/json") -> None:
        """Drop a file on the page, as a person would."""
        self.page.evaluate(_DROP, [name, kind, base64.b64encode(content).decode()])

    def expect_done(self) -> None:
        """Wait until the request looked at has succeeded."""
        expect(self.page.locator("#now")).to_have_attribute("data-state", "done")

    def unexpected(self) -> list[str]:
        """Complaints (CSP violations are some) that the test has not announced."""
        return [
            complaint
            for complaint in self.complaints
            if not any(words in complaint for words in self.expected)
        ]

    def _hear_console(self, message: ConsoleMessage) -> None:
        address = str(message.location["url"])
        if address.endswith("/graph") and "404" in message.text:
            return  # the request ended just before its graph was asked for
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")
