"""Reads that may take seconds or minutes, on their own worker threads.

Pages share a few worker threads for short reads, which a long read would block. A long read ends when its page is
closed.
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
    """The result of `read`; None if the element was deleted before it started. `read` checks whether it is still
    wanted.
    """

    def is_wanted() -> bool:
        return not shown_in.is_deleted

    def begin() -> T | None:
        return read(is_wanted) if is_wanted() else None

    return await asyncio.get_running_loop().run_in_executor(_workers, begin)
