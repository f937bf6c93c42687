"""The start offset of each leader epoch: the `leader-epoch-checkpoint` of a partition. Kafka's `LeaderEpochFileCache`.

Every batch has the epoch of its leader; this is a summary, with one entry per epoch. From it, a replica or a client
learns where an epoch ended, to detect that a log was truncated.

What must always be true: epochs and start offsets both rise from entry to entry. The file is replaced atomically, and
only when an entry has changed. A damaged file raises `CorruptRecord` when it is opened; nothing is lost with it, since
it can be rebuilt from the batches (`LeaderEpochs.observe`).

The entries are a tuple that is replaced: readers need no lock, writers need that of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.errors import CorruptRecord
from duralog.format.checkpoints import EpochStart, decode_leader_epoch_checkpoint, encode_leader_epoch_checkpoint
from duralog.format.layout import NO_LEADER_EPOCH
from duralog.storage.disk.file_system import FileSystem

UNDEFINED_OFFSET = -1


def epochs_in(data: bytes, path: str) -> Sequence[EpochStart]:
    """The checked entries of a `leader-epoch-checkpoint`. `path` is for errors."""
    try:
        entries = decode_leader_epoch_checkpoint(data)
    except CorruptRecord as error:
        raise error.in_file(path) from None
    previous = EpochStart(-1, -1)
    for entry in entries:
        if entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset:
            raise CorruptRecord(
                "leader epochs and their offsets do not rise",
                file=path,
                expected=f"above epoch {previous.epoch} and offset {previous.start_offset}",
                found=f"epoch {entry.epoch} from offset {entry.start_offset} on",
            )
        previous = entry
    return entries


class LeaderEpochs:
    """The leader epochs of one partition, and the file that keeps them."""

    def __init__(self, file_system: FileSystem, path: str, entries: Iterable[EpochStart] = ()) -> None:
        """REQUIRES: the entries are those of the file, or the next change writes the file."""
        self._file_system = file_system
        self._path = path
        self._entries = tuple(entries)

    @classmethod
    def open(cls, file_system: FileSystem, path: str) -> LeaderEpochs:
        """The entries of the file; none if it does not exist. The file is not changed."""
        if not file_system.exists(path):
            return cls(file_system, path)
        return cls(file_system, path, epochs_in(file_system.read_all(path), path))

    @classmethod
    def rebuild(cls, file_system: FileSystem, path: str, runs: Iterable[NDArray[Any]]) -> LeaderEpochs:
        """Rebuild the entries from all batches of a log, then replace the damaged file."""
        entries: tuple[EpochStart, ...] = ()
        for rows in runs:
            entries = with_observed(entries, rows)
        file_system.replace(path, encode_leader_epoch_checkpoint(entries))
        return cls(file_system, path, entries)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return self._entries

    @property
    def latest_epoch(self) -> int:
        """-1 if no epoch is known."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def create_file(self) -> None:
        """Create an empty file if there is none, as in a new partition of Kafka."""
        if not self._file_system.exists(self._path):
            self._file_system.write(self._path, b"", sync=False)

    def assign(self, epoch: int, start_offset: int) -> None:
        """The leader of this epoch writes from this offset on. Later entries that contradict it are dropped."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset} on: neither may be negative")
        if self._entries:
            latest = self._entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return
        self._replace(_with(self._entries, epoch, start_offset))

    def observe(self, rows: NDArray[Any]) -> None:
        """Add the epochs of batches in the log, in their order (`BATCH_DTYPE`). The file is written once at the end.

        Only epochs above the latest one count, so known batches change nothing.
        """
        self._replace(with_observed(self._entries, rows))

    def take_over(self, entries: tuple[EpochStart, ...]) -> None:
        """Replace the entries. REQUIRES: epochs and offsets rise."""
        self._replace(entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """The largest epoch up to this one that wrote anything, and its end offset.

        Both are -1 for an unknown epoch: -1, or one above the latest.
        """
        entries = self._entries
        if epoch == NO_LEADER_EPOCH or not entries or epoch > entries[-1].epoch:
            return EpochStart(NO_LEADER_EPOCH, UNDEFINED_OFFSET)
        if epoch == entries[-1].epoch:
            return EpochStart(epoch, log_end_offset)
        following = bisect_right(entries, epoch, key=_epoch)
        found = entries[following - 1].epoch if following else epoch
        return EpochStart(found, entries[following].start_offset)

    def epoch_for(self, offset: int) -> int:
        """The epoch of this offset; -1 if it is before the first known epoch."""
        following = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[following - 1].epoch if following else NO_LEADER_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts here now: the epoch of this offset starts here too, and those before it are dropped."""
        following = bisect_right(self._entries, start_offset, key=_start_offset)
        if following:
            first = EpochStart(self._entries[following - 1].epoch, start_offset)
            self._replace((first, *self._entries[following:]))

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends here now: epochs that start at or after it are dropped."""
        self._replace(tuple(entry for entry in self._entries if entry.start_offset < end_offset))

    def clear(self) -> None:
        self._replace(())

    def _replace(self, entries: tuple[EpochStart, ...]) -> None:
        if entries == self._entries:
            return
        self._file_system.replace(self._path, encode_leader_epoch_checkpoint(entries))
        self._entries = entries


def with_observed(entries: tuple[EpochStart, ...], rows: NDArray[Any]) -> tuple[EpochStart, ...]:
    """The entries, plus the epochs of these batches that are above the latest one."""
    latest = entries[-1].epoch if entries else NO_LEADER_EPOCH
    epochs = rows["leader_epoch"]
    if not len(epochs) or epochs.max() <= latest:
        return entries
    highest = np.maximum.accumulate(epochs)
    begins = np.flatnonzero(np.diff(highest, prepend=latest) > 0)
    for row in begins[highest[begins] > latest].tolist():
        entries = _with(entries, int(epochs[row]), int(rows["base_offset"][row]))
    return entries


def _with(entries: tuple[EpochStart, ...], epoch: int, start_offset: int) -> tuple[EpochStart, ...]:
    kept = len(entries)
    while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
        kept -= 1
    return (*entries[:kept], EpochStart(epoch, start_offset))


def _epoch(entry: EpochStart) -> int:
    return entry.epoch


def _start_offset(entry: EpochStart) -> int:
    return entry.start_offset
