"""A page of Chromium's that is watched: whatever goes wrong in it, or leaves the machine, is a fault of the console."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Locator, Page, Request, Response

SHOWN_MS = 60_000
"""How long a condition is waited for. Nothing is asserted about the time that it takes."""
LEFT = "net::ERR_ABORTED"
"""How Chromium tells that a page was left before a request of its was answered."""


def plain(text: str) -> str:
    """Without the commas that group digits."""
    return text.replace(",", "")


class WatchedPage:
    """One tab on a console. `faults` must be empty at the end of a test."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.faults: list[str] = []
        self.is_cut_off = False
        """Set by a test that stops the console itself: requests may fail from then on."""
        self.answers: list[Response] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(SHOWN_MS)
        self._missing: set[str] = set()
        self.page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        self.page.on("console", self._said)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("websocket", lambda socket: self._asked(socket.url))
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)
        self.page.on("dialog", self._asked_in_a_dialog)

    def open(self, path: str, *, status: int = 200) -> WatchedPage:
        """Go there, and wait until it is alive."""
        url = self.address + path
        if status != 200:
            self._missing.add(url)
        answer = self.page.goto(url)
        assert answer is not None
        assert answer.status == status, f"{path}: status {answer.status}"
        self.wait_until_alive()
        return self

    def wait_until_alive(self) -> None:
        self.page.wait_for_function("() => window.did_handshake === true")

    def part(self, name: str) -> Locator:
        return self.page.get_by_test_id(name)

    def figure(self, name: str) -> str:
        """A figure with its digits in one piece."""
        return plain(self.part(name).inner_text())

    def table(self, name: str) -> Table:
        return Table(self, name)

    def focused(self) -> Locator:
        return self.page.locator(":focus")

    def fits_its_window(self) -> None:
        """The page never scrolls sideways; a table may, in its own box."""
        self.page.wait_for_function(
            "() => document.scrollingElement.scrollWidth <= document.scrollingElement.clientWidth"
        )

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("data", "blob", "about"):
            return
        if parts.netloc != urlsplit(self.address).netloc:
            self.faults.append(f"asked another address: {url}")

    def _asked_in_a_dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _failed(self, request: Request) -> None:
        if not self.is_cut_off and request.failure != LEFT:
            self.faults.append(f"request failed: {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        self.answers.append(response)
        if response.status >= 400 and response.url not in self._missing and not self.is_cut_off:
            self.faults.append(f"status {response.status}: {response.url}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type != "error" or self.is_cut_off or message.location.get("url") in self._missing:
            return
        self.faults.append(f"console.error: {message.text}")


class Table:
    """One of the console's tables, of which one page is shown."""

    def __init__(self, tab: WatchedPage, name: str) -> None:
        self._tab = tab
        self._name = name
        self.element = tab.part(name)

    @property
    def rows(self) -> Locator:
        return self.element.locator("tbody tr")

    def cell(self, key: str, column: str) -> Locator:
        return self.element.locator(f'tbody tr[data-key={json.dumps(key)}] [data-column="{column}"]')

    def column(self, name: str) -> list[str]:
        """The cells of a column on this page, from top to bottom."""
        return [plain(text) for text in self.element.locator(f'tbody [data-column="{name}"]').all_inner_texts()]

    def sort_by(self, column: str) -> None:
        self._tab.part(f"{self._name}-by-{column}").click()

    def search(self, text: str) -> None:
        self._tab.part(f"{self._name}-search").fill(text)

    def next_page(self) -> None:
        self._tab.part(f"{self._name}-next").click()
