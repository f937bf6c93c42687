"""Runs work on remote files in parallel, since most of it waits for responses. On a local disk, it runs one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from duralog.storage.segment.segment import Segment

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 16


def side_by_side(work: Callable[[T], R], items: Sequence[T], *, is_remote: bool) -> Iterator[R]:
    """The result for each item, in order."""
    if not is_remote or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="duralog-planning") as pool:
        yield from pool.map(work, items)


def read_largest_timestamps(segments: Iterable[Segment]) -> None:
    """Load the largest timestamp of every segment, which the segment keeps."""
    for _ in side_by_side(lambda segment: segment.max_timestamp_ms, list(segments), is_remote=True):
        pass
