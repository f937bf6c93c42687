"""Readings that may take seconds or minutes, in workers of their own.

Pages share a few workers for what takes milliseconds: behind a log that is read from end to end, all of them would
wait. A reading ends when the page that asked for it is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from nicegui.element import Element

_MOST_AT_A_TIME = 8

T = TypeVar("T")
IsWanted = Callable[[], bool]

_workers = ThreadPoolExecutor(_MOST_AT_A_TIME, thread_name_prefix="duralog-console-long")


async def read_long(shown_in: Element, read: Callable[[IsWanted], T]) -> T | None:
    """What `read` returns; None if the element was deleted before it began. `read` asks now and then if it goes on."""

    def is_wanted() -> bool:
        return not shown_in.is_deleted

    def begin() -> T | None:
        return read(is_wanted) if is_wanted() else None

    return await asyncio.get_running_loop().run_in_executor(_workers, begin)
