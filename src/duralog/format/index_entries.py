"""The entries of `.index`, `.timeindex` and `.txnindex` files, and the rule by which Kafka writes them.

The offset index and the time index are sparse: they name some batches of a segment, in order, so that a
lookup finds a place to start reading from. Losing them costs nothing but time: `index_entries` gives them
again from the batches. Offsets are absolute here and relative to the segment's base offset in the files.

What must always be true: in an offset index, offsets and positions rise from entry to entry; in a time index,
timestamps rise and offsets do not fall; in a transaction index, the markers' offsets rise. A decoder yields the
entries in order and raises `CorruptRecord` at the first one that breaks its rule, or reports it to `on_corrupt`
and continues with the next entry.

While a segment is written to, Kafka keeps its two sparse indexes at their full size, zeros at the end; after a
crash they stay like that. Those zeros are not entries (`used_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.layout import (
    NO_TIMESTAMP,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    Layout,
)
from duralog.format.varint import Bytes

DEFAULT_INTERVAL_BYTES = 4096
"""Kafka's default of `index.interval.bytes`."""

TRANSACTION_INDEX_VERSION = 0

_INT32_MAX = 2**31 - 1
_ZEROS = bytes(64 << 10)

OnCorrupt = Callable[[CorruptRecord], None]


@dataclass(frozen=True, slots=True)
class OffsetIndexEntry:
    offset: int
    """The last offset of a batch."""
    position: int
    """Where that batch starts in the `.log` file."""


@dataclass(frozen=True, slots=True)
class TimeIndexEntry:
    timestamp_ms: int
    """The largest timestamp of the segment so far."""
    offset: int
    """The last offset of the first batch that reaches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """An entry of the transaction index. `read_committed` hides the producer's records between the two offsets."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """As it was when the marker was written."""


def used_bytes(data: Bytes, layout: Layout) -> int:
    """How much of a sparse index holds entries: all but the zeros that an untrimmed file ends with.

    A file of exactly one entry is never taken for an untrimmed one: in a time index, an entry of zeros is
    right when the first record's timestamp is 0.
    """
    whole = len(data) - len(data) % layout.size
    if whole == layout.size:
        return whole
    end = whole
    # Comparing is many times as fast as stripping, and an index is allocated with megabytes of zeros.
    while end >= len(_ZEROS) and bytes(data[end - len(_ZEROS) : end]) == _ZEROS:
        end -= len(_ZEROS)
    begin = max(0, end - len(_ZEROS))
    content = begin + len(bytes(data[begin:end]).rstrip(b"\0"))
    return -(-content // layout.size) * layout.size


def decode_offset_index(
    data: Bytes, base_offset: int, *, on_corrupt: OnCorrupt | None = None
) -> Iterator[OffsetIndexEntry]:
    report = on_corrupt or _raise
    last_relative, last_position = -1, -1
    for at, (relative, position) in _unpack_used(data, OFFSET_INDEX_ENTRY):
        if relative <= last_relative or position <= last_position:
            report(
                _out_of_order(
                    "an offset index rises",
                    at,
                    expected=f"offset over {base_offset + last_relative}, position over {last_position}",
                    found=f"offset {base_offset + relative}, position {position}",
                )
            )
            continue
        last_relative, last_position = relative, position
        yield OffsetIndexEntry(base_offset + relative, position)
    _check_whole(data, OFFSET_INDEX_ENTRY, report)


def decode_time_index(
    data: Bytes, base_offset: int, *, on_corrupt: OnCorrupt | None = None
) -> Iterator[TimeIndexEntry]:
    report = on_corrupt or _raise
    last_timestamp, last_relative = NO_TIMESTAMP, 0
    for at, (timestamp, relative) in _unpack_used(data, TIME_INDEX_ENTRY):
        if timestamp <= last_timestamp or relative < last_relative:
            report(
                _out_of_order(
                    "a time index rises",
                    at,
                    expected=f"timestamp over {last_timestamp}, offset {base_offset + last_relative} or more",
                    found=f"timestamp {timestamp}, offset {base_offset + relative}",
                )
            )
            continue
        last_timestamp, last_relative = timestamp, relative
        yield TimeIndexEntry(timestamp, base_offset + relative)
    _check_whole(data, TIME_INDEX_ENTRY, report)


def decode_transaction_index(
    data: Bytes, base_offset: int, *, on_corrupt: OnCorrupt | None = None
) -> Iterator[AbortedTransaction]:
    """A transaction index has no zeros at its end. Kafka ignores a partial last entry; here it is reported."""
    report = on_corrupt or _raise
    last = base_offset - 1
    for at, (version, producer_id, first_offset, last_offset, last_stable_offset) in _unpack(
        data, TRANSACTION_INDEX_ENTRY, len(data)
    ):
        if version != TRANSACTION_INDEX_VERSION:
            report(
                CorruptRecord(
                    "a transaction index entry has an unknown version",
                    position=at,
                    expected=TRANSACTION_INDEX_VERSION,
                    found=version,
                )
            )
            continue
        if last_offset <= last:
            report(
                _out_of_order(
                    "a transaction index rises",
                    at,
                    expected=f"last offset over {last}",
                    found=f"last offset {last_offset}",
                )
            )
            continue
        last = last_offset
        yield AbortedTransaction(
            producer_id=producer_id,
            first_offset=first_offset,
            last_offset=last_offset,
            last_stable_offset=last_stable_offset,
        )
    _check_whole(data, TRANSACTION_INDEX_ENTRY, report)


def encode_offset_index(entries: Iterable[OffsetIndexEntry], base_offset: int) -> bytes:
    """The bytes of the entries. REQUIRES: they rise, as the rule makes them."""
    pack = OFFSET_INDEX_ENTRY.pack
    return b"".join(pack(_relative(entry.offset, base_offset), entry.position) for entry in entries)


def encode_time_index(entries: Iterable[TimeIndexEntry], base_offset: int) -> bytes:
    """The bytes of the entries. REQUIRES: they rise, as the rule makes them."""
    pack = TIME_INDEX_ENTRY.pack
    return b"".join(pack(entry.timestamp_ms, _relative(entry.offset, base_offset)) for entry in entries)


def encode_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of the entries. REQUIRES: their last offsets rise."""
    return b"".join(
        TRANSACTION_INDEX_ENTRY.pack(
            TRANSACTION_INDEX_VERSION,
            entry.producer_id,
            entry.first_offset,
            entry.last_offset,
            entry.last_stable_offset,
        )
        for entry in entries
    )


class IndexedBatch(Protocol):
    """What the rule needs to know of a batch; `format.batch.Batch` has it."""

    @property
    def position(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


class IndexRule:
    """Which batches of one segment get an entry. Feed it the batches in order, then `finish`.

    An entry is due once more than `interval_bytes` of batches were written since the last one, counted before
    the batch at hand: so the first batch never has one. The count lives in memory only, in Kafka as here: an
    index that grew over several restarts may differ from a rebuilt one.
    """

    def __init__(self, *, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> None:
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0
        self._largest = TimeIndexEntry(NO_TIMESTAMP, -1)
        self._last_timestamp = NO_TIMESTAMP

    def add(self, batch: IndexedBatch) -> tuple[OffsetIndexEntry | None, TimeIndexEntry | None]:
        """The entries that this batch brings. There is none in the time index while no timestamp has risen."""
        if batch.max_timestamp_ms > self._largest.timestamp_ms:
            self._largest = TimeIndexEntry(batch.max_timestamp_ms, batch.last_offset)
        offset_entry = time_entry = None
        if self._bytes_since_entry > self._interval_bytes:
            offset_entry = OffsetIndexEntry(batch.last_offset, batch.position)
            time_entry = self._due_time_entry()
            self._bytes_since_entry = 0
        self._bytes_since_entry += batch.size_bytes
        return offset_entry, time_entry

    def finish(self) -> TimeIndexEntry | None:
        """The entry that a time index gets when its segment is rolled or closed, or its recovery ends."""
        return self._due_time_entry()

    def _due_time_entry(self) -> TimeIndexEntry | None:
        if self._largest.timestamp_ms <= self._last_timestamp:
            return None
        self._last_timestamp = self._largest.timestamp_ms
        return self._largest


def index_entries(
    batches: Iterable[IndexedBatch], *, interval_bytes: int = DEFAULT_INTERVAL_BYTES
) -> Iterator[OffsetIndexEntry | TimeIndexEntry]:
    """Every entry of both indexes of a closed segment, in the order they are written."""
    rule = IndexRule(interval_bytes=interval_bytes)
    for batch in batches:
        yield from (entry for entry in rule.add(batch) if entry is not None)
    final = rule.finish()
    if final is not None:
        yield final


def _unpack_used(data: Bytes, layout: Layout) -> Iterator[tuple[int, tuple[int, ...]]]:
    return _unpack(data, layout, used_bytes(data, layout))


def _unpack(data: Bytes, layout: Layout, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    for position in range(0, end - layout.size + 1, layout.size):
        yield position, layout.unpack(data, position)


def _check_whole(data: Bytes, layout: Layout, report: OnCorrupt) -> None:
    left_over = len(data) % layout.size
    if left_over:
        report(
            CorruptRecord(
                "an index ends inside an entry",
                fault=Fault.TRAILING_BYTES,
                position=len(data) - left_over,
                expected=f"a multiple of {layout.size} bytes",
                found=f"{len(data)} bytes",
            )
        )


def _relative(offset: int, base_offset: int) -> int:
    relative = offset - base_offset
    if not 0 <= relative <= _INT32_MAX:
        raise InvalidRecord(f"an index entry cannot hold offset {offset} of a segment that starts at {base_offset}")
    return relative


def _out_of_order(rule: str, position: int, *, expected: str, found: str) -> CorruptRecord:
    return CorruptRecord(f"{rule}, but this entry does not", position=position, expected=expected, found=found)


def _raise(error: CorruptRecord) -> None:
    raise error
