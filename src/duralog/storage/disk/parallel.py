"""The same work on many partitions in parallel, such as loading or closing. A failed one does not stop the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from duralog.format.topic_partition import TopicPartition

T = TypeVar("T")

_SHOW_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How much of the partitions is loaded."""

    partitions_done: int
    partitions_total: int
    bytes_done: int
    bytes_total: int
    """Bytes that have to be checked. 0 after a clean stop."""

    # What `duralog.config.progress.Progress` asks for.

    label = "recovering"
    step = label
    unit = None
    detail = ""

    @property
    def done(self) -> int:
        return self.bytes_done

    @property
    def total(self) -> int:
        return self.bytes_total


ShowProgress = Callable[[Progress], None]
"""Called at the beginning, at the end, and a few times a second between, in the thread that waits for the work."""


@dataclass(frozen=True, slots=True)
class PartitionResults(Generic[T]):
    results: Mapping[TopicPartition, T]
    failures: Mapping[TopicPartition, Exception]


class ByteCount:
    """The number of bytes that several threads have processed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.bytes_done = 0

    def add(self, count: int) -> None:
        with self._lock:
            self.bytes_done += count


def for_each_partition(
    partitions: Sequence[TopicPartition],
    work: Callable[[TopicPartition, ByteCount], T],
    *,
    threads: int,
    bytes_total: int = 0,
    show: ShowProgress | None = None,
) -> PartitionResults[T]:
    """Run `work` for all partitions. Returns the results, and the errors of those that failed.

    An interrupt, or an error of `show`, drops the work that has not started, waits for the rest, and is raised then.
    """
    results: dict[TopicPartition, T] = {}
    failures: dict[TopicPartition, Exception] = {}
    count = ByteCount()

    def show_progress() -> None:
        if show is not None:
            show(
                Progress(
                    partitions_done=len(results) + len(failures),
                    partitions_total=len(partitions),
                    bytes_done=count.bytes_done,
                    bytes_total=bytes_total,
                )
            )

    show_progress()
    shown_at = time.monotonic()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="duralog-partitions")
    try:
        partition_of: dict[Future[T], TopicPartition] = {}
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for partition in partitions:
            if threading.main_thread().is_alive():
                future = pool.submit(work, partition, count)
            else:
                # A store that is closed by `atexit`: a pool takes no more work then.
                future = _done_here(work, partition, count)
            partition_of[future] = partition
            future.add_done_callback(done.put)
        while partition_of:
            # A timeout only means that it is time to show the progress.
            with suppress(Empty):
                future = done.get(timeout=_SHOW_EVERY_SECONDS)
                partition = partition_of.pop(future)
                error = future.exception()
                if error is None:
                    results[partition] = future.result()
                elif isinstance(error, Exception):
                    failures[partition] = error
                else:
                    raise error
            if time.monotonic() - shown_at >= _SHOW_EVERY_SECONDS:
                shown_at = time.monotonic()
                show_progress()
    finally:
        pool.shutdown(cancel_futures=True)
    show_progress()
    return PartitionResults(results, failures)


def _done_here(
    work: Callable[[TopicPartition, ByteCount], T], partition: TopicPartition, count: ByteCount
) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(work(partition, count))
    except BaseException as error:
        future.set_exception(error)
    return future
