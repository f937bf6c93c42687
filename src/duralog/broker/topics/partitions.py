"""The partitions that this broker leads: found by name or id, appended to, watched by fetches that wait for records.

Every append of the broker goes through here, be it a producer's batch, a coordinator's record or a marker, and wakes
the fetches that wait for that partition and no others. All of it runs on the loop's thread. A `Partition` is dropped as
soon as the store has another set of logs, and made again when it is next asked for: a topic that was deleted and
created again is another partition, and fetches that waited for the old one are woken.

A partition of a topic that clients see may be without its log, because the disk failed while it was created. It is
offline then. A request for it lets the store try again on a worker thread, at most once in a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from duralog.broker.runtime import Runtime
from duralog.broker.topics.partition import NO_TOPIC_ID, Partition
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import UNKNOWN_TOPIC_OR_PARTITION, code_of
from duralog.errors import DuralogError, StorageError, UnknownTopic
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import uuid_bytes
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.log.partition_log import AppendResult, PartitionLog
from duralog.storage.metadata.folder import METADATA_PARTITION

RETRY_MS = 1_000
"""The time between two attempts of the store to create a missing log."""


class Partitions:
    """All partitions that this broker leads."""

    def __init__(self, runtime: Runtime, topics: Topics) -> None:
        self.log_lines = runtime.log_lines
        self._runtime = runtime
        self._topics = topics
        self._store = runtime.store
        self._clock = runtime.clock
        self._logs = runtime.store.logs
        self._known: dict[tuple[str, int], Partition] = {}
        self._names: dict[bytes, str] | None = None
        self._tried: set[str] = set()
        """The topics whose missing logs are being created, or could not be created within the last second."""
        topics.on_deleted(lambda _: self.refresh())

    def get(self, topic: str, number: int) -> Partition | None:
        """None if there is no such partition, or if it is offline (see `is_offline`)."""
        self.refresh_if_changed()
        found = self._known.get((topic, number))
        return found if found is not None else self._find(topic, number)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id, which has 16 bytes; None if there is none."""
        self.refresh_if_changed()
        if self._names is None:
            # A worker thread may delete a topic between the two.
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

        Records without a timestamp get the current time. All of them are in the log or none, also after a crash.

        It is done on the loop, with the flush that `flush.messages` may ask for. What follows (the answer, or the
        markers of a transaction whose decision this is) must not reach the disk or a client before it: so it cannot be
        left to a worker thread while the coordinator continues.
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
        partition = self._existing(topic, number)
        with self._disk_errors_logged():
            return partition.append(bytearray(batch), origin=AppendOrigin.COORDINATOR)

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
        with self._disk_errors_logged():
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
        """The error code for a client, on any thread. Errors of the disk are logged as well.

        A log that is closed because its topic was deleted meanwhile is not an error of the disk.
        """
        if self._store.logs.get(TopicPartition(log.topic, log.partition)) is not log:
            return UNKNOWN_TOPIC_OR_PARTITION
        self.log_lines.log_disk_error(error)
        return code_of(error)

    def refresh_if_changed(self) -> None:
        """After this, `Partition.is_gone` is right for every partition."""
        if self._store.logs is not self._logs:
            self.refresh()

    def refresh(self) -> None:
        """Drop partitions that are gone, and wake the fetches that wait for them.

        The next request for any partition does the same. This is for not waiting until then.
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
    def _disk_errors_logged(self) -> Iterator[None]:
        """Log disk errors of a coordinator's append: its clients only get an error that makes them retry."""
        try:
            yield
        except StorageError as error:
            self.log_lines.log_disk_error(error)
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
            return None  # The controller's partition is hidden from clients.
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
        """Whether its creation was left unfinished. Clients see no topic that is being created or deleted."""
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
                self.log_lines.warn("log not made", f"the logs of {topic} cannot be created yet: {error}")
            self._runtime.timers.after(RETRY_MS, lambda: self._tried.discard(topic))

        self._topics.change(lambda: self._store.partition(topic, number), then)
