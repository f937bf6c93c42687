"""The first pass of a shuffled compaction: which records of a log are superseded, without a map of all its keys.

Three steps, each done by many tasks, with a shuffle between them:

1. `segment_keys`: a task reads a segment. Of records that were compacted before, it sends digests of keys and their
   offsets. Of new records, it sends the last offset of each key in a run of records. A map of bounded memory finds
   these; when it is full, its contents are sent, and the next run begins. Records with a later one of their key in the
   same run are known to be superseded at once.
2. `superseded_offsets`: a task has a share of all digests, with all that was sent of each key. It knows the last new
   offset of each, and so which offsets below are superseded.
3. `segment_marks`: a task collects what is known of some segments, and writes it to files.

So at most the 16 bytes of its key's digest and its offset are sent of a record.

What must always be true: a record is marked if and only if a record with the same digest and a higher offset is new,
and counts for readers; the same as with a map of `duralog.storage.compaction.mapping` that has room for all keys.
That holds for offsets that rise from record to record, which marks need to mean one record each. Of a log in which they
do not, the findings say so, and it is not compacted in this form.

Memory of a task: in the first step the map, `memory_bytes`, as much again at most for the offsets of a run, and a few
pieces of 4 MB. In the second one, `memory_bytes` for a share, as long as a record takes two bytes of the log or more.
In the third one, marks: see `marks`. None of it depends on how many keys or records a log has.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.key_reading import KeyedRecords, read_keys
from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord
from duralog.format.layout import CONTROL_BIT
from duralog.kernels.key_digests import Digests
from duralog.kernels.offset_map import OffsetMap, map_bytes_for
from duralog.spark.jobs.compaction.marks import packed_offsets
from duralog.spark.jobs.compaction.rows import KeyRow, KeyShuffle, RowKind, SegmentFindings, SegmentToRead
from duralog.spark.jobs.compaction.transactions import TransactionExtract
from duralog.storage.compaction.transaction_cleaning import TransactionTracker
from duralog.storage.disk.file_system import FileSystem
from duralog.storage.segment.source import SegmentBroken, SegmentSource, batch_bytes

_RECORDS_AT_ONCE = 1 << 16
"""Of a row that is sent: a megabyte and a half."""
_ASKED_AT_ONCE = 1 << 19
_MOST_DAMAGE_TOLD = 1000
_MOST_BAD_CHECKSUMS = 10_000
_MOST_RUNS = 1 << 32


def segment_keys(files: FileSystem, shuffle: KeyShuffle, segment: SegmentToRead) -> Iterator[KeyRow]:
    """What is sent of a segment, its findings last. Errors are among these."""
    reader = _SegmentReader(shuffle, segment)
    try:
        yield from reader.rows(segment.open(files, shuffle.folder, shuffle.config))
    except Exception as error:
        reader.findings.error = error
    yield _findings_row(shuffle, segment.number, reader.findings)


def _findings_row(shuffle: KeyShuffle, number: int, findings: SegmentFindings) -> KeyRow:
    return KeyRow(number % shuffle.shares, number, RowKind.FINDINGS, 0, b"", pickle.dumps(findings))


class _Disorder(Exception):
    pass


class _SegmentReader:
    def __init__(self, shuffle: KeyShuffle, segment: SegmentToRead) -> None:
        self._shuffle = shuffle
        self._segment = segment
        self.findings = SegmentFindings()
        span = segment.next_base_offset - segment.base_offset
        self._map = OffsetMap(min(shuffle.memory_bytes, map_bytes_for(span, shuffle.load_factor)), shuffle.load_factor)
        self._run: list[NDArray[np.int64]] = []
        """All offsets that were put into the map."""
        self._room = self._most_records = max(shuffle.memory_bytes // 16, 1)
        self._runs = 0

    def rows(self, source: SegmentSource) -> Iterator[KeyRow]:
        segment, findings = self._segment, self.findings
        is_all_new = segment.base_offset >= self._shuffle.first_dirty_offset
        try:
            yield from self._read_all(source, is_all_new=is_all_new)
            if not is_all_new and segment.new_from < segment.size_bytes:
                yield from self._read_new(source, segment.new_from)
            yield from self._end_run()
        except _Disorder as disorder:
            findings.disorder = str(disorder)

    def _read_all(self, source: SegmentSource, *, is_all_new: bool) -> Iterator[KeyRow]:
        """All batches, for their transactions and damage, and the keys of those to judge."""
        extract = TransactionExtract()
        tracker = self._new_tracker()
        asked = _Asked(self._shuffle.first_dirty_offset, partial(self._shares, RowKind.ASKED))
        order = _Order(source)
        try:
            for piece in source.pieces(piece_bytes=self._shuffle.piece_bytes):
                extract.take(piece)
                self._note_checksums(piece)
                if is_all_new:
                    yield from self._put(piece, tracker, order)
                else:
                    yield from asked.add(piece, order)
        except SegmentBroken as broken:
            self.findings.broken = str(broken)
        yield from asked.end()
        self.findings.transactions = extract.piece(source.segment.file.name)

    def _read_new(self, source: SegmentSource, start: int) -> Iterator[KeyRow]:
        """The new part of a segment that was compacted in part."""
        tracker, order = self._new_tracker(), _Order(source)
        try:
            for piece in source.pieces(start, piece_bytes=self._shuffle.piece_bytes):
                yield from self._put(piece, tracker, order)
        except SegmentBroken as broken:
            self.findings.broken = self.findings.broken or str(broken)

    def _new_tracker(self) -> TransactionTracker:
        tracker = TransactionTracker()
        tracker.expect(self._segment.aborted)
        return tracker

    def _note_checksums(self, piece: Piece) -> None:
        bad = self.findings.bad_checksums
        if bad is not None:
            bad.update(piece.batches["position"][piece.batches["crc_ok"] == 0].tolist())
            if len(bad) > _MOST_BAD_CHECKSUMS:
                self.findings.bad_checksums = None

    def _put(self, piece: Piece, tracker: TransactionTracker, order: _Order) -> Iterator[KeyRow]:
        tracked = tracker.take(piece)
        rows = None if tracked is None else np.flatnonzero(~(tracked.is_control | tracked.may_go))
        self.findings.new_bytes += batch_bytes(piece)
        first_offset = self._shuffle.first_dirty_offset
        for keyed in read_keys(piece, rows, first_offset=first_offset, on_corrupt=self._refuse):
            order.check(keyed)
            self.findings.new_records += len(keyed)
            digests, offsets = keyed.digests, keyed.offsets
            while len(offsets):
                part = slice(0, self._room)
                taken = self._map.put(digests[part], offsets[part])
                self._run.append(offsets[:taken])
                self._room -= taken
                digests, offsets = digests[taken:], offsets[taken:]
                if len(offsets):
                    yield from self._end_run()

    def _refuse(self, error: CorruptRecord, _row: int) -> None:
        if len(self.findings.damage) <= _MOST_DAMAGE_TOLD:
            self.findings.damage.append(error)

    def _end_run(self) -> Iterator[KeyRow]:
        """Send what the map has and what it replaced, and clear it."""
        if not self._run:
            return
        digests, last_offsets = self._map.entries()
        yield from self._shares(RowKind.NEW, digests, last_offsets)
        offsets = np.concatenate(self._run)
        is_superseded = np.ones(len(offsets), np.bool_)
        is_superseded[np.searchsorted(offsets, last_offsets)] = False
        number = self._segment.number
        for kind, first_offset, data in packed_offsets(offsets[is_superseded]):
            yield KeyRow(number % self._shuffle.shares, number, kind, first_offset, b"", data)
        self._runs += 1
        self._run.clear()
        self._room = self._most_records
        self._map.clear()

    def _shares(self, kind: RowKind, digests: Digests, offsets: NDArray[np.int64]) -> Iterator[KeyRow]:
        """Cut up by the tasks of the next step."""
        shares = self._shuffle.shares
        # Not by the first half: that is what a map chooses its slots by.
        targets = (digests[:, 1] % np.uint64(shares)).astype(np.int64)
        sorted_by_target = np.argsort(targets, kind="stable")
        edges = np.searchsorted(targets[sorted_by_target], np.arange(shares + 1))
        order = self._segment.number * _MOST_RUNS + self._runs
        for target in np.flatnonzero(np.diff(edges)).tolist():
            for begin in range(int(edges[target]), int(edges[target + 1]), _RECORDS_AT_ONCE):
                chosen = sorted_by_target[begin : min(begin + _RECORDS_AT_ONCE, int(edges[target + 1]))]
                sent = digests[chosen].tobytes(), offsets[chosen].tobytes()
                yield KeyRow(target, self._segment.number, kind, order, *sent)


class _Asked:
    """Digests of what was compacted before, gathered until it is worth sending them."""

    def __init__(self, end_offset: int, send: Callable[[Digests, NDArray[np.int64]], Iterator[KeyRow]]) -> None:
        """From `end_offset` on, records are new."""
        self._end_offset = end_offset
        self._send = send
        self._digests: list[Digests] = []
        self._offsets: list[NDArray[np.int64]] = []
        self._count = 0

    def add(self, piece: Piece, order: _Order) -> Iterator[KeyRow]:
        rows = piece.batches
        is_control = (rows["magic"] == 2) & (rows["attributes"] & CONTROL_BIT != 0)
        for keyed in read_keys(piece, np.flatnonzero(~is_control), on_corrupt=_reported_when_rewritten):
            order.check(keyed)
            count = int(np.searchsorted(keyed.offsets, self._end_offset))
            self._digests.append(keyed.digests[:count])
            self._offsets.append(keyed.offsets[:count])
            self._count += count
        if self._count >= _ASKED_AT_ONCE:
            yield from self.end()

    def end(self) -> Iterator[KeyRow]:
        if self._count:
            yield from self._send(np.concatenate(self._digests), np.concatenate(self._offsets))
        self._digests, self._offsets, self._count = [], [], 0


def _reported_when_rewritten(_error: CorruptRecord, _row: int) -> None:
    pass


class _Order:
    """Whether the offsets of all records rise, and lie within their segment."""

    def __init__(self, source: SegmentSource) -> None:
        self._source = source
        self._last = source.base_offset - 1

    def check(self, keyed: KeyedRecords) -> None:
        offsets = keyed.offsets
        if not len(offsets):
            return
        rises = offsets[0] > self._last and (offsets[1:] > offsets[:-1]).all()
        if not rises or offsets[-1] >= self._source.next_base_offset:
            raise _Disorder(f"{self._source.segment.file.name}: the offsets of its records do not rise")
        self._last = int(offsets[-1])
