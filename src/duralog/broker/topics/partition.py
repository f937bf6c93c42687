"""One partition that this broker leads: its log, its queue of appends, and the fetches that wait for it.

An append that must not run on the loop, such as recompressing, is queued with its partition (`Partition.append_queue`).
While the queue is not empty, later appends of clients join it, so that batches reach the log in the order in which they
arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from duralog.broker.net.background import Background
from duralog.broker.net.log_lines import error_text, logger, one_line
from duralog.format.varint import Bytes
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.log.partition_log import AppendResult, PartitionLog

NO_TOPIC_ID = bytes(16)


class Waiting(Protocol):
    """A fetch that waits for records of partitions."""

    def wake(self, partition: Partition) -> None:
        """The partition has changed, or is gone. Called within an append, so it must be quick."""


class Partition:
    """One partition and the fetches that wait for it."""

    __slots__ = ("append_queue", "is_gone", "log", "number", "topic", "topic_id", "waiting")

    def __init__(self, log: PartitionLog, topic_id: bytes) -> None:
        self.log = log
        self.topic = log.topic
        self.number = log.partition
        self.topic_id = topic_id
        """All zeros for a topic that has none."""
        self.is_gone = False
        """Whether the store has another log of this name now, or none."""
        self.waiting: dict[Waiting, None] = {}
        self.append_queue: deque[Callable[[], bool]] = deque()
        """Callables that start an append on a worker thread, or run what must come after one. The first one is in
        progress. Each returns whether it is finished at once."""

    def append(
        self,
        batches: Bytes,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        is_quick: bool = False,
    ) -> AppendResult:
        """Append whole batches, stamped in place if the bytes can be written to."""
        result = self.log.append_batches(
            batches, origin=origin, transaction_version=transaction_version, is_quick=is_quick
        )
        if self.waiting:
            self.wake()
        return result

    def append_queued(
        self,
        background: Background,
        append: Callable[[], AppendResult],
        then: Callable[[AppendResult | None, Exception | None], None],
        *,
        memory_bytes: int,
    ) -> None:
        """Run an append on a worker thread, after those that are queued here. `then` runs on the loop.

        `memory_bytes` is what the append holds until it is done.
        """

        def finish(result: AppendResult | None, error: Exception | None) -> None:
            self.append_queue.popleft()
            try:
                self._run_queue()
                if error is None:
                    self.wake()
            finally:
                # Even if the others fail: the client of this one waits for its answer.
                then(result, error)

        def start() -> bool:
            background.run(append, finish, reserved_bytes=memory_bytes)
            return False

        background.reserve(memory_bytes)
        self._enqueue(start)

    def after_appends(self, work: Callable[[], None]) -> None:
        """Run it on the loop after the appends that are queued now, and before later ones."""

        def start() -> bool:
            try:
                work()
            except Exception as error:
                # The rest of the queue must not wait for it.
                logger.error("%s", one_line(f"after appends to {self.topic}-{self.number}: {error_text(error)}"))
            return True

        self._enqueue(start)

    def _enqueue(self, start: Callable[[], bool]) -> None:
        self.append_queue.append(start)
        if len(self.append_queue) == 1:
            self._run_queue()

    def _run_queue(self) -> None:
        """Start what is first in the queue, and what follows as long as there is nothing to wait for."""
        while self.append_queue and self.append_queue[0]():
            self.append_queue.popleft()

    def wake(self) -> None:
        for waiting in tuple(self.waiting):
            waiting.wake(self)
