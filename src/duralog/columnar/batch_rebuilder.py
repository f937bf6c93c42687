"""The batches of a piece whose records compaction has to read: each is judged, and rebuilt if it loses records.

One kernel judges and writes, compressed batches in a scratch buffer. Superseded records are known from the marks of the
first pass or, without them, from the offset map, for which the keys are hashed again. Messages of formats v0 and v1
become v2 batches, as in Kafka, even those that lose nothing.

A corrupt batch is reported with the same error as by any other reader, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import CHUNK_RECORDS, Chunk, DecodedRecords
from duralog.columnar.filter_result import FilterResult
from duralog.columnar.runs import Rows, RunDecoder, Span
from duralog.errors import CorruptRecord, Fault
from duralog.format.compression import Codec, compress
from duralog.format.layout import CODEC_MASK
from duralog.format.varint import as_int64
from duralog.kernels.columns import rows_of
from duralog.kernels.decode import MIN_RECORD_BYTES
from duralog.kernels.encode import HEADER_BYTES, seal_batches
from duralog.kernels.key_digests import digests_of
from duralog.kernels.key_walk import walk_keys
from duralog.kernels.offset_map import NO_MARKS, OffsetMap
from duralog.kernels.rebuild import MAX_GROWTH, BatchFate, BatchVerdict, rebuild_batches
from duralog.kernels.transcribe import room_for, transcribe_messages
from duralog.kernels.writing import SLACK

# As plain numbers, which numpy takes without asking an enum.
_CONTROL = BatchVerdict.CONTROL.value
_UNTOUCHED, _REBUILT = BatchFate.UNTOUCHED.value, BatchFate.REBUILT.value
_NO_OFFSETS = np.empty(0, np.int64)
_SMALLEST_OFFSET = -(2**63)
_START = np.zeros(1, np.int64)
_NEVER_MS = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalRules:
    """Which records of a filtered batch stay.

    A record after the map's latest offset stays. Otherwise it needs a key that no later record has, and a value, unless
    it is a tombstone whose delete horizon has not passed.
    """

    offset_map: OffsetMap
    round_ms: int
    """When the round began: delete horizons up to it have passed, new ones are counted from it."""
    delete_retention_ms: int
    keep_legacy_tombstones: bool
    """Whether the file is too young to lose tombstones of formats v0 and v1, which have no delete horizon."""
    keep_tombstones: bool = False
    """Keep even expired ones: a segment that could not be read may hold values of their keys."""

    @property
    def expired_ms(self) -> int:
        """Tombstones with a delete horizon up to this time go."""
        return _NEVER_MS if self.keep_tombstones else self.round_ms

    @property
    def new_horizon_ms(self) -> int:
        """The horizon of a batch that gets one. Negative, and so none, where the sum wraps, as in Kafka."""
        return as_int64(self.round_ms + self.delete_retention_ms)


@dataclass(frozen=True, slots=True)
class BatchRebuilder(RunDecoder):
    """Judges batches, and puts the outcome into `result`."""

    verdicts: NDArray[np.int8]
    rules: SurvivalRules
    result: FilterResult

    def rebuild(self, rows: Rows) -> None:
        """REQUIRES: the verdict on each of these is one that needs records, or the batch is corrupt."""
        for messages in self.decode(rows):
            assert isinstance(messages, DecodedRecords)
            rows = messages.batch_row.astype(np.intp)
            begins = self.begins[rows]
            span = Span(self.data, begins, begins + self.batches["size"][rows], rows)
            self._convert(span, np.zeros(len(rows), np.int64), is_packed=False)

    def _decode_records(self, span: Span, *, is_packed: bool) -> Iterator[Chunk]:
        self._judge(span, rows_of(self.batches, span.rows), is_packed=is_packed)
        yield from ()

    def _decode_checked(self, span: Span, base_offsets: NDArray[np.int64]) -> Iterator[DecodedRecords]:
        self._convert(span, base_offsets, is_packed=True)
        yield from ()

    def _convert(self, span: Span, base_offsets: NDArray[np.int64], *, is_packed: bool) -> None:
        """Messages of formats v0 and v1, plain ones or those inside of compressed ones."""
        batches = rows_of(self.batches, span.rows)
        out = np.empty(room_for(int(np.sum(span.ends - span.begins))), np.uint8)
        ends = np.empty(len(batches), np.int64)
        transcribe_messages(span.data, span.begins, span.ends, base_offsets, batches, out, ends)
        begins = np.concatenate((_START, ends[:-1]))
        is_sound = batches["record_count"] >= 0
        for row in span.rows[~is_sound]:
            self.refusals.refuse(row, _unordered_offsets())
        sound = Span(out, begins[is_sound], ends[is_sound], span.rows[is_sound])
        self._judge(sound, rows_of(batches, is_sound), is_packed=is_packed)

    def _judge(self, span: Span, batches: NDArray[Any], *, is_packed: bool) -> None:
        """Batches whose records lie in the span; `batches` are the rows of them."""
        has_marks = self._has_marks(span.rows, batches)
        edges = [0, *(np.flatnonzero(has_marks[1:] != has_marks[:-1]) + 1).tolist(), len(batches)]
        for first, end in pairwise(edges):
            if first < end:
                part, rows = span.part(first, end), batches[first:end]
                mapped = None if has_marks[first] else self._mapped_offsets(part, rows)
                self._rebuild(part, rows, mapped, is_packed=is_packed)

    def _has_marks(self, rows: Rows, batches: NDArray[Any]) -> NDArray[np.bool_]:
        """The batches that the marks of the first pass cover. Control batches have no marks."""
        is_control: NDArray[np.bool_] = self.verdicts[rows] >= _CONTROL
        marks = self.rules.offset_map.superseded
        if marks is None:
            return is_control
        is_marked = (batches["base_offset"] >= marks.first_offset) & (batches["last_offset"] < marks.end_offset)
        return is_control | is_marked

    def _mapped_offsets(self, span: Span, batches: NDArray[Any]) -> NDArray[np.int64]:
        """What the map has for each record with a key, of all batches that are sound."""
        counts = _most_records(span, batches)
        numbers = np.arange(len(batches))
        found = [_NO_OFFSETS]
        number = 0
        while number < len(batches):
            room = max(min(int(counts[number:].sum()), CHUNK_RECORDS), int(counts[number])) + 1
            offsets, key_position, key_length = (
                np.empty(room, np.int64),
                np.empty(room, np.int64),
                np.empty(room, np.int32),
            )
            fault, number, _, filled, _ = walk_keys(
                *(span.data, span.begins, span.ends, batches, numbers, number, _SMALLEST_OFFSET),
                *(offsets, key_position, key_length, np.empty(len(batches), np.int64)),
            )
            digests = digests_of(span.data, key_position[:filled], key_length[:filled])
            found.append(self.rules.offset_map.find(digests))
            if fault != Fault.NONE:
                number += 1
        return np.concatenate(found)

    def _rebuild(self, span: Span, batches: NDArray[Any], mapped: NDArray[np.int64] | None, *, is_packed: bool) -> None:
        rules = self.rules
        marks = rules.offset_map.superseded or NO_MARKS
        fates = np.full(len(batches), _UNTOUCHED, np.int8)
        out = np.empty(_room(span, batches), np.uint8)
        number = next_mapped = filled = 0
        while number < len(batches):
            fault, number, next_mapped, filled, position = rebuild_batches(
                *(span.data, span.begins, span.ends, batches, self.verdicts[span.rows]),
                *(_NO_OFFSETS if mapped is None else mapped, mapped is not None),
                *(marks.bits, marks.first_offset, marks.end_offset, rules.offset_map.latest_offset),
                *(rules.expired_ms, rules.new_horizon_ms, rules.keep_legacy_tombstones or rules.keep_tombstones),
                *(number, next_mapped, filled, fates, self.result.tallies, out),
            )
            if fault != Fault.NONE:
                self._refuse_records(span, number, Fault(fault), position, is_packed)
                number += 1
        self.result.fates[span.rows] = fates
        is_rebuilt = fates == _REBUILT
        rebuilt = rows_of(batches, is_rebuilt)
        made = _packed(rebuilt, out) if is_packed else out[:filled]
        seal_batches(rebuilt, made)
        self.result.place(span.rows[is_rebuilt], rebuilt, made)


def _unordered_offsets() -> CorruptRecord:
    return CorruptRecord(
        "the offsets inside a compressed message cannot be those of one batch",
        fault=Fault.INNER_OFFSET,
        expected="increasing ones, less than 2^31 apart",
        found="others",
    )


def _most_records(span: Span, batches: NDArray[Any]) -> NDArray[np.int64]:
    """How many records each batch can hold, by its bytes and by what its header claims."""
    claimed = np.maximum(batches["record_count"], 0)
    most: NDArray[np.int64] = np.minimum(claimed, (span.ends - span.begins) // MIN_RECORD_BYTES)
    return most


def _room(span: Span, batches: NDArray[Any]) -> int:
    """What the batches can take at most when they are built again."""
    growth = HEADER_BYTES * len(batches) + MAX_GROWTH * int(_most_records(span, batches).sum())
    return int((span.ends - span.begins).sum()) + growth + SLACK


def _packed(batches: NDArray[Any], out: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same batches with their records compressed, at the codec's usual level. Their rows are changed."""
    view = out.data
    columns = (batches["position"], batches["size"], batches["attributes"] & CODEC_MASK)
    packed = [
        compress(Codec(codec), view[begin + HEADER_BYTES : begin + size])
        for begin, size, codec in zip(*(column.tolist() for column in columns), strict=True)
    ]
    sizes = np.fromiter((len(records) for records in packed), np.int64, len(packed)) + HEADER_BYTES
    ends = np.cumsum(sizes)
    batches["size"] = sizes
    batches["position"] = ends - sizes
    made = np.empty(int(sizes.sum()), np.uint8)
    for end, records in zip(ends.tolist(), packed, strict=True):
        made[end - len(records) : end] = np.frombuffer(records, np.uint8)
    return made
