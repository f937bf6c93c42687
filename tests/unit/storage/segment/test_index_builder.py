"""Indexes built again from batches: the kernel against the rule in plain Python, and where a bad segment ends."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.pieces import Piece
from duralog.errors import Fault
from duralog.format import message_set, record_batch
from duralog.format.index_entries import (
    OffsetIndexEntry,
    TimeIndexEntry,
    encode_offset_index,
    encode_time_index,
    index_entries,
)
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.segment.index_builder import BuiltIndexes, IndexBuilder, build_indexes

BASE = 500


def rows_of(batches: list[tuple[int, int, int]], base: int = BASE) -> np.ndarray[Any, Any]:
    """Rows of v2 batches that follow each other: (size, offsets in it, largest timestamp)."""
    rows = np.zeros(len(batches), BATCH_DTYPE)
    position, offset = 0, base
    for row, (size, offsets, timestamp) in zip(rows, batches, strict=True):
        row["position"], row["size"], row["max_timestamp"] = position, size, timestamp
        row["base_offset"], row["last_offset"] = offset, offset + offsets - 1
        row["magic"], row["crc_ok"] = 2, 1
        position, offset = position + size, offset + offsets
    return rows


def by_the_rule(rows: np.ndarray[Any, Any], interval_bytes: int) -> tuple[bytes, bytes]:
    entries = list(
        index_entries(
            [
                SimpleNamespace(
                    position=int(row["position"]),
                    size_bytes=int(row["size"]),
                    last_offset=int(row["last_offset"]),
                    max_timestamp_ms=int(row["max_timestamp"]),
                )
                for row in rows
            ],
            interval_bytes=interval_bytes,
        )
    )
    return (
        encode_offset_index([entry for entry in entries if isinstance(entry, OffsetIndexEntry)], BASE),
        encode_time_index([entry for entry in entries if isinstance(entry, TimeIndexEntry)], BASE),
    )


batch = st.tuples(st.integers(61, 3000), st.integers(1, 5), st.integers(-1, 40))


@given(st.lists(batch, max_size=60), st.integers(0, 6000), st.lists(st.integers(0, 60), max_size=4))
def test_the_kernel_follows_the_rule(batches: list[tuple[int, int, int]], interval_bytes: int, cuts: list[int]) -> None:
    rows = rows_of(batches)
    builder = IndexBuilder(BASE, interval_bytes)
    for run in np.split(rows, sorted(cut for cut in cuts if cut <= len(rows))):
        assert builder.add(run) == len(run)
    assert builder.last_offset == (BASE - 1 if len(rows) == 0 else rows["last_offset"][-1])
    assert builder.finish() == by_the_rule(rows, interval_bytes)


def changed(row: int, **fields: int) -> np.ndarray[Any, Any]:
    rows = rows_of([(100, 2, 5)] * 4)
    for name, value in fields.items():
        rows[name][row] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "valid"),
    [
        (changed(0), 4),
        (changed(2, crc_ok=0), 2),
        (changed(2, crc_ok=-1), 4),
        (changed(2, base_offset=BASE + 3), 2),  # One below the end of the batch before.
        (changed(1, base_offset=BASE + 3), 4),  # A gap, as compaction leaves it.
        (changed(1, last_offset=BASE + 1), 1),
        (changed(0, base_offset=BASE - 1), 0),
        (changed(0, base_offset=-1, magic=1), 4),  # A wrapper does not tell where it begins.
        (changed(0, base_offset=-1), 0),
        (changed(3, base_offset=BASE + 2**31 - 1, last_offset=BASE + 2**31 - 1), 4),
        (changed(3, base_offset=BASE + 2**31 - 1, last_offset=BASE + 2**31), 3),
    ],
)
def test_batches_are_taken_while_they_are_valid_and_in_order(rows: np.ndarray[Any, Any], valid: int) -> None:
    builder = IndexBuilder(BASE, 4096)
    assert builder.add(rows) == valid
    assert builder.last_offset == (rows["last_offset"][valid - 1] if valid else BASE - 1)


def test_no_entry_for_a_position_that_does_not_fit_one() -> None:
    rows = rows_of([(2**30, 1, 5)] * 4)
    builder = IndexBuilder(BASE, 4096)
    assert builder.add(rows) == 4
    offsets, times = builder.finish()
    assert offsets == encode_offset_index([OffsetIndexEntry(BASE + 1, 2**30)], BASE)
    assert times == encode_time_index([TimeIndexEntry(5, BASE)], BASE)


def v2(base_offset: int, records: int = 3) -> bytes:
    return record_batch.encode(
        [Record(key=b"k", value=bytes(50), timestamp_ms=1000 + base_offset + n) for n in range(records)],
        base_offset=base_offset,
    )


def build(tmp_path: Path, data: bytes, **options: Any) -> BuiltIndexes:
    path = tmp_path / "00000000000000000500.log"
    path.write_bytes(data)
    file = LocalFileSystem().open(str(path))
    return build_indexes(file, BASE, end=len(data), interval_bytes=4096, **options)


GOOD = v2(500) + v2(503) + v2(506)


def test_a_sound_segment_is_valid_to_its_end(tmp_path: Path) -> None:
    pieces: list[list[int]] = []
    built = build(tmp_path, GOOD, visit=lambda piece: pieces.append(piece.batches["base_offset"].tolist()))
    assert (built.valid_bytes, built.reason, built.is_overflow) == (len(GOOD), None, False)
    assert (built.last_offset, built.largest_timestamp) == (508, (1508, 508))
    assert pieces == [[500, 503, 506]]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


BAD = [
    (flipped(v2(509), 100), Fault.CRC_MISMATCH, "wrong checksum"),
    (v2(508), Fault.FIELD_VALUE, r"the offsets of a segment do not rise \(expected above 508, found 508 to 510\)"),
    (bytes(100), Fault.BATCH_LENGTH, "length is too small"),
    (v2(509)[:16] + b"\x03" + v2(509)[17:], Fault.UNKNOWN_MAGIC, "unknown format version"),
]
HALF = [
    (bytes(9), Fault.PARTIAL_BATCH, r"ends inside a batch \(expected a whole batch, found 9 bytes\)"),
    (v2(509)[:-1], Fault.PARTIAL_BATCH, "ends inside a batch"),
]


@pytest.mark.parametrize(
    ("behind", "fault", "told"), [*BAD, *HALF, *((bad + v2(512), fault, told) for bad, fault, told in BAD)]
)
def test_the_first_bad_batch_ends_the_valid_part(tmp_path: Path, behind: bytes, fault: Fault, told: str) -> None:
    visited: list[int] = []
    built = build(tmp_path, GOOD + behind, visit=lambda piece: visited.extend(piece.batches["base_offset"]))
    assert built.valid_bytes == len(GOOD)
    assert built.last_offset == 508
    assert visited == [500, 503, 506]
    assert built.reason is not None
    assert built.reason.fault is fault
    assert built.reason.position == len(GOOD)
    assert built.reason.file == str(tmp_path / "00000000000000000500.log")
    with pytest.raises(type(built.reason), match=told):
        raise built.reason


def test_an_offset_too_far_from_the_base_is_distinguished(tmp_path: Path) -> None:
    built = build(tmp_path, GOOD + v2(BASE + 2**31 - 2))
    assert built.is_overflow
    assert built.valid_bytes == len(GOOD)
    assert built.reason is not None
    assert built.reason.expected == f"at most {BASE + 2**31 - 1}"


def test_a_batch_larger_than_a_piece_and_bytes_that_visitors_see(tmp_path: Path) -> None:
    large = record_batch.encode([Record(value=bytes(5 << 20))], base_offset=510)
    seen: list[bytes] = []

    def visit(piece: Piece) -> None:
        for row in piece.batches:
            begin = int(row["position"]) - piece.position
            seen.append(piece.data[begin : begin + int(row["size"])].tobytes())

    data = GOOD + large + v2(511)
    built = build(tmp_path, data, visit=visit)
    assert built.valid_bytes == len(data)
    assert b"".join(seen) == data


def test_messages_of_the_old_formats(tmp_path: Path) -> None:
    records = [Record(key=b"k", value=bytes(30), timestamp_ms=7)] * 3
    data = message_set.encode(records, magic=0, base_offset=500) + message_set.encode(records, magic=1, base_offset=503)
    built = build(tmp_path, data)
    assert (built.valid_bytes, built.reason, built.last_offset) == (len(data), None, 505)
    assert built.largest_timestamp == (7, 503)
    bad = build(tmp_path, flipped(data, len(data) - 1))
    assert bad.reason is not None
    assert bad.reason.fault is Fault.CRC_MISMATCH
