"""Segments of one partition, read from the first byte to the last and checked with everything that belongs to them.

A chain begins where the producers are known, from a snapshot or because the log begins there, and ends before the
next such place. So chains need nothing of each other, and several threads can check one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.format.checkpoints import EpochStart
from duralog.format.index_entries import DEFAULT_INTERVAL_BYTES
from duralog.format.internal.internal_topics import INTERNAL_TOPICS
from duralog.format.producer_snapshot import ProducerEntry
from duralog.storage.checks.checked_files import LOCAL_FILES, CheckedFiles
from duralog.storage.checks.coordinator_records import CoordinatorCheck
from duralog.storage.checks.findings import Findings, unreadable
from duralog.storage.checks.log import OffsetOrder, end_of, report_tail, report_wrong_checksums
from duralog.storage.checks.producer_replay import ProducerReplay
from duralog.storage.checks.segment import SegmentCheck
from duralog.storage.disk.found_files import FoundFile

Advance = Callable[[int], None]
"""Called with the number of bytes read since the last call. It may raise, to stop the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    interval_bytes: int = DEFAULT_INTERVAL_BYTES
    """The topic's `index.interval.bytes`, or the default."""
    exact_indexes: bool = False
    """Indexes must be exactly what the rule gives."""
    decode: bool = False
    """Unpack and decode every record too."""


@dataclass(slots=True)
class CheckedCounts:
    segments: int = 0
    batches: int = 0
    records: int = 0
    """By the batch headers."""
    wrappers: int = 0
    """Compressed v0 and v1 messages, whose records are not counted."""
    size_bytes: int = 0
    """Of the logs."""

    def add_batches(self, batches: NDArray[Any]) -> None:
        counts = batches["record_count"][batches["crc_ok"] != 0]
        self.batches += len(batches)
        self.records += int(counts[counts > 0].sum(dtype=np.int64))
        self.wrappers += int(np.count_nonzero((batches["magic"] < 2) & (batches["record_count"] < 0)))

    def to_dict(self) -> dict[str, object]:
        return {
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "compressed_messages": self.wrappers,
            "bytes": self.size_bytes,
        }

    def add(self, other: CheckedCounts) -> None:
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.wrappers += other.wrappers
        self.size_bytes += other.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSnapshot:
    """A readable producer snapshot."""

    path: str
    offset: int
    data: bytes
    entries: tuple[ProducerEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a chain."""

    counts: CheckedCounts
    findings: Findings
    end_offset: int
    is_complete: bool
    """All logs could be read: `end_offset` is that of the last log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Segments of one partition that follow each other."""

    logs: Sequence[FoundFile]
    """At least one; each has its base offset in its name."""
    next_base: int | None
    """Of the segment after the last one."""
    start: CheckedSnapshot | None
    ends: Sequence[CheckedSnapshot]
    """To compare with the producers in the log, each at its offset."""
    epochs: Sequence[EpochStart]
    topic: str | None = None
    """From the folder's name."""

    def check(self, options: CheckOptions, advance: Advance, files: CheckedFiles = LOCAL_FILES) -> Checked:
        return _ChainCheck(self, options, advance, files).run()


class _ChainCheck:
    """One check of a chain."""

    def __init__(self, chain: Chain, options: CheckOptions, advance: Advance, files: CheckedFiles) -> None:
        self._chain = chain
        self._options = options
        self._advance = advance
        self._files = files
        self._findings = Findings()
        self._counts = CheckedCounts()
        self._replay = ProducerReplay(_base(chain.logs[0]), None if chain.start is None else chain.start.data)

    def run(self) -> Checked:
        chain, findings = self._chain, self._findings
        end_offset = _base(chain.logs[0])
        is_complete = True
        following = [*map(_base, chain.logs[1:]), chain.next_base]
        for log, next_base in zip(chain.logs, following, strict=True):
            self._counts.segments += 1
            try:
                end_offset = max(end_offset, self._check_segment(log, next_base))
                continue
            except FileNotFoundError:
                findings.note(log.path, "was removed meanwhile")
            except OSError as error:
                findings.report(unreadable(log.path, error))
            except CorruptRecord as error:
                findings.report(error if error.file is not None else error.in_file(log.path))
            is_complete = False
            self._replay.miss()
        for snapshot in chain.ends if is_complete else ():
            self._replay.compare(snapshot.path, snapshot.offset, snapshot.entries, findings.report)
        return Checked(counts=self._counts, findings=findings, end_offset=end_offset, is_complete=is_complete)

    def _check_segment(self, log: FoundFile, next_base: int | None) -> int:
        """Returns the offset after the segment's last one."""
        options, counts, findings, files = self._options, self._counts, self._findings, self._files
        topic = self._chain.topic
        base = _base(log)
        is_sound = True

        def report(error: CorruptRecord) -> None:
            nonlocal is_sound
            is_sound = False
            findings.report(error)

        check = SegmentCheck(
            log,
            self._replay,
            findings.report,
            findings.note,
            interval_bytes=options.interval_bytes,
            is_exact=options.exact_indexes,
            read_small=files.read_small,
        )
        order = OffsetOrder(log.path, report, base_offset=base, next_base=next_base)
        records = None
        if topic in INTERNAL_TOPICS:
            records = CoordinatorCheck(log.path, topic, findings.report, findings.note)
        log_end = 0
        with files.open(log.path) as source:
            counts.size_bytes += source.size
            piece = None
            for piece in read_pieces(source):
                report_wrong_checksums(piece, report)
                order.add(piece.batches)
                check.add(piece)
                self._check_epochs(piece)
                if records is not None:
                    records.add(piece)
                elif options.decode:
                    _decode_all(piece, findings)
                counts.add_batches(piece.batches)
                self._advance(end_of(piece) - log_end)
                log_end = end_of(piece)
            if piece is not None:
                # Rolling a log cuts its file, maybe just now.
                ends_log = next_base is None or files.size_of(log.path) != source.size
                report_tail(source, piece, report, findings.note, files.is_growing, ends_log=ends_log)
            self._advance(source.size - log_end)
        check.finish(log_end, is_sound=is_sound)
        if records is not None:
            records.finish()
        assert order.last_offset is not None
        return order.last_offset + 1

    def _check_epochs(self, piece: Piece) -> None:
        """Every batch must have the epoch that the partition's list of epochs has for its offset."""
        listed = self._chain.epochs
        if not listed:
            return
        batches = piece.batches[(piece.batches["magic"] >= 2) & (piece.batches["crc_ok"] != 0)]
        starts = np.array([entry.start_offset for entry in listed], np.int64)
        epochs = np.array([entry.epoch for entry in listed], np.int64)
        entry = np.searchsorted(starts, batches["base_offset"], side="right") - 1
        found = batches["leader_epoch"]
        # Below the first entry, epochs are forgotten; batches of old brokers have none.
        is_wrong = (entry >= 0) & (found >= 0) & (found != epochs[entry])
        for row in np.flatnonzero(is_wrong)[:1].tolist():
            self._findings.report(
                CorruptRecord(
                    "the batch has another leader epoch than leader-epoch-checkpoint gives its offset",
                    fault=Fault.FIELD_VALUE,
                    file=piece.name,
                    position=int(batches["position"][row]),
                    expected=f"epoch {epochs[entry[row]]} at offset {batches['base_offset'][row]}",
                    found=f"epoch {found[row]}",
                )
            )


def _base(log: FoundFile) -> int:
    assert log.offset is not None
    return log.offset


def _decode_all(piece: Piece, findings: Findings) -> None:
    """Decode the batches with a right checksum: wrong ones are reported already."""
    sound = np.flatnonzero(piece.batches["crc_ok"] != 0)
    for _ in piece.decode(sound, on_corrupt=lambda error, _: findings.report(error)):
        pass
