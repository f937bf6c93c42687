"""The shared parts of a partition's three pages: parsing the address, and the heading with tabs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from nicegui import run, ui
from nicegui.elements.mixins.text_element import TextElement

from duralog.config.error_text import describe, printable
from duralog.console.drawing.words import topic_path
from duralog.console.ui.elements import text
from duralog.console.ui.layout import Console, PageMissing, partition_number, partition_tabs
from duralog.errors import DuralogError

PATIENCE_SECONDS = 0.08
"""A page waits this long for its data before it is sent without: usually, the data is there at once."""

P = ParamSpec("P")
T = TypeVar("T")


def chosen_partition(console: Console, topic: str, partition: str) -> int:
    """The number in the address, if the topic has it. Quick. Raises `UnknownTopic` or `PageMissing`."""
    numbers = [row.partition for row in console.source.topic(topic)]
    number = partition_number(partition)
    if number in numbers:
        return number
    if not numbers:
        have = "it has none"
    else:
        have = f"it has {numbers[0]}" + (f" to {numbers[-1]}" if len(numbers) > 1 else "")
    raise PageMissing(f"{topic} has no partition {number}: {have}")


@contextmanager
def partition_frame(
    console: Console, topic: str, partition: int, here: str, keys: Sequence[tuple[str, str]] = ()
) -> Iterator[TextElement]:
    """The frame with heading and tabs; `here` is one of the three. Returns the line below the name."""
    title = f"{topic}-{partition}"
    marker = "page-partition" if here == "picture" else f"page-{here}"
    crumbs = (("Topics", "/"), (topic, topic_path(topic)))
    with console.frame(title, marker=marker, here="overview", crumbs=crumbs, keys=keys):
        text("h1", title, marker="title")
        about = text("p", "", "about", marker="about")
        partition_tabs(topic, partition, here=here)
        yield about


def show_when_read(reading: asyncio.Task[T | None], show: Callable[[T], None], about: TextElement) -> None:
    """Show the data now if it was quick, otherwise when it arrives. The error of a quick read is raised here, and
    becomes the page.
    """
    if reading.done():
        if (found := reading.result()) is not None:
            show(found)
        return
    about.text = "Reading the partition …"
    about.classes("loading")

    async def arrive() -> None:
        try:
            found = await reading
        except (DuralogError, OSError) as error:
            about.text = printable(describe(error))
            return
        finally:
            about.classes(remove="loading")
        if found is not None:
            show(found)

    ui.timer(0, arrive, once=True)


async def soon(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Task[T | None]:
    """Read in a worker; the task is finished on return if that was quick."""
    task = asyncio.ensure_future(run.io_bound(read, *args, **kwargs))
    await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
    return task
