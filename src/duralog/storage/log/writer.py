"""The writing side of a log: appending, rolling, flushing, and publishing views for readers.

All of it runs under one lock. Readers take no lock, they hold a `LogView`. Only `flush` waits for the disk without the
lock, so that appends continue during a flush in the background.

What must always be true:
- A view is published after its bytes are written.
- An append is all or nothing. After a failed append the log is as before, and accepts the next one.
- A process writes only while its lock keeps others out. A forked child never writes, nor does a process whose lock file
  was removed: there, closing a log only closes its files.
- A flush that cannot open a file for lack of descriptors is done again by the next one.
- After a failed fsync it is unknown what is on disk, and a second fsync would not report it. So the log accepts no more
  appends until it is opened again, which checks the files. Kafka takes the whole directory offline
  (`LogDirFailureChannel`); so does a store of several directories, and one of a single directory only this log.

If the machine dies, everything below the recovery point is durable. What follows may be damaged: opening the log again
cuts it after the last valid batch.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property, partial
from threading import Lock, RLock
from time import perf_counter
from typing import NamedTuple

from duralog.config import TopicConfig
from duralog.errors import InvalidRecord, RecordTooLarge, StorageError
from duralog.format.filenames import FileKind, SegmentFile
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.plain_admission import plain_rules
from duralog.storage.append.producer_batch import reader_of
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.append.validation import ValidBatches
from duralog.storage.disk import forks
from duralog.storage.disk.file_system import LockLost
from duralog.storage.log.abort_markers import AbortMarkers
from duralog.storage.log.leader_epochs import LeaderEpochs
from duralog.storage.log.loaded_log import LoadedLog, LogEnvironment
from duralog.storage.log.retention import DELETE
from duralog.storage.log.rolling import (
    LAST_OFFSET,
    NO_FREE_RANGE,
    Arrival,
    choose_jitter_ms,
    free_range,
    roll_reason,
)
from duralog.storage.log.view import LogView, unsettled_view
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import segment_options
from duralog.storage.segment.segments import Segments

OnExpired = Callable[[int, int], None]
"""Called with the largest timestamp of the records and the `retention.ms` of the topic."""

_INT32_MAX = 2**31 - 1
_log = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """The offsets of appended records."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The log append time, if the topic uses it; otherwise -1."""
    duplicate: bool = False
    """The producer sent the batch before: nothing was written, and the offsets are those of the first time."""


# Like `_make` of both, but twice as fast.
_as_result: Callable[[tuple[object, ...]], AppendResult] = partial(tuple.__new__, AppendResult)
_as_view: Callable[[tuple[object, ...]], LogView] = partial(tuple.__new__, LogView)


class LogWriter:
    def __init__(
        self,
        loaded: LoadedLog,
        *,
        config: TopicConfig,
        environment: LogEnvironment,
        read_only: bool,
        leader_epoch: int,
    ) -> None:
        self.lock: forks.HeldLock = RLock()
        self.config = config
        self.plain_rules = plain_rules(config)
        self.clock = environment.clock
        self.run_later = environment.run_later
        self.folder = loaded.folder
        self.file_system = environment.file_system
        self.read_only = read_only
        self._read_producers = loaded.read_producers
        self.snapshots = loaded.producer_snapshots
        self._read_epochs = loaded.read_leader_epochs
        self.leader_epoch = leader_epoch if read_only else max(self.epochs.latest_epoch, leader_epoch)
        self.recovery_point = loaded.recovery_point
        self.last_flush_ms = self.clock()
        self._flush_times = environment.flush_times
        self._on_failure = environment.on_failure
        self.appended_bytes = 0
        """Since the log was opened."""
        self.refusal: str | None = "it was opened for reading" if read_only else None
        """Why nothing can be written; None if it can."""
        self.in_doubt = False
        """It is unknown what is on disk."""
        self._check_directory_lock = loaded.check_lock
        self.is_disowned = False
        """Another process may write to the files."""
        self.is_inherited = False
        """This process is a forked child of the one that opened the log."""
        self.process = forks.here
        self._random_below = environment.random_below
        self._jitter_ms = choose_jitter_ms(config, self._random_below)
        self._free_range = NO_FREE_RANGE
        self.abort_markers = AbortMarkers(None if read_only else loaded.end_offset)
        """From the current end on, this process writes the transaction indexes of a writable log."""
        self.on_expired: OnExpired | None = None
        self.view: LogView
        self.flushing: AbstractContextManager[object] = Lock()
        """Held while the recovery point moves. Taken after `lock` by a thread that needs both."""
        self._rolled: list[Segment] = []
        """Rolled segments whose indexes are not synced yet, even if they are below the recovery point."""
        self.has_new_names = True
        """Files were created, renamed or removed since the folder was last synced."""
        self.has_left_files = False
        """Files of deleted segments may have kept their names: only the log's start offset excludes them."""
        self.publish(loaded.segments, loaded.log_start_offset, loaded.end_offset)
        forks.belongs_here(self)

    def on_fork(self) -> None:
        self.lock = self.flushing = forks.RefusingLock(self.folder, self.process)
        self.refusal = self.process.refusal
        self.in_doubt = self.is_disowned = self.is_inherited = True

    def disown(self, reason: str) -> None:
        """Change no file from now on: another process may write to them. The log stays readable."""
        self.refusal = reason
        self.in_doubt = self.is_disowned = True
        for segment in self.view.segments:
            segment.disown()

    def adopt(self, other: LogWriter) -> None:
        """Continue in the files of another log that has the same records and is no longer used.

        REQUIRES: the lock and `flushing` are held.
        """
        view = self.view
        self.folder = other.folder
        self.snapshots, self.epochs, self.abort_markers = other.snapshots, other.epochs, other.abort_markers
        self._read_producers = other._read_producers
        self._check_directory_lock = other._check_directory_lock
        self.recovery_point = other.recovery_point
        self._rolled = []
        self.has_new_names, self.has_left_files = True, False
        self.follow(self.config)
        self.publish(other.view.segments, view.start_offset, view.end_offset)

    def _check_lock(self) -> None:
        try:
            self._check_directory_lock()
        except LockLost as error:
            self.disown(str(error))
            raise

    def follow(self, config: TopicConfig) -> None:
        """Use these configs from now on, and check the active segment against them."""
        self.config = config
        self.plain_rules = plain_rules(config)
        self._free_range = NO_FREE_RANGE

    @cached_property
    def producers(self) -> ProducerState:
        return self._read_producers()

    @cached_property
    def epochs(self) -> LeaderEpochs:
        return self._read_epochs()

    def publish(self, segments: Segments, start_offset: int, end_offset: int) -> None:
        """Publish a new view for readers."""
        if self.read_only:
            self.view = unsettled_view(segments, start_offset, end_offset, self.abort_markers, self._read_producers)
            return
        stable = self.producers.last_stable_offset(end_offset, start_offset)
        size_bytes = segments.active.size_bytes
        self.view = _as_view((segments, start_offset, end_offset, size_bytes, stable, self.abort_markers))

    def check_writable(self) -> None:
        if self.refusal is not None:
            raise StorageError(f"{self.folder}: cannot write to the log: {self.refusal}")

    def fail(self, error: BaseException) -> None:
        """Accept no more appends: it is unknown what is on disk."""
        self.in_doubt = True
        if self.refusal is None:
            self.refusal = f"it must be opened again after this: {error}"
            _log.error("%s: the log accepts no more appends until it is opened again: %s", self.folder, error)
            if self._on_failure is not None:
                self._on_failure(self.folder, error)

    def stamp(self) -> Stamp:
        """The stamp of the next batches."""
        if self.view.end_offset > LAST_OFFSET:
            raise InvalidRecord(f"{self.folder}: there are no offsets left: the log ends at {self.view.end_offset}")
        return Stamp(self.view.end_offset, self.leader_epoch, self.clock())

    # Appending. REQUIRES of all below: the lock is held, and `check_writable` was called.

    def append(
        self, batches: ValidBatches, *, origin: AppendOrigin = AppendOrigin.CLIENT, transaction_version: int = 0
    ) -> AppendResult:
        _, _, producer_batches, base_offset, last_offset, max_timestamp_ms, append_time_ms, size_bytes, rows = batches
        config = self.config
        if size_bytes > config.segment_bytes:
            raise RecordTooLarge(
                f"an append of {size_bytes} bytes does not fit a segment: segment.bytes is {config.segment_bytes}"
            )
        if producer_batches and origin is not AppendOrigin.AS_IS and origin is not AppendOrigin.RESTORED:
            for batch in producer_batches:
                written = self.producers.check(batch, origin=origin, transaction_version=transaction_version)
                if written is not None:
                    return AppendResult(written.base_offset, written.last_offset, written.timestamp_ms, True)
        end_position, latest_ms, highest_offset = self._free_range
        if (
            self.view.end_position + size_bytes > end_position
            or max_timestamp_ms > latest_ms
            or last_offset > highest_offset
        ):
            self._roll_if_due(batches)
        if rows is not None:
            self.epochs.observe(rows)
        elif self.epochs.latest_epoch != self.leader_epoch:
            self.epochs.assign(self.leader_epoch, base_offset)
        self._write(batches)
        if self.on_expired is not None:
            self._report_expired(max_timestamp_ms)
        if last_offset + 1 - self.recovery_point >= config.flush_messages:
            try:
                self.flush()
            except StorageError as error:
                # Also without a failed fsync: the retry of an idempotent producer is not appended, so not flushed.
                self.fail(error)
                raise
        return _as_result((base_offset, last_offset, append_time_ms, False))

    def _report_expired(self, timestamp_ms: int) -> None:
        """Report once that records were appended which retention will delete when it next runs."""
        config = self.config
        limit, report = config.retention_ms, self.on_expired
        has_expired = 0 <= timestamp_ms < self.clock() - limit and limit >= 0 and DELETE in config.cleanup_policy
        if has_expired and report is not None:
            self.on_expired = None
            report(timestamp_ms, limit)

    def _write(self, batches: ValidBatches) -> None:
        view = self.view
        segment = view.segments.active
        size_bytes = segment.size_bytes
        if batches.producer_batches and any(map(self.producers.aborts, batches.producer_batches)):
            # Before anything is written: what cannot be opened then needs no undoing, which would open files, too.
            segment.transaction_index.prepare()
            self.has_new_names = True
        try:
            segment.append(batches.buffers, batches.extents)
            if batches.producer_batches:
                producers = self.producers
                for transaction in producers.update(batches.producer_batches, batches.last_offset + 1):
                    segment.transaction_index.append(transaction)
                    self.has_new_names = True
                if producers.evicted:
                    self._log_evicted(producers)
            self.publish(view.segments, view.start_offset, batches.last_offset + 1)
            self.appended_bytes += batches.size_bytes
        except BaseException:
            if self.view is view and segment.file.size != size_bytes:
                self._undo_append(segment, size_bytes)
            raise

    def _log_evicted(self, producers: ProducerState) -> None:
        _log.warning(
            "%s: evicted the %d producer ids that have been idle for longest: a partition remembers at most %d",
            self.folder,
            producers.evicted,
            producers.most_producers,
        )
        producers.evicted = 0

    def _undo_append(self, segment: Segment, size_bytes: int) -> None:
        """Undo an append that failed half-way."""
        try:
            segment.truncate_to(self.view.end_offset)
            segment.cut(size_bytes)
            self.rebuild_producers()
        except BaseException as error:
            self.fail(error)

    def rebuild_producers(self) -> None:
        """Rebuild the producer state from the newest snapshot and the batches after it."""
        view = self.view
        state = self.snapshots.load(
            view.start_offset, view.end_offset, now_ms=self.clock(), expiration_ms=self.producers.expiration_ms
        )
        for segment, end in view.segments_from(state.end_offset):
            first = segment.find_batch(state.end_offset, end)
            for piece in () if first is None else segment.batches_from(first.position, end=end):
                state.replay(piece.batches, reader_of(piece))
        self.producers = state

    # Rolling

    def _roll_if_due(self, batches: ValidBatches) -> None:
        if batches.last_offset > LAST_OFFSET:
            raise InvalidRecord(f"{self.folder}: there are no offsets left: {batches.last_offset} would be the last")
        active = self.view.segments.active
        arrival = Arrival(batches.size_bytes, batches.max_timestamp_ms, batches.last_offset, self.clock())
        if roll_reason(active, arrival, self.config, self._jitter_ms) is not None:
            base_offset = self.view.end_offset
            # Only if it cannot start at the end of the log: recovery treats a gap between two segments as a loss.
            if batches.last_offset - base_offset > _INT32_MAX:
                # The first offset of a compressed message is not known; it is above this one.
                first = batches.last_offset - _INT32_MAX if batches.base_offset < 0 else batches.base_offset
                base_offset = max(first, base_offset)
            self.roll(base_offset)
        else:
            self._free_range = free_range(active, self.config, self._jitter_ms)

    def roll(self, base_offset: int) -> None:
        """Start a new segment at this offset, unless the active one is empty and starts there."""
        view = self.view
        active = view.segments.active
        if active.size_bytes == 0 and active.base_offset == base_offset:
            return
        self._check_lock()
        self.producers.update((), base_offset)
        self.snapshots.plan(self.producers, log_start_offset=view.start_offset)
        self.has_new_names = True
        # Before the new one exists: readers, and recovery after a crash, treat all segments but the last as complete.
        active.on_roll()
        try:
            segment = Segment.create(
                self.file_system,
                self.folder,
                base_offset,
                created_ms=self.clock(),
                options=segment_options(self.config),
            )
        except BaseException as error:
            # With a new segment on disk, the next start would treat further appends to the old one as misplaced.
            if self.file_system.exists(f"{self.folder}/{SegmentFile(base_offset, FileKind.LOG).name}"):
                self.fail(error)
            raise
        self._rolled.append(active)
        self._jitter_ms = choose_jitter_ms(self.config, self._random_below)
        self._free_range = NO_FREE_RANGE
        self.publish(view.segments.added(segment), view.start_offset, view.end_offset)
        self.run_later(0, f"flush {self.folder} after a roll", lambda: self.flush_rolled(base_offset))

    # Flushing: any thread, without the lock.

    def flush(self, end_offset: int | None = None) -> None:
        """Return when all records, or those below the offset, are durable."""
        with self.flushing:
            view = self.view
            end = view.end_offset if end_offset is None else min(end_offset, view.end_offset)
            rolled = [segment for segment in list(self._rolled) if segment in view.segments]
            if self.in_doubt:
                # Also for a thread that waited here while the sync of another one failed: its records are not synced.
                self.check_writable()
            if self.refusal is not None or (end <= self.recovery_point and not rolled):
                return
            self._check_lock()
            following = view.segments.from_floor(self.recovery_point)
            segments = rolled + [found for found in following if found.base_offset < end and found not in rolled]
            flushed: Segment | None = None
            started = perf_counter()
            try:
                for flushed in segments:
                    flushed.flush()
                flushed = None
                if self.has_new_names or any(found.base_offset >= self.recovery_point for found in segments):
                    self._sync_names()
            except StorageError as error:
                # A segment that was deleted meanwhile does not matter. A file that could not be opened was not synced:
                # the next flush does it.
                if not _lacks_descriptors(error) and (flushed is None or flushed in self.view.segments):
                    self.fail(error)
                raise
            for segment in list(self._rolled):
                if segment in rolled or segment not in view.segments:
                    self._rolled.remove(segment)
            self.recovery_point = max(self.recovery_point, end)
            self.last_flush_ms = self.clock()
            self._flush_times.add(perf_counter() - started)

    def _sync_names(self) -> None:
        """Return when the names in the folder are durable."""
        try:
            # Cleared first: a concurrent change sets it again.
            self.has_new_names = False
            self.file_system.sync_folder(self.folder)
        except BaseException:
            self.has_new_names = True
            raise

    def flush_rolled(self, base_offset: int) -> None:
        """Finish a roll in the background: write the producer snapshot, then flush."""
        if self.refusal is not None:
            return  # Closing has done it, and the folder may be gone; or it is unknown what is on disk.
        try:
            if self.snapshots.write_planned():
                self.has_new_names = True
        except StorageError as error:
            # It would only make the next start faster.
            _log.warning("%s", error)
        self.flush(base_offset)

    def close(self) -> None:
        """Cut the files to their final sizes, sync and close them. REQUIRES: the lock is held.

        If that fails, the log is closed and `in_doubt`. In a forked child no lock is needed.
        """
        view = self.view
        failure: StorageError | None = None
        if self.refusal is None:
            try:
                self._finish(view)
            except StorageError as error:
                failure = error
                self.fail(error)
        self.refusal = self.refusal or "it was closed"
        for segment in view.segments:
            try:
                if self.is_disowned:
                    segment.let_go_unfinished()
                else:
                    segment.close()
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _finish(self, view: LogView) -> None:
        self._check_lock()
        view.segments.active.on_roll()
        self.flush()
        view.segments.active.flush()
        self.producers.update((), view.end_offset)
        is_new = self.snapshots.take(self.producers, sync=True, log_start_offset=view.start_offset)
        if is_new or self.has_new_names:
            # After a clean stop, a log without a snapshot counts as one without idempotent producers.
            self._sync_names()


def _lacks_descriptors(error: StorageError) -> bool:
    """Whether a file could not be opened, since the process or the machine has too many open files."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE)
