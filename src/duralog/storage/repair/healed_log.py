"""Heals a log from other copies: removes damage and adds missing batches, byte for byte.

    heal_log(fs, folder, healed, clock=clock, before_change=...)

Segments that are right are not touched. Of the others, new ones are written, from ranges of their own old log and of
logs of other copies, complete and on disk before they get their final names (`segment_rewrite`). So a crash leaves each
segment either old or new, and the next heal continues.

What must always be true:
- Bytes that leave the log are in quarantine first. Batches that another copy has in the same way are not bytes that
  leave: they stay where they are.
- A log that has diverged is truncated before it is filled, and its leader epochs with it, as Kafka does. Otherwise a
  broker that starts in between would take its old batches for those of the new epochs.
- From the first changed offset on, indexes and producer snapshots are built again: they may not know of what was
  missing.

REQUIRES: no process has the partition open, and the directory does not count as closed cleanly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duralog.errors import CorruptRecord, Fault
from duralog.format.checkpoints import EpochStart, encode_leader_epoch_checkpoint
from duralog.format.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    FileState,
    SegmentFile,
    parse_segment_file,
)
from duralog.format.properties import encode_partition_metadata
from duralog.storage.disk.background import Clock
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.recovery.leftovers import INDEX_KINDS, settle_leftovers
from duralog.storage.recovery.quarantine import Quarantine
from duralog.storage.recovery.segment_rewrite import BeforeChange, NewSegment, rewrite_segment
from duralog.storage.segment.damage import Damage

_KAFKA = "a follower truncates what its leader does not have, and fetches what it lacks"
_BUILT_AGAIN = (FileKind.PRODUCER_SNAPSHOT, FileKind.OFFSET_INDEX)


class Dropped(NamedTuple):
    """A range of a log file that does not stay in the log."""

    base_offset: int
    """Of its segment."""
    start: int
    end: int
    reason: str
    offset_before: int
    """The last offset that stays before it; -1 for none."""
    offset_after: int
    """The first offset that stays after it in its segment; -1 for none."""


class Truncation(NamedTuple):
    """Where a log that has diverged ends before it is filled again."""

    offset: int
    base_offset: int
    """Of the segment that is cut. Those after it are removed."""
    position: int


class Replacement(NamedTuple):
    """New segments that take the place of some, or of none."""

    new: Sequence[NewSegment]
    modified_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealedLog:
    """The changes of a log."""

    dropped: Sequence[Dropped]
    replaced: Sequence[Replacement]
    """By rising offsets."""
    removed: Sequence[int]
    """The base offsets of removed segments that no new one covers. All of their bytes are dropped."""
    truncated: Truncation | None
    """Of a log that has diverged."""
    first_changed: int
    """The base offset of the first segment that changes."""
    epochs: tuple[EpochStart, ...]
    """The history of the log, as it is afterwards."""
    topic_id: str | None = None


def heal_log(fs: FileSystem, folder: str, healed: HealedLog, *, clock: Clock, before_change: BeforeChange) -> None:
    """Change the files. Afterwards the log must be loaded: segments have no offset index from the first change on."""
    fs.make_folder(folder)
    fs.sync_folder(os.path.dirname(folder))
    settle_leftovers(fs, folder)
    quarantine = Quarantine(fs, folder, clock)
    before_change(healed.first_changed)
    whole = _whole_logs(fs, folder, healed)
    for gone in healed.dropped:
        if gone.base_offset not in whole:
            _keep(fs, folder, quarantine, gone)
    by_base = {gone.base_offset: gone for gone in healed.dropped if gone.base_offset in whole}
    for base_offset in sorted(healed.removed, reverse=True):
        _remove(fs, folder, quarantine, base_offset, by_base.get(base_offset))
    if healed.truncated is not None:
        _truncate(fs, folder, healed.truncated)
    if healed.truncated is not None or healed.removed:
        # Before the batches of later epochs come: until then, the log is one that a follower has truncated.
        end = healed.first_changed if healed.truncated is None else healed.truncated.offset
        _write_epochs(fs, folder, [entry for entry in healed.epochs if entry.start_offset < end])
    _distrust(fs, folder, healed.first_changed)
    for replacement in healed.replaced:
        rewrite_segment(
            fs,
            folder,
            replacement.new[0].base_offset,
            replacement.new,
            modified_ms=replacement.modified_ms,
        )
    _write_epochs(fs, folder, healed.epochs)
    if healed.topic_id is not None and not fs.exists(os.path.join(folder, PARTITION_METADATA)):
        fs.replace(os.path.join(folder, PARTITION_METADATA), encode_partition_metadata(healed.topic_id))


def _whole_logs(fs: FileSystem, folder: str, healed: HealedLog) -> set[int]:
    """Segments that go as a whole: their files are moved to quarantine, and not copied."""
    removed = set(healed.removed)
    return {
        gone.base_offset
        for gone in healed.dropped
        if gone.base_offset in removed
        and gone.start == 0
        and (entry := fs.entry(_path(folder, gone.base_offset, FileKind.LOG))) is not None
        and entry.size == gone.end
    }


def _keep(fs: FileSystem, folder: str, quarantine: Quarantine, gone: Dropped) -> None:
    file = fs.open(_path(folder, gone.base_offset, FileKind.LOG))
    try:
        quarantine.keep_range(
            file,
            Damage(gone.start, gone.end, _reason(gone)),
            base_offset=gone.base_offset,
            offset_before=gone.offset_before,
            offset_after=gone.offset_after,
            kafka=_KAFKA,
        )
    finally:
        file.close()


def _remove(fs: FileSystem, folder: str, quarantine: Quarantine, base_offset: int, gone: Dropped | None) -> None:
    if gone is not None and gone.end:
        quarantine.keep_log(
            _path(folder, base_offset, FileKind.LOG),
            base_offset=base_offset,
            size_bytes=gone.end,
            reason=_reason(gone),
            offset_before=gone.offset_before,
            offset_after=gone.offset_after,
            kafka=_KAFKA,
        )
    # The log last: an index without its log is removed at the next start.
    for kind in (*INDEX_KINDS, FileKind.PRODUCER_SNAPSHOT, FileKind.LOG):
        fs.remove(_path(folder, base_offset, kind))
    fs.sync_folder(folder)


def _truncate(fs: FileSystem, folder: str, truncated: Truncation) -> None:
    for kind in INDEX_KINDS:
        fs.remove(_path(folder, truncated.base_offset, kind))
    fs.sync_folder(folder)
    file = fs.open(_path(folder, truncated.base_offset, FileKind.LOG), writable=True)
    file.truncate(truncated.position)
    file.sync()
    file.close()


def _distrust(fs: FileSystem, folder: str, first_changed: int) -> None:
    for entry in fs.list(folder):
        known = None if entry.is_folder else parse_segment_file(entry.name)
        if known is None or known.state is not FileState.LIVE:
            continue
        if known.kind in _BUILT_AGAIN and known.offset > first_changed:
            fs.remove(os.path.join(folder, known.name))
    fs.sync_folder(folder)


def _write_epochs(fs: FileSystem, folder: str, epochs: Sequence[EpochStart]) -> None:
    fs.replace(os.path.join(folder, LEADER_EPOCH_CHECKPOINT), encode_leader_epoch_checkpoint(epochs))


def _path(folder: str, base_offset: int, kind: FileKind) -> str:
    return os.path.join(folder, SegmentFile(base_offset, kind).name)


def _reason(gone: Dropped) -> CorruptRecord:
    return CorruptRecord(
        gone.reason, fault=Fault.FIELD_VALUE, expected="the batches of the other copies", found="others"
    )
