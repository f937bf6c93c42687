"""The `.snapshot` files of a partition's producer state: listing, writing, removing and loading them.

A snapshot is named after its offset: the base offset of a segment when the log rolled, or the end of the log when it
was closed. The state at any offset is the newest snapshot that is not above it, plus the batches from there on.

Snapshots are written in place. A crash may leave an incomplete one: its checksum is wrong, and an older one is used
instead. A write that fails removes what it has written. Losing all of them only costs a scan of the log.

The snapshot of a roll is planned under the lock of the log and written on another thread after that: with many
producers it takes long, and appends must not wait for it. What must always be true: while a planned snapshot is
written, the log is not truncated (`truncate_to` waits for it), and a snapshot whose segment is deleted meanwhile is
removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import Lock, RLock

from duralog.errors import CorruptRecord, StorageError
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.format.varint import Bytes
from duralog.storage.append.producer_state import DEFAULT_EXPIRATION_MS, MOST_PRODUCERS, FrozenProducers, ProducerState
from duralog.storage.disk.file_system import FileSystem

_MOST_PLANNED_PRODUCERS = 2 * MOST_PRODUCERS
"""In all planned snapshots of a log. If rolls are faster than writing, the oldest planned snapshot is dropped."""


class ProducerSnapshots:
    """The snapshot files of one folder, which is listed once.

    All methods but `write_planned` require the lock of the log.
    """

    def __init__(self, file_system: FileSystem, folder: str, offsets: Iterable[int] | None = None) -> None:
        """`offsets` are those of the existing snapshots, if the caller has just listed the folder."""
        self._file_system = file_system
        self._folder = folder
        self._offsets = set(_list_offsets(file_system, folder) if offsets is None else offsets)
        self._planned: dict[int, FrozenProducers] = {}
        self._writing = RLock()
        """Held while planned snapshots are written."""
        self._guard = Lock()
        """Guards the two collections, for short. Taken after `_writing`."""

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all snapshots, in order."""
        with self._guard:
            return tuple(sorted(self._offsets))

    @property
    def latest_offset(self) -> int | None:
        return max(self.offsets, default=None)

    def path(self, offset: int, state: FileState = FileState.LIVE) -> str:
        return f"{self._folder}/{SegmentFile(offset, FileKind.PRODUCER_SNAPSHOT, state).name}"

    def plan(self, state: ProducerState, *, log_start_offset: int) -> None:
        """Plan a snapshot for `write_planned`, if the state is newer than the newest snapshot and the start of the log.

        This does no I/O, and takes about a millisecond for a hundred thousand producers.
        """
        with self._guard:
            if state.end_offset <= max((*self._offsets, *self._planned), default=log_start_offset):
                return
            self._planned[state.end_offset] = state.frozen()
            while len(self._planned) > 1 and self._planned_producers() > _MOST_PLANNED_PRODUCERS:
                del self._planned[min(self._planned)]

    def write_planned(self) -> bool:
        """Write and sync the planned snapshots. Returns whether there were any. A snapshot that fails is dropped."""
        found = False
        with self._writing:
            while (planned := self._next_planned()) is not None:
                found = True
                path = self.path(planned.end_offset)
                try:
                    self._write(path, planned.snapshot(), sync=True)
                except BaseException:
                    self._settle(planned, is_written=False)
                    raise
                if not self._settle(planned, is_written=True):
                    self._file_system.remove(path)
        return found

    def _write(self, path: str, data: Bytes, *, sync: bool) -> None:
        try:
            self._file_system.write(path, data, sync=sync)
        except StorageError:
            with suppress(StorageError):
                self._file_system.remove(path)
            raise

    def _next_planned(self) -> FrozenProducers | None:
        with self._guard:
            return self._planned[min(self._planned)] if self._planned else None

    def _settle(self, planned: FrozenProducers, *, is_written: bool) -> bool:
        """Whether the snapshot is still wanted after it was written."""
        offset = planned.end_offset
        with self._guard:
            is_wanted = self._planned.get(offset) is planned
            if is_wanted:
                del self._planned[offset]
                if is_written:
                    self._offsets.add(offset)
            return is_wanted

    def _planned_producers(self) -> int:
        return sum(len(planned.producers) for planned in self._planned.values())

    def take(self, state: ProducerState, *, sync: bool, log_start_offset: int = 0) -> bool:
        """Write the state if it is newer than the newest snapshot and the start of the log. Returns whether it was.

        Planned snapshots are written first.
        """
        with self._writing:
            is_new = self.write_planned()
            if state.end_offset <= max(self._offsets, default=log_start_offset):
                return is_new
            self._write(self.path(state.end_offset), state.snapshot(), sync=sync)
            self._offsets.add(state.end_offset)
            return True

    def load(
        self,
        log_start_offset: int,
        end_offset: int,
        *,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> ProducerState:
        """The state of the newest snapshot within the log: above its start, not above its end.

        Without a snapshot, the state is empty and starts at the start of the log. A damaged snapshot is removed, and
        the one before it is tried, as for one that is gone. The caller has to replay the batches from the state's
        `end_offset` on.
        """
        self.write_planned()
        for offset in reversed(self.offsets):
            if not log_start_offset < offset <= end_offset:
                continue
            try:
                return ProducerState.from_snapshot(
                    self._file_system.read_all(self.path(offset)), offset, now_ms=now_ms, expiration_ms=expiration_ms
                )
            except CorruptRecord:
                self.remove(offset)
            except StorageError as error:
                # Whoever writes to a live directory removes old snapshots while others read it.
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return ProducerState(end_offset=log_start_offset, expiration_ms=expiration_ms)

    def remove(self, offset: int) -> None:
        self._file_system.remove(self.path(offset))
        with self._guard:
            self._offsets.discard(offset)

    def remove_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Remove the snapshots that are not above the log's start, or above its end."""
        self.write_planned()
        for offset in self.offsets:
            if not log_start_offset < offset <= end_offset:
                self.remove(offset)

    def remove_all(self) -> None:
        for offset in self.offsets:
            self.remove(offset)

    def remove_stray(self, base_offsets: Iterable[int]) -> None:
        """Remove snapshots without a segment, left by a crash. The newest stays if it is not below the last segment."""
        bases = set(base_offsets)
        stray = [offset for offset in self.offsets if offset not in bases]
        if stray and bases and stray[-1] < max(bases):
            self.remove(stray[-1])
        for offset in stray[:-1]:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the snapshot of a segment that is being deleted. Returns the path to remove later, if there is one."""
        with self._guard:
            self._planned.pop(offset, None)
            if offset not in self._offsets:
                return None
        path = self.path(offset, FileState.DELETED)
        self._file_system.rename(self.path(offset), path)
        with self._guard:
            self._offsets.discard(offset)
        return path


def _list_offsets(file_system: FileSystem, folder: str) -> Iterator[int]:
    for entry in file_system.list(folder):
        file = parse_segment_file(entry.name)
        if file is not None and file.kind is FileKind.PRODUCER_SNAPSHOT and file.state is FileState.LIVE:
            yield file.offset
