"""Makes the pictures of the console in docs/images from a directory that it makes itself, in Chromium.

python -m docs.make_screenshots            all of them
python -m docs.make_screenshots overview   those whose name has this in it
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from bench.workers.console_process import RunningConsole
from docs.screenshot_store import GROUP, TOPIC_OF_EVENTS, TOPIC_OF_STATE, kept_growing, make

IMAGES = Path(__file__).with_name("images")
SCREEN = (1280, 800)
PHONE = (390, 780)
COLOURS = 256
ROUNDS = 3
"""Of looking for a better palette."""
LARGEST_BYTES = 150_000


@dataclass(frozen=True)
class Shot:
    name: str
    path: str
    page: str
    """The marker of the page that must be there."""
    scheme: str = "light"
    size: tuple[int, int] = SCREEN
    clicks: tuple[str, ...] = ()
    """What is clicked first, by its marker."""


def shots() -> Iterator[Shot]:
    partition = f"/topic/{TOPIC_OF_STATE}/0"
    yield Shot("partition", partition, "page-partition")
    condition = quote('$.city = Oslo and $.items[*].item = "tea"')
    yield Shot(
        "records", f"/topic/{TOPIC_OF_EVENTS}/records?where={condition}", "page-topic-records", clicks=("record",)
    )
    yield Shot("compaction", f"{partition}/compaction", "page-compaction")
    yield Shot("health", "/health", "page-health")
    yield Shot("change", f"/groups/{GROUP}", "page-group", clicks=("reset-group", "change-next"))
    # Last: their charts have something to show by then.
    yield Shot("overview", "/", "page-overview")
    yield Shot("overview-dark", "/", "page-overview", scheme="dark")
    yield Shot("phone", "/", "page-overview", size=PHONE)


def take(browser: Browser, address: str, shot: Shot) -> bytes:
    width, height = shot.size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=shot.scheme, reduced_motion="reduce"
    )
    try:
        page = context.new_page()
        page.goto(address + shot.path)
        page.get_by_test_id(shot.page).wait_for()
        page.wait_for_function("() => window.did_handshake === true")
        for marker in shot.clicks:
            page.get_by_test_id(marker).first.click()
        page.get_by_test_id("search-stop").wait_for(state="hidden")
        # Charts draw themselves in animation frames, and what a page reads comes a moment after it.
        page.wait_for_timeout(1500)
        return page.screenshot()
    finally:
        context.close()


def small(picture: bytes) -> bytes:
    """The same picture in fewer bytes: with its own palette, in which the colours of small things survive, too."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    few = image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=ROUNDS, dither=Image.Dither.NONE)
    packed = io.BytesIO()
    few.save(packed, "PNG", optimize=True)
    return packed.getvalue()


def main() -> int:
    wanted = [shot for shot in shots() if all(word in shot.name for word in sys.argv[1:])]
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("there is no Chromium: run scripts/test-programs.sh", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="duralog-screenshots-") as folder:
        directory = Path(folder) / "data"
        make(directory)
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        with (
            kept_growing(directory) as broker,
            RunningConsole(broker, "--data", "data", allow_changes=True, folder=Path(folder)) as console,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
            for shot in wanted:
                picture = small(take(browser, console.address, shot))
                if len(picture) > LARGEST_BYTES:
                    print(f"{shot.name}: {len(picture):,} bytes, more than {LARGEST_BYTES:,}", file=sys.stderr)
                    return 1
                (IMAGES / f"console-{shot.name}.png").write_bytes(picture)
                print(f"console-{shot.name}.png: {len(picture):,} bytes")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
