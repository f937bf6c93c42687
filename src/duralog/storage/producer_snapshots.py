"""The `.snapshot` files of a partition: which there are, which may go, and the state that the newest one holds.

A snapshot is named after the offset it was taken at: the base offset of a segment, when the log rolled, or the end of
the log, when it was closed. The state at any offset is the newest snapshot not above it, and the batches from there on.

Snapshots are written in place. A crash may leave half of one; its checksum tells, and it is thrown away for an older
one. Losing all of them costs a scan of the log, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from duralog.errors import CorruptRecord
from duralog.format.filenames import FileKind, FileState, SegmentFile, parse_segment_file
from duralog.storage.file_system import FileSystem
from duralog.storage.producer_state import DEFAULT_EXPIRATION_MS, ProducerState


class ProducerSnapshots:
    """The snapshot files of one folder. What there is is read once; the log's lock is held around every call."""

    def __init__(self, file_system: FileSystem, folder: str, offsets: Iterable[int] | None = None) -> None:
        """`offsets` are those of the snapshots that there are, if the caller has just listed the folder."""
        self._file_system = file_system
        self._folder = folder
        self._offsets = set(_list_offsets(file_system, folder) if offsets is None else offsets)

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of all snapshots, rising."""
        return tuple(sorted(self._offsets))

    @property
    def latest_offset(self) -> int | None:
        return max(self._offsets, default=None)

    def path(self, offset: int, state: FileState = FileState.LIVE) -> str:
        return f"{self._folder}/{SegmentFile(offset, FileKind.PRODUCER_SNAPSHOT, state).name}"

    def take(self, state: ProducerState, *, sync: bool, log_start_offset: int = 0) -> bool:
        """Write the state if it is newer than the newest snapshot and than the log's start. Returns whether it was."""
        if state.end_offset <= max(self._offsets, default=log_start_offset):
            return False
        self._file_system.write(self.path(state.end_offset), state.snapshot(), sync=sync)
        self._offsets.add(state.end_offset)
        return True

    def sync(self, offset: int) -> None:
        """Make sure of a snapshot that was taken without, if it is still there."""
        if offset in self._offsets:
            file = self._file_system.open(self.path(offset), writable=True)
            file.sync()
            file.close()

    def load(
        self,
        log_start_offset: int,
        end_offset: int,
        *,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> ProducerState:
        """The state of the newest snapshot within the log: above its start, not above its end.

        Where there is none, it is that of a log which begins here. A snapshot that is damaged is removed and the one
        before it is tried. Batches from the state's `end_offset` on are still to be replayed.
        """
        for offset in reversed(self.offsets):
            if not log_start_offset < offset <= end_offset:
                continue
            try:
                return ProducerState.from_snapshot(
                    self._file_system.read_all(self.path(offset)), offset, now_ms=now_ms, expiration_ms=expiration_ms
                )
            except CorruptRecord:
                self.remove(offset)
        return ProducerState(end_offset=log_start_offset, expiration_ms=expiration_ms)

    def remove(self, offset: int) -> None:
        self._file_system.remove(self.path(offset))
        self._offsets.discard(offset)

    def remove_outside(self, log_start_offset: int, end_offset: int) -> None:
        """Keep those above the log's start and not above its end."""
        for offset in self.offsets:
            if not log_start_offset < offset <= end_offset:
                self.remove(offset)

    def remove_all(self) -> None:
        for offset in self.offsets:
            self.remove(offset)

    def remove_stray(self, base_offsets: Iterable[int]) -> None:
        """Remove those of no segment, left by a crash. The newest may stay, if it lies at or above the last segment."""
        bases = set(base_offsets)
        stray = [offset for offset in self.offsets if offset not in bases]
        if stray and bases and stray[-1] < max(bases):
            self.remove(stray[-1])
        for offset in stray[:-1]:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the snapshot of a segment that is being deleted. Returns the path to remove later; None if none."""
        if offset not in self._offsets:
            return None
        path = self.path(offset, FileState.DELETED)
        self._file_system.rename(self.path(offset), path)
        self._offsets.discard(offset)
        return path


def _list_offsets(file_system: FileSystem, folder: str) -> Iterator[int]:
    for entry in file_system.list(folder):
        file = parse_segment_file(entry.name)
        if file is not None and file.kind is FileKind.PRODUCER_SNAPSHOT and file.state is FileState.LIVE:
            yield file.offset
