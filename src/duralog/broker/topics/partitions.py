"""The partitions as this broker leads them: found by name or id, appended to, watched by those who wait for records.

Every append of the broker goes through here, be it a producer's batch, a coordinator's record or a marker: so whoever
waits for records of a partition is told, and nobody else. All of it runs on the loop's thread. What is known of a
partition is thrown away as soon as the store has another set of logs, and found again when it is next asked for: a
topic that was deleted and made again is another partition, and those who waited for the old one are told too.

A partition of a topic that clients see may be without its log: the disk failed while it was made. It is offline then,
and whoever asks for it lets the store try again beside the loop, but not sooner than a second after the last time.

Work that must not run on the loop (compressing anew) waits in the partition's own line (`Partition.in_line`): as long
as anything is in it, later appends of clients queue behind, so that batches reach the log in the order they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from duralog.broker.net.background import Background
from duralog.broker.net.log_lines import error_text, logger, one_line
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION, code_of
from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.format.record import Record
from duralog.format.uuids import uuid_bytes
from duralog.format.varint import Bytes
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.log.partition_log import AppendResult, PartitionLog
from duralog.storage.metadata.folder import METADATA_PARTITION

NO_TOPIC_ID = bytes(16)
RETRY_MS = 1_000
"""How long the store is left alone after it could not make a log."""


class Waiting(Protocol):
    """Who waits for records of partitions."""

    def wake(self, partition: Partition) -> None:
        """The partition has changed, or is gone. Called within an append: it must not do much."""


class Partition:
    """One partition and those who wait for it."""

    __slots__ = ("in_line", "is_gone", "log", "number", "topic", "topic_id", "waiting")

    def __init__(self, log: PartitionLog, topic_id: bytes) -> None:
        self.log = log
        self.topic = log.topic
        self.number = log.partition
        self.topic_id = topic_id
        """All zeros for a topic that has none."""
        self.is_gone = False
        """Whether the store has another log of this name by now, or none."""
        self.waiting: dict[Waiting, None] = {}
        self.in_line: deque[Callable[[], bool]] = deque()
        """The starts of appends that run beside the loop, and of what must come after them, one after the other. The
        first one is running. A start tells whether all is done with it."""

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
            self.in_line.popleft()
            try:
                self._run_line()
                if error is None:
                    self.wake()
            finally:
                # Whatever becomes of the others, this one's client waits for its answer.
                then(result, error)

        def start() -> bool:
            background.run(append, finish, reserved_bytes=memory_bytes)
            return False

        background.reserve(memory_bytes)
        self._put_in_line(start)

    def after_line(self, work: Callable[[], None]) -> None:
        """Run it on the loop after the appends that wait here now, and before those that come after it."""

        def start() -> bool:
            try:
                work()
            except Exception as error:
                # It must not keep the others in the line waiting.
                logger.error("%s", one_line(f"in line for {self.topic}-{self.number}: {error_text(error)}"))
            return True

        self._put_in_line(start)

    def _put_in_line(self, start: Callable[[], bool]) -> None:
        self.in_line.append(start)
        if len(self.in_line) == 1:
            self._run_line()

    def _run_line(self) -> None:
        """Start what is first in line, and what follows it as long as there is nothing to wait for."""
        while self.in_line and self.in_line[0]():
            self.in_line.popleft()

    def wake(self) -> None:
        for waiting in tuple(self.waiting):
            waiting.wake(self)


class Partitions:
    """All partitions that this broker leads."""

    def __init__(self, runtime: Runtime, topics: Topics) -> None:
        self._runtime = runtime
        self._topics = topics
        self._store = runtime.store
        self._clock = runtime.clock
        self._logs = runtime.store.logs
        self._known: dict[tuple[str, int], Partition] = {}
        self._names: dict[bytes, str] | None = None
        self._tried: set[str] = set()
        """The topics whose missing logs are being made, or could not be made just now."""
        topics.on_deleted(lambda _: self.refresh())

    def get(self, topic: str, number: int) -> Partition | None:
        """None where there is no such partition, or it is offline (`is_offline` tells)."""
        self.refresh_if_changed()
        found = self._known.get((topic, number))
        return found if found is not None else self._find(topic, number)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, which has 16 bytes; None if there is none."""
        self.refresh_if_changed()
        if self._names is None:
            # A topic may be deleted beside the loop between the two.
            known = (self._store.find_topic(name) for name in self._store.topics())
            self._names = {
                uuid_bytes(topic.topic_id): topic.name
                for topic in known
                if topic is not None and topic.topic_id is not None
            }
        return self._names.get(topic_id)

    def is_offline(self, topic: str, number: int) -> bool:
        """Whether the partition exists and cannot be used."""
        partition = TopicPartition(topic, number)
        return partition in self._store.offline or self._has_no_log(partition)

    def append(
        self,
        topic: str,
        number: int,
        batches: Bytes,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append for a coordinator, on the loop with the flush that `flush.messages` may ask for.

        What follows (the answer, or the markers of a transaction whose decision this is) must not reach the disk, or a
        client, before it: so it cannot be left to a worker while the coordinator goes on.
        """
        partition = self._existing(topic, number)
        with self._disk_told_of():
            return partition.append(batches, origin=origin, transaction_version=transaction_version)

    def append_records(
        self,
        topic: str,
        number: int,
        records: Sequence[Record],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        codec: Codec = Codec.NONE,
    ) -> AppendResult:
        """Append a coordinator's records as one batch; those of a producer are part of its transaction.

        Records without a time get that of now. They are there as a whole or not at all, also after a crash.
        """
        now_ms = self._clock()
        timed = [
            record
            if record.timestamp_ms >= 0
            else Record(key=record.key, value=record.value, headers=record.headers, timestamp_ms=now_ms)
            for record in records
        ]
        batch = record_batch.encode(
            timed,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id != NO_PRODUCER_ID,
        )
        return self.append(topic, number, bytearray(batch), origin=AppendOrigin.COORDINATOR)

    def end_transaction(
        self,
        topic: str,
        number: int,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> AppendResult:
        """Write the marker that ends a producer's transaction in this partition."""
        partition = self._existing(topic, number)
        with self._disk_told_of():
            result = partition.log.end_transaction(
                producer_id,
                producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
        partition.wake()
        return result

    def code_of_failure(self, log: PartitionLog, error: DuralogError) -> int:
        """What a client is told of an error of a log, in any thread; the disk's are told in the broker's log, too.

        That a log was closed because its topic is deleted meanwhile is not the disk's fault.
        """
        if self._store.logs.get(TopicPartition(log.topic, log.partition)) is not log:
            return UNKNOWN_TOPIC_OR_PARTITION
        self._runtime.log_lines.tell_disk(error)
        return code_of(error)

    def tell_unreadable(self, error: Exception) -> None:
        """A fetch could not be answered."""
        self._runtime.log_lines.tell_disk(error)

    def refresh_if_changed(self) -> None:
        """After this, `Partition.is_gone` is right for every partition."""
        if self._store.logs is not self._logs:
            self.refresh()

    def refresh(self) -> None:
        """Let go of partitions that are gone. Whoever changes topics may call it, so that those who wait hear at once.

        Nobody has to: the next look at any partition does the same.
        """
        self._logs = logs = self._store.logs
        self._names = None
        gone = [found for key, found in self._known.items() if logs.get(TopicPartition(*key)) is not found.log]
        for partition in gone:
            del self._known[partition.topic, partition.number]
        for partition in gone:
            partition.is_gone = True
            partition.wake()

    @contextmanager
    def _disk_told_of(self) -> Iterator[None]:
        """What a coordinator cannot write shows in the log: its clients are only told to try again."""
        try:
            yield
        except StorageError as error:
            self._runtime.log_lines.tell_disk(error)
            raise

    def _existing(self, topic: str, number: int) -> Partition:
        found = self.get(topic, number)
        if found is None:
            if self.is_offline(topic, number):
                raise StorageError(f"{topic}-{number} is offline")
            raise UnknownTopic(f"there is no partition {number} of {topic}")
        return found

    def _find(self, topic: str, number: int) -> Partition | None:
        if TopicPartition(topic, number) == METADATA_PARTITION:
            return None  # It is the controller's, and no client sees it.
        # Not by `Store.partition`, which waits for changes of topics.
        log = self._store.logs.get(TopicPartition(topic, number))
        known = self._store.find_topic(topic)
        if log is None or known is None:
            if self._has_no_log(TopicPartition(topic, number)):
                self._make_log(topic, number)
            return None
        topic_id = known.topic_id
        found = Partition(log, NO_TOPIC_ID if topic_id is None else uuid_bytes(topic_id))
        self._known[topic, number] = found
        return found

    def _has_no_log(self, partition: TopicPartition) -> bool:
        """Whether the making of it was left half done. Clients see no topic that is being made or deleted."""
        shown = self._topics.by_name(partition.topic)
        return (
            shown is not None
            and partition.partition in shown.partitions
            and partition not in self._store.logs
            and partition not in self._store.offline
        )

    def _make_log(self, topic: str, number: int) -> None:
        if topic in self._tried:
            return
        self._tried.add(topic)

        def then(_: object, error: Exception | None) -> None:
            if error is not None:
                self._runtime.log_lines.warn("log not made", f"the logs of {topic} cannot be made yet: {error}")
            self._runtime.timers.after(RETRY_MS, lambda: self._tried.discard(topic))

        self._topics.change(lambda: self._store.partition(topic, number), then)
