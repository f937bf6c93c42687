"""Chromium, consoles and the directories that they show.

Without Chromium the tests of this folder that need it are skipped, with the reason. With `CI=true` nothing may be
skipped: they fail.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

import duralog
from bench.workers.console_process import RunningConsole
from tests.support.console import console_stores, typed_store
from tests.support.console.watched_page import SHOWN_MS, WatchedPage

MAKERS: dict[str, Callable[[Path], None]] = {
    "empty": lambda directory: duralog.open(directory).close(),
    "golden": console_stores.make_golden,
    "shop": console_stores.make_shop,
    "events": console_stores.make_events,
    "many": console_stores.make_many,
    "damaged": console_stores.make_damaged,
    "hostile": console_stores.make_hostile,
    "typed": typed_store.make_typed,
}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
DISABLED_FEATURES = (
    # Each window would load the suggestions below its address bar in a process of their own, as long as our page takes.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    # The last list counts: these are of Playwright's own. Pages are painted, and storage kept, as Playwright expects.
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    # And Chromium asks no address by itself.
    "AimEnabled",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PreconnectToSearch",
)
TROUBLE = ("Traceback", "ERROR", "Exception", "never awaited")
"""What a console never logs, whatever it is asked."""

Visit = Callable[..., WatchedPage]


@pytest.fixture
def toolkit() -> Any:
    with warnings.catch_warnings():
        # It imports whatever client of Kafka it finds, for a feature that is not used.
        warnings.simplefilter("ignore")
        import nicegui
    return nicegui


@pytest.fixture(scope="session")
def chromium() -> str:
    for name in CHROMIUM:
        if path := shutil.which(name):
            return path
    reason = "there is no Chromium: sudo apt-get install chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """One for a file, not for all: while Playwright runs, no test of another folder could run a loop of asyncio's."""
    arguments = [f"--disable-features={','.join(DISABLED_FEATURES)}"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    expect.set_options(timeout=SHOWN_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield started
        started.close()


class Stores:
    """The directories, each made when it is first asked for. Whoever changes one takes a copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, kind: str) -> Path:
        directory = self._folder / kind
        if not directory.exists():
            with pytest.MonkeyPatch.context() as patched:
                # No power is lost here, and a thousand partitions are a few thousand syncs.
                for name in ("fsync", "fdatasync"):
                    patched.setattr(os, name, lambda _: None)
                MAKERS[kind](directory)
        return directory

    def copied(self, kind: str, target: Path) -> Path:
        return Path(shutil.copytree(self[kind], target))


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("console-stores"))


@pytest.fixture(scope="session")
def consoles(stores: Stores) -> Iterator[Callable[[str], RunningConsole]]:
    """Consoles that only look, one for each kind of directory. They must have nothing to complain of in the end."""
    running: dict[str, RunningConsole] = {}
    with ExitStack() as stack:

        def console(kind: str) -> RunningConsole:
            if kind not in running:
                running[kind] = stack.enter_context(RunningConsole(str(stores[kind])))
            return running[kind]

        yield console
        for kind, one in running.items():
            assert complaints(one) == [], kind


def complaints(console: RunningConsole) -> list[str]:
    return [line for line in console.log.splitlines() if any(word in line for word in TROUBLE)]


@pytest.fixture
def visit(browser: Browser, consoles: Callable[[str], RunningConsole]) -> Iterator[Visit]:
    """Opens tabs: on one of the kinds of directories by its name, or on a console of the test's own."""
    contexts, pages = [], []

    def visit(
        where: str | RunningConsole, path: str = "/", *, status: int = 200, is_login: bool = False, **settings: Any
    ) -> WatchedPage:
        console = consoles(where) if isinstance(where, str) else where
        chosen = {"viewport": {"width": 1280, "height": 900}, "timezone_id": "UTC", **settings}
        contexts.append(browser.new_context(**chosen))
        pages.append(WatchedPage(contexts[-1], console.address))
        if is_login:
            pages[-1].page.goto(console.address + path)
            return pages[-1]
        return pages[-1].open(path, status=status)

    yield visit
    faults = [fault for page in pages for fault in page.faults]
    for context in contexts:
        context.close()
    assert faults == []
