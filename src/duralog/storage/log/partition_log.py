"""The log of one partition: append, read, look up, roll, flush, delete. Kafka's `UnifiedLog`.

This is the object that users of a store work with. It is thread-safe: writers share one lock
(`duralog.storage.log.writer`), readers take none (`duralog.storage.log.view`). There is only one replica, so the high
watermark is the end of the log.

A log that was opened read-only refuses all changes, and so does one that was closed or that a disk error has left in
doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from duralog.config import TopicConfig
from duralog.errors import CompactionStopped, OffsetOutOfRange, StorageError
from duralog.format.checkpoints import EpochStart
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec
from duralog.format.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from duralog.format.producer_snapshot import ProducerEntry
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.format.varint import Bytes
from duralog.storage.append.batch_admission import Stamp, TakesLong
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.plain_admission import admit_plain
from duralog.storage.append.record_append import SendingProducer, batches_of_records, batches_of_table, marker_batch
from duralog.storage.append.validation import validate
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.copying import append_copied, change_over, complete, copy_new, end_copy, is_beginning
from duralog.storage.log.leader_epochs import LeaderEpochs
from duralog.storage.log.loaded_log import LoadedLog, LogEnvironment
from duralog.storage.log.readable_log import ReadableLog
from duralog.storage.log.reading import FetchedSlice
from duralog.storage.log.segment_swap import swap_in
from duralog.storage.log.time_lookup import EARLIEST, LATEST, MAX_TIMESTAMP
from duralog.storage.log.trimming import delete_segments, raise_start_offset, start_at, truncate_to
from duralog.storage.log.view import LogView, SegmentInfo
from duralog.storage.log.writer import AppendResult, LogWriter, OnExpired
from duralog.storage.segment.lookup import TimestampedOffset
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.source import SegmentSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AppendOrigin",
    "AppendResult",
    "FetchedSlice",
    "LoadedLog",
    "LogEnvironment",
    "PartitionLog",
    "SegmentInfo",
    "TimestampedOffset",
]

_CLIENT = AppendOrigin.CLIENT


def _ignore(_offset: int) -> None:
    pass


class PartitionLog(ReadableLog):
    """The log of one partition."""

    def __init__(
        self,
        loaded: LoadedLog,
        *,
        topic: str,
        partition: int,
        config: TopicConfig,
        environment: LogEnvironment,
        read_only: bool = False,
        leader_epoch: int = 0,
    ) -> None:
        """New batches get `leader_epoch`, unless the log has a later one."""
        super().__init__(topic, partition)
        self._compacting = Lock()
        self._writer = LogWriter(
            loaded, config=config, environment=environment, read_only=read_only, leader_epoch=leader_epoch
        )
        self.before_cut: Callable[[int], None] = _ignore
        """Called under the lock, before `truncate_to`, with the base offset of the first segment that changes."""

    # What it is

    def __repr__(self) -> str:
        if self.is_inherited:
            return f"<PartitionLog {self.topic}-{self.partition} of process {self._writer.process.id}>"
        return super().__repr__()

    @property
    def view(self) -> LogView:
        writer = self._writer
        if writer.is_inherited:
            writer.process.check(writer.folder)
        return writer.view

    @property
    def folder(self) -> str:
        return self._writer.folder

    @property
    def config(self) -> TopicConfig:
        return self._writer.config

    @property
    def on_expired(self) -> OnExpired | None:
        """Called once when records are appended that have expired already."""
        return self._writer.on_expired

    @on_expired.setter
    def on_expired(self, report: OnExpired) -> None:
        self._writer.on_expired = report

    def update_config(self, config: TopicConfig) -> None:
        """Use other configs from now on. Existing segments keep their index sizes."""
        with self._writer.lock:
            self._writer.follow(config)

    @property
    def read_only(self) -> bool:
        return self._writer.read_only

    @property
    def in_doubt(self) -> bool:
        """A disk error has left the log in an unknown state: it must be recovered, and is never closed cleanly."""
        return self._writer.in_doubt

    @property
    def is_inherited(self) -> bool:
        """This process is a forked child of the one that opened the log: it can neither read nor write it."""
        return self._writer.is_inherited

    @property
    def has_left_files(self) -> bool:
        """Renaming files of deleted segments has failed: the next start finds them below the log's start."""
        return self._writer.has_left_files

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is durable."""
        return self._writer.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self._writer.last_flush_ms

    @property
    def appended_bytes(self) -> int:
        """Since it was opened."""
        return self._writer.appended_bytes

    @property
    def leader_epochs(self) -> LeaderEpochs:
        return self._writer.epochs

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of new batches."""
        writer = self._writer
        return max(writer.leader_epoch, writer.epochs.latest_epoch) if writer.read_only else writer.leader_epoch

    # Appending

    def append(
        self,
        records: Iterable[Record],
        *,
        codec: str | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> AppendResult:
        """Append the records, all or none. The log gives them offsets, and timestamps if they have none.

        `codec` is used if the topic has `compression.type=producer`. With a producer id, duplicates are recognised by
        their sequence numbers, and the records may be part of a transaction.
        """
        records = records if isinstance(records, list | tuple) else list(records)
        chosen = None if codec is None else Codec.named(codec)
        producer = SendingProducer(producer_id, producer_epoch, base_sequence, is_transactional)
        writer = self._writer
        with writer.lock:
            writer.check_writable()
            if not records:
                return self._nothing()
            stamp = writer.stamp()
            batches = batches_of_records(records, config=writer.config, stamp=stamp, codec=chosen, producer=producer)
            return writer.append(batches)

    def append_arrow(self, table: pa.Table | pa.RecordBatch, codec: str | None = None) -> AppendResult:
        """Append the rows of a table, all or none: `value`, and `key`, `timestamp` and `headers` if it has them."""
        chosen = None if codec is None else Codec.named(codec)
        writer = self._writer
        with writer.lock:
            writer.check_writable()
            if not table.num_rows:
                return self._nothing()
            stamp = writer.stamp()
            batches = batches_of_table(table, config=writer.config, stamp=stamp, codec=chosen)
            return writer.append(batches)

    def append_batches(
        self,
        data: Bytes,
        *,
        origin: AppendOrigin = _CLIENT,
        transaction_version: int = 0,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        is_quick: bool = False,
    ) -> AppendResult:
        """Append encoded batches of a client. They are checked, and get their offsets in place if `data` is writable.

        With `AppendOrigin.AS_IS` they keep their bytes, including offsets: for copies of other logs. The same holds for
        `AppendOrigin.RESTORED`, except for a leader epoch of -1. With `is_quick`, a batch that takes long to check, or
        that has to wait for another thread, raises `TakesLong`, and is neither written nor changed.
        """
        writer = self._writer
        lock = writer.lock
        # Another thread may wait for the disk while it holds the lock.
        if not lock.acquire(not is_quick):
            raise TakesLong("another thread changes the log")
        try:
            if writer.refusal is not None:
                writer.check_writable()
            next_offset, leader_epoch, now_ms = writer.view.end_offset, writer.leader_epoch, writer.clock()
            batches = None
            if origin is _CLIENT:
                batches = admit_plain(data, writer.plain_rules, next_offset, leader_epoch, now_ms)
            if batches is None:
                batches = validate(
                    data,
                    config=writer.config,
                    stamp=Stamp(next_offset, leader_epoch, now_ms),
                    origin=origin,
                    max_decompressed_bytes=max_decompressed_bytes,
                    is_quick=is_quick,
                )
            return writer.append(batches, origin=origin, transaction_version=transaction_version)
        finally:
            lock.release()

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Write the marker that commits or aborts a transaction."""
        marker = marker_batch(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._writer.clock(),
        )
        return self.append_batches(marker, origin=AppendOrigin.COORDINATOR, transaction_version=transaction_version)

    def become_leader(self, epoch: int) -> None:
        """Use this leader epoch for new batches from now on."""
        writer = self._writer
        with writer.lock:
            writer.check_writable()
            writer.epochs.assign(epoch, writer.view.end_offset)
            writer.leader_epoch = epoch

    def _nothing(self) -> AppendResult:
        end_offset = self._writer.view.end_offset
        return AppendResult(end_offset, end_offset - 1, NO_TIMESTAMP)

    # Rolling, flushing, deleting

    def roll(self) -> None:
        """Start a new segment, unless the active one is empty."""
        with self._writer.lock:
            self._writer.check_writable()
            self._writer.roll(self._writer.view.end_offset)

    def flush(self, end_offset: int | None = None) -> None:
        """Return when all records, or those below the offset, would survive a loss of power."""
        if not self.read_only:
            self._writer.check_writable()
            self._writer.flush(end_offset)

    def delete_records(self, before_offset: int) -> int:
        """Raise the start of the log to this offset, or to its end for -1. Returns the new start.

        Records below can no longer be read. The next retention deletes their segments. This works for compacted topics,
        too: only Kafka's DeleteRecords request refuses them.
        """
        writer = self._writer
        with writer.lock:
            writer.check_writable()
            end_offset = writer.view.end_offset
            offset = end_offset if before_offset == LATEST else before_offset
            if not 0 <= offset <= end_offset:
                raise OffsetOutOfRange(f"offset {before_offset} is not within the log, which ends at {end_offset}")
            raise_start_offset(writer, offset)
            return writer.view.start_offset

    def start_at(self, offset: int) -> None:
        """Let an empty log start at this offset, before records are restored from there on."""
        with self._writer.lock:
            self._writer.check_writable()
            start_at(self._writer, offset)

    def writers_waiting(self) -> AbstractContextManager[object]:
        """The lock of the log: no other thread changes the log while it is held."""
        return self._writer.lock

    def delete_segments(self, base_offsets: Iterable[int], reason: str) -> int:
        """Delete segments by their base offsets. Returns the number. Readers of a deleted segment read on."""
        with self._writer.lock:
            self._writer.check_writable()
            return delete_segments(self._writer, base_offsets, reason)

    @contextmanager
    def being_compacted(self) -> Iterator[FileSystem]:
        """Start a compaction, one at a time: its files have fixed names. Yields the file system to write them to."""
        writer = self._writer
        writer.check_writable()
        if not self._compacting.acquire(blocking=False):
            raise CompactionStopped(f"{self.folder}: the log is being compacted already")
        try:
            yield writer.file_system
        except StorageError as error:
            if writer.refusal is None or writer.in_doubt:
                raise
            raise CompactionStopped(f"{self.folder}: {writer.refusal}") from error
        finally:
            self._compacting.release()

    def swap_in(self, old: Sequence[SegmentSource], new: Segment, check: Callable[[], None]) -> None:
        """Replace segments by the one that they were compacted to. `check` may raise to stop that."""
        with self._writer.lock:
            self._writer.check_writable()
            swap_in(self._writer, old, new, check)

    def copy_new(self, copy: PartitionLog, on_bytes: Callable[[int], None]) -> None:
        """Append to a copy what it does not have yet. `on_bytes` is called with each piece, and may raise to stop."""
        copy_new(self.view, copy._writer, on_bytes)

    def append_copied(self, batches: Bytes, segment_base: int) -> None:
        """Append batches of another log as they are. `segment_base` is the base offset of their segment there."""
        append_copied(self._writer, batches, segment_base)

    def end_copy(self, start_offset: int, end_offset: int, epochs: Sequence[EpochStart]) -> None:
        """After the last batch of another log: let this one start and end where that does, and have its history."""
        self._writer.check_writable()
        end_copy(self._writer, start_offset, end_offset, epochs)

    def has_beginning(self, copy: PartitionLog) -> bool:
        """Whether this log begins with the files of a copy, so that what is missing can be appended to it."""
        return is_beginning(copy.view, self.view)

    def complete(self, copy: PartitionLog) -> None:
        """Give a copy the rest of what this log has, and close it durably. REQUIRES: `writers_waiting` is held."""
        self._writer.check_writable()
        complete(self._writer, copy._writer)

    def change_over(self, old_folder: str, rename: Callable[[], None], load: Callable[[], PartitionLog]) -> None:
        """Rename the folder with `rename`, and continue in the files of another log with the same records.

        Readers of the old files read on. These are removed after `file.delete.delay.ms`, with their folder.
        REQUIRES: `writers_waiting` is held.
        """
        change_over(self._writer, old_folder, rename, lambda: load()._writer)

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch that holds the offset, and all after it."""
        with self._writer.lock:
            self._writer.check_writable()
            segment = self.view.segments.floor(offset)
            if segment is not None and offset < self.end_offset:
                self.before_cut(segment.base_offset)
            truncate_to(self._writer, offset)

    def producers(self) -> list[ProducerEntry]:
        """The state of all producers with an id."""
        with self._writer.lock:
            producers = self._writer.producers.frozen()
        return producers.entries()

    def producer(self, producer_id: int) -> ProducerEntry | None:
        """The state of one producer; None if it is unknown."""
        with self._writer.lock:
            return self._writer.producers.entry(producer_id)

    def keep_producers_for(self, expiration_ms: int) -> None:
        """Set the time after which an idle producer expires."""
        with self._writer.lock:
            self._writer.producers.expiration_ms = expiration_ms

    def expire_producers(self) -> int:
        """Remove producers that have been idle for too long. Returns the number."""
        writer = self._writer
        with writer.lock:
            producers, expiration_ms = writer.producers.frozen(), writer.producers.expiration_ms
        expired = producers.expired(writer.clock(), expiration_ms)
        if not expired:
            return 0
        with writer.lock:
            return writer.producers.forget(expired)

    def disown(self, reason: str) -> None:
        """Write nothing from now on, because another process may. The log stays readable."""
        self._writer.disown(reason)

    def close(self) -> None:
        """Sync and close the files. What readers hold stays readable.

        In a forked child of the process that opened the log, nothing is written.
        """
        if self.is_inherited:
            self._writer.close()
            return
        with self._writer.lock:
            self._writer.close()


Logs = Callable[[], Mapping[TopicPartition, PartitionLog]]
"""Returns the logs that are open now."""
