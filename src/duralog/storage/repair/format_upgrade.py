"""Upgrading a log: its messages of format v0 and v1 become record batches of format v2, segment by segment.

    report = upgrade_log(log)

What must always be true:
- Offsets, timestamps, keys and values stay. The digest (`duralog.columnar.record_digest`) of all records of a segment
  is compared with that of the new one, read back from the disk. If they differ, the new one is removed and
  `UpgradeRefused` is raised.
- A segment is replaced as in a compaction (`duralog.storage.log.segment_swap`): complete and on disk, then renamed. If
  the machine dies, each segment is found old or new, and the same upgrade can be repeated. The old files stay, as
  `.deleted`, until `file.delete.delay.ms` has passed.
- Segments without old messages are not touched. One that cannot be read to its end stays as it is: damage is for
  `duralog repair`, and the report says so.
- The time of the files stays: it stands for the time of records that have none.

A segment may grow: a message that shares its batch with no other takes some bytes more. Kafka takes a segment larger
than `segment.bytes`, as long as positions fit 32 bits; one that would not fit stays as it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from duralog.columnar.pieces import read_pieces
from duralog.columnar.record_digest import RecordDigest
from duralog.columnar.upgrading import UpgradeRules, has_legacy, upgrade_piece
from duralog.errors import CorruptRecord, DuralogError, InvalidRecord
from duralog.format.filenames import FileState
from duralog.storage.compaction.cleaned_segment import CleanedSegment
from duralog.storage.compaction.settings import ignore
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.segment.segment import Segment
from duralog.storage.segment.segment_files import segment_options
from duralog.storage.segment.source import SegmentBroken, SegmentSource

DEFAULT_RULES = UpgradeRules()


class UpgradeRefused(DuralogError):
    """The new segment does not hold the same records: it was removed, and the log is as it was."""


@dataclass(slots=True, kw_only=True)
class LogUpgrade:
    """The result of an upgrade of one log, done or planned."""

    topic: str
    partition: int
    segments: int = 0
    """How many were replaced."""
    messages: int = 0
    """Batches of the old formats that they held; a compressed message counts as one."""
    batches: int = 0
    """That they hold now."""
    bytes_before: int = 0
    """Of the segments that were replaced."""
    bytes_after: int = 0
    before: RecordDigest = field(default_factory=RecordDigest)
    """Of all records of the log."""
    after: RecordDigest = field(default_factory=RecordDigest)
    left: dict[int, str] = field(default_factory=dict)
    """By base offset: segments with old messages that stay as they are, and why."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "partition",
            "topic": self.topic,
            "partition": self.partition,
            "segments": self.segments,
            "messages": self.messages,
            "batches": self.batches,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "records": self.before.records,
            "digest_before": str(self.before) if self.before.records else None,
            "digest_after": str(self.after) if self.after.records else None,
            "left": [{"base_offset": offset, "reason": reason} for offset, reason in self.left.items()],
            "seconds": round(self.seconds, 3),
        }


def upgrade_log(log: PartitionLog, *, rules: UpgradeRules = DEFAULT_RULES) -> LogUpgrade:
    """Convert the whole log to format v2. If the active segment has old messages, it is rolled first."""
    began = time.perf_counter()
    report = LogUpgrade(topic=log.topic, partition=log.partition)
    with log.being_compacted() as files:
        if _is_legacy(log.view.segments.active):
            log.roll()
        # Segments are replaced below the recovery point only, where nothing is missing.
        log.flush()
        segments = log.view.segments
        for segment, following in pairwise(segments):
            source = SegmentSource(segment, next_base_offset=following.base_offset)
            _upgrade_segment(log, files, source, rules, report)
        _count_untouched(segments.active, report)
    report.seconds = time.perf_counter() - began
    return report


def preview_upgrade(log: PartitionLog) -> LogUpgrade:
    """How much of the log is of old formats. Nothing is changed, and no record is decoded."""
    began = time.perf_counter()
    report = LogUpgrade(topic=log.topic, partition=log.partition)
    for segment in log.view.segments:
        messages = 0
        for piece in read_pieces(segment.file, end=segment.size_bytes, check_crc=False):
            messages += int((piece.batches["magic"] < 2).sum())
        if messages:
            report.segments += 1
            report.messages += messages
            report.bytes_before += segment.size_bytes
    report.seconds = time.perf_counter() - began
    return report


def _is_legacy(segment: Segment) -> bool:
    """Up to the first damage: what follows it could not be upgraded anyway."""
    pieces = read_pieces(segment.file, end=segment.size_bytes, check_crc=False)
    return any(has_legacy(piece.batches) for piece in pieces)


def _upgrade_segment(
    log: PartitionLog, files: FileSystem, source: SegmentSource, rules: UpgradeRules, report: LogUpgrade
) -> None:
    if not _is_legacy(source.segment):
        _count_untouched(source.segment, report)
        return
    before = RecordDigest()
    cleaned = CleanedSegment(files, log.folder, source.base_offset, segment_options(log.config))
    segment: Segment | None = None
    messages = batches = 0
    try:
        for piece in source.pieces():
            messages += int((piece.batches["magic"] < 2).sum())
            for run in upgrade_piece(piece, rules, before):
                if not cleaned.fits(len(run.data)):
                    raise SegmentBroken(source, "upgraded, it does not fit into a segment")
                cleaned.append([run.data.data], run.batches)
                batches += len(run.batches)
        cleaned.add_aborted(source.segment.transaction_index.entries)
        segment = cleaned.finish(modified_ms=source.modified_ms, created_ms=source.segment.created_ms)
        files.sync_folder(log.folder)
        after = _digest_of(segment)
        if after != before:
            raise UpgradeRefused(
                f"{source.segment.file.name}: upgraded, it does not hold the same records: the digest of"
                f" {before.records} records was {before}, that of the {after.records} written ones is {after}"
            )
        log.swap_in([source], segment, ignore)
    except (SegmentBroken, CorruptRecord, InvalidRecord) as error:
        cleaned.discard()
        report.left[source.base_offset] = str(error)
        _count_untouched(source.segment, report)
        return
    except BaseException:
        if segment is None or segment.state is FileState.CLEANED:
            cleaned.discard()
        raise
    report.segments += 1
    report.messages += messages
    report.batches += batches
    report.bytes_before += source.size_bytes
    report.bytes_after += segment.size_bytes
    report.before.include(before)
    report.after.include(after)


def _count_untouched(segment: Segment, report: LogUpgrade) -> None:
    digest = _digest_of(segment)
    report.before.include(digest)
    report.after.include(digest)


def _digest_of(segment: Segment) -> RecordDigest:
    """Of what is on disk. Batches that cannot be decoded are left out: no upgrade touches them."""
    digest = RecordDigest()
    for piece in read_pieces(segment.file, end=segment.size_bytes):
        for decoded in piece.decode(on_corrupt=lambda *_: None):
            digest.add(decoded)
    return digest
