"""Loads a partition's folder after a clean stop or a crash.

After a clean stop hardly anything is read: names and sizes from the folder, the end of the last segment, the newest
producer snapshot. After a crash, every segment from the recovery point on is checked batch by batch, its indexes are
rebuilt, and damage is taken out (`duralog.storage.recovery.segment_repair`).

What must always be true:
- The next start repeats work that a crash interrupted, with the same result.
- Every batch that is served afterwards is valid and in order, as `duralog.storage.segment.damage` defines it.
- A read-only log is loaded in memory (`duralog.storage.disk.shadow`), and damage is left for readers to report: they
  must not wait until a whole log is checked. But segments without an index are scanned, since there is no other way to
  know which transactions were aborted. Open transactions and leader epochs are found when they are first needed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from threading import Lock
from typing import TypeVar

from duralog.columnar.pieces import Piece
from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, Fault, StorageError
from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, FileState, SegmentFile, parse_segment_file
from duralog.format.layout import NO_TIMESTAMP
from duralog.storage.append.producer_state import DEFAULT_EXPIRATION_MS, ProducerState
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import Entry, FileSystem
from duralog.storage.disk.shadow import ShadowFileSystem
from duralog.storage.log.leader_epochs import LeaderEpochs, with_observed
from duralog.storage.log.loaded_log import LoadedLog
from duralog.storage.log.rolling import LAST_OFFSET
from duralog.storage.recovery.leftovers import settle_leftovers
from duralog.storage.recovery.producer_recovery import ProducerRecovery
from duralog.storage.recovery.quarantine import Quarantine
from duralog.storage.recovery.segment_repair import ExpectedLog, SegmentRepair
from duralog.storage.recovery.segment_rewrite import BeforeChange, never_compacted
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import Listed, SegmentFiles, segment_options
from duralog.storage.segment.segments import Segments

OnBytes = Callable[[int], None]
"""Called with the number of bytes that were checked since the last call."""

_log = logging.getLogger(__name__)

_READ_ONLY_ATTEMPTS = 5

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options for loading a log, and what its checkpoints say."""

    config: TopicConfig
    clean: bool
    """The directory was closed cleanly, so nothing has to be checked."""
    clock: Clock
    recovery_point: int = 0
    """The partition's offset in `recovery-point-offset-checkpoint`, or 0."""
    log_start_checkpoint: int = 0
    """The partition's offset in `log-start-offset-checkpoint`, or 0."""
    read_only: bool = False
    before_change: BeforeChange = never_compacted
    on_bytes: OnBytes | None = None
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS


def load_partition(fs: FileSystem, folder: str, options: LoadOptions) -> LoadedLog:
    """Load the log of a folder. Kafka's `LogLoader`."""
    attempts = _READ_ONLY_ATTEMPTS if options.read_only else 1
    while True:
        attempts -= 1
        try:
            return _Loader(ShadowFileSystem(fs) if options.read_only else fs, folder, options).load()
        except (StorageError, CorruptRecord) as error:
            # The process that writes to the directory may have removed or cut a file since it was listed: list again.
            is_lost = isinstance(error, StorageError) or error.fault is Fault.PARTIAL_BATCH
            if not attempts or not is_lost:
                raise


class _Loader:
    """Loads one folder, once."""

    def __init__(self, fs: FileSystem, folder: str, options: LoadOptions) -> None:
        config, recovery_point = options.config, options.recovery_point
        self._fs = fs
        self._folder = folder
        self._options = segment_options(config)
        self._clean = options.clean
        self._recovery_point = recovery_point
        self._log_start = options.log_start_checkpoint
        self._now_ms = options.clock()
        self._read_only = options.read_only
        self._on_bytes = options.on_bytes
        self._segments: list[Segment] = []
        self._suspect: set[int] = set()
        """The base offsets of segments that must be recovered in any case."""
        self._rewritten: set[int] = set()
        """Segments that batches were taken out of, so missing offsets are expected."""
        snapshots = self._open_segments(settle_leftovers(fs, folder))
        self._producers = ProducerRecovery(
            fs, folder, snapshots, now_ms=self._now_ms, expiration_ms=options.producer_expiration_ms
        )
        if not self._read_only:
            self._epochs = self._open_epochs()
        self._repair = SegmentRepair(
            fs,
            folder,
            self._segments,
            open_segment=self._open_rewritten,
            before_change=options.before_change,
            quarantine=Quarantine(fs, folder, options.clock),
            expected=ExpectedLog(
                start_offset=self._log_start,
                is_preallocated=config.preallocate,
                # Without a checkpoint it may be any log, and gaps in it may be what compaction has left.
                dense_from=recovery_point if recovery_point > 0 and "compact" not in config.cleanup_policy else None,
            ),
        )

    def load(self) -> LoadedLog:
        if self._segments:
            self._recover()
        if self._segments and self._segments[-1].next_offset() < self._log_start:
            self._start_empty()
        if not self._segments:
            self._segments.append(self._create(self._log_start))
        end_offset = self._segments[-1].next_offset()
        if end_offset > LAST_OFFSET + 1 and not self._read_only:
            raise _no_offset_left(self._segments[-1], end_offset - 1)
        start_offset = max(self._log_start, self._segments[0].base_offset)
        # Another process may use a read-only directory: then the first snapshot comes with the first roll.
        is_as_closed = self._clean and not self._suspect and not self._read_only
        segments = Segments(self._segments)

        def finish_producers() -> ProducerState:
            self._producers.finish(segments, start_offset, end_offset, is_as_closed=is_as_closed)
            return self._producers.state

        def finish_epochs() -> LeaderEpochs:
            self._epochs.truncate_from_end(end_offset)
            self._epochs.truncate_from_start(self._log_start)
            return self._epochs

        read_producers, read_epochs = _once(finish_producers), _once(finish_epochs)
        if not self._read_only:
            read_epochs()
            read_producers()
        recovery_point = end_offset if self._clean else min(self._recovery_point, end_offset)
        return LoadedLog(
            folder=self._folder,
            segments=segments,
            log_start_offset=start_offset,
            end_offset=end_offset,
            recovery_point=recovery_point,
            read_producers=read_producers,
            producer_snapshots=self._producers.snapshots,
            read_leader_epochs=read_epochs,
        )

    def _open_segments(self, listing: Iterable[Entry]) -> set[int]:
        """Create the segments of a listing without opening files, and note which of them must be recovered.

        Returns the offsets of the producer snapshots in it.
        """
        logs: dict[int, Entry] = {}
        present: dict[FileKind, set[int]] = {kind: set() for kind in FileKind}
        for entry in listing:
            file = None if entry.is_folder else parse_segment_file(entry.name)
            if file is not None and file.state is FileState.LIVE:
                present[file.kind].add(file.offset)
                if file.kind is FileKind.LOG:
                    logs[file.offset] = entry
        active = max(logs, default=None)
        for base_offset in sorted(logs):
            has_transactions = base_offset in present[FileKind.TRANSACTION_INDEX]
            segment = self._segment(
                base_offset,
                logs[base_offset].size,
                logs[base_offset].modified_ms,
                # A read-only inactive segment gets no new transactions: the file need not be checked again.
                may_have_transactions=has_transactions or not self._read_only or base_offset == active,
                listed=_listed(logs[base_offset], is_active=base_offset == active) if self._read_only else None,
            )
            self._segments.append(segment)
            if base_offset not in present[FileKind.OFFSET_INDEX]:
                self._suspect.add(base_offset)
            elif has_transactions:
                try:
                    segment.transaction_index.check()
                except CorruptRecord as error:
                    _log.warning("%s; the index is rebuilt", error)
                    self._suspect.add(base_offset)
        return present[FileKind.PRODUCER_SNAPSHOT]

    def _segment(
        self,
        base_offset: int,
        size_bytes: int,
        modified_ms: int | None = None,
        *,
        may_have_transactions: bool = True,
        listed: Listed | None = None,
    ) -> Segment:
        return Segment(
            SegmentFiles(self._fs, self._folder, base_offset, read_only=self._read_only, listed=listed),
            size_bytes=size_bytes,
            created_ms=self._now_ms,
            options=self._options,
            modified_ms=modified_ms if self._read_only else None,
            has_transaction_index=may_have_transactions,
        )

    def _open_rewritten(self, base_offset: int, size_bytes: int) -> Segment:
        self._suspect.add(base_offset)
        self._rewritten.add(base_offset)
        return self._segment(base_offset, size_bytes)

    def _create(self, base_offset: int) -> Segment:
        if self._read_only:
            self._fs.write(f"{self._folder}/{SegmentFile(base_offset, FileKind.LOG).name}", b"", sync=False)
            return self._segment(base_offset, 0)
        return Segment.create(self._fs, self._folder, base_offset, created_ms=self._now_ms, options=self._options)

    def _recover(self) -> None:
        """Recover what a crash may have damaged, the oldest segment first."""
        unclean_from: int | None = None
        if self._clean:
            self._check_tail()
        elif not self._read_only:
            bases = [segment.base_offset for segment in self._segments]
            first = max(0, bisect_right(bases, self._recovery_point) - 1)
            unclean_from = bases[first]
            if first and unclean_from == self._recovery_point:
                if _is_complete(self._segments[first - 1]):
                    # The process that completed it may have died before it synced it.
                    self._segments[first - 1].flush(again=True)
                else:
                    self._suspect.add(bases[first - 1])
            # Snapshots from there on may include batches that never reached the disk.
            self._producers.snapshots.remove_outside(self._log_start, unclean_from)
        place = 0
        while place < len(self._segments):
            base_offset = self._segments[place].base_offset
            is_unclean = unclean_from is not None and base_offset >= unclean_from
            is_trusted = not is_unclean and base_offset not in self._suspect
            if is_trusted or self._recover_segment(place, ends_log=is_unclean):
                place += 1

    def _check_tail(self) -> None:
        """Find the end of a log that was closed cleanly. If it is damaged, recover the last segment."""
        try:
            self._segments[-1].next_offset()
        except CorruptRecord as error:
            if self._read_only and error.fault is Fault.PARTIAL_BATCH:
                raise
            _log.warning("%s; the log was closed cleanly, but its last segment is checked again", error)
            self._suspect.add(self._segments[-1].base_offset)

    def _recover_segment(self, place: int, *, ends_log: bool) -> bool:
        """Check a segment and rebuild its indexes. False if it was rewritten, and must be recovered again."""
        segment = self._segments[place]
        self._producers.bring_to(self._segments, segment.base_offset, self._log_start)
        epochs = self._epochs.entries
        # Below the recovery point, the next start trusts a segment with an offset index. So that file is written last,
        # after the damage was taken out and everything else is durable.
        becomes_trusted = not ends_log and not self._read_only
        if becomes_trusted:
            segment.offset_index.withhold()
            self._fs.sync_folder(self._folder)

        def take_in(piece: Piece) -> None:
            nonlocal epochs
            epochs = with_observed(epochs, piece.batches)
            if self._on_bytes is not None:
                self._on_bytes(int(piece.batches["size"].sum()))
            segment.transaction_index.add(self._producers.replay(piece))

        recovered = segment.recover(take_in)
        if self._read_only:
            self._epochs.take_over(epochs)
            if not recovered.cut_bytes:
                self._producers.is_ready_for(self._following(place))
            return True
        if not self._repair.is_sound(place, recovered) and not self._repair.repair(place, recovered, ends_log=ends_log):
            self._producers.reset_snapshots()
            if becomes_trusted:
                self._fs.remove(segment.offset_index.path)
            return False
        self._epochs.take_over(epochs)
        if ends_log and segment.base_offset not in self._rewritten:
            self._repair.end_at_gap(place, recovered.next_offset)
        self._producers.is_ready_for(self._following(place))
        if becomes_trusted:
            segment.flush()
            self._fs.sync_folder(self._folder)
            segment.offset_index.release()
            self._fs.sync_folder(self._folder)
        return True

    def _following(self, place: int) -> Segment | None:
        return self._segments[place + 1] if place + 1 < len(self._segments) else None

    def _start_empty(self) -> None:
        """Replace a log that ends before its start by an empty one."""
        # The segments last: while there is one, the next start repeats this.
        self._producers.snapshots.remove_all()
        self._epochs.clear()
        if self._read_only:
            self._segments.clear()
        else:
            self._repair.remove_all()

    @cached_property
    def _epochs(self) -> LeaderEpochs:
        """Of a read-only log, when they are first needed, which may be never. Others set it before they recover."""
        return self._open_epochs()

    def _open_epochs(self) -> LeaderEpochs:
        path = f"{self._folder}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            epochs = LeaderEpochs.open(self._fs, path)
        except CorruptRecord as error:
            _log.warning("%s; the leader epochs are rebuilt from the log", error)
            epochs = LeaderEpochs.rebuild(
                self._fs,
                path,
                (
                    piece.batches[piece.batches["crc_ok"] == 1]
                    for segment in self._segments
                    for piece in segment.batches_from(0)
                ),
            )
        epochs.create_file()
        return epochs


def _once(read: Callable[[], _Read]) -> Callable[[], _Read]:
    """What `read` returned at the first call. Any thread may call."""
    reading = Lock()
    kept = cache(read)

    def read_or_wait() -> _Read:
        with reading:
            return kept()

    return read_or_wait


def _listed(entry: Entry, *, is_active: bool) -> Listed:
    return Listed(entry.file_id, None if is_active else entry.size)


def _no_offset_left(segment: Segment, last_offset: int) -> CorruptRecord:
    last = segment.find_batch(last_offset)
    return CorruptRecord(
        "a batch has the largest possible offset: nothing can be appended after it",
        fault=Fault.FIELD_VALUE,
        file=segment.path(FileKind.LOG),
        position=None if last is None else last.position,
        expected=f"at most offset {LAST_OFFSET}",
        found=f"offset {last_offset}",
    )


def _is_complete(segment: Segment) -> bool:
    """Whether the log ends with a batch, and the time index has the segment's largest timestamp.

    Records that were synced before their segment was rolled are below the recovery point. But the roll writes the last
    index entries and cuts off preallocated space, and a crash may lose that.
    """
    last = segment.time_index.last
    try:
        begin = None if last is None else segment.find_batch(last.offset)
    except CorruptRecord:
        return False
    found = NO_TIMESTAMP
    for piece in segment.batches_from(0 if begin is None else begin.position, check_crc=False):
        if piece.fault is not None or piece.tail_bytes:
            return False
        if len(piece.batches):
            found = max(found, int(piece.batches["max_timestamp"].max()))
    return found == (NO_TIMESTAMP if last is None else last.timestamp_ms)
