"""What is kept of a damaged segment, and what is found in bytes that were taken out."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from duralog.columnar.pieces import MemorySource
from duralog.errors import Fault
from duralog.format import message_set
from duralog.format.layout import BATCH_V2, MAGIC_POSITION
from duralog.format.record import Record
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.segment import damage
from duralog.storage.segment.damage import Examined, examine, find_batches, longest_ordered
from tests.support.storage.recovery_files import batch, batches, with_flipped_bit

SIZE = len(batch(0))


def examined(log: bytes, *, base_offset: int = 0, limit: int | None = None, skip_broken: bool = False) -> Examined:
    """With a check that every byte is accounted for, once."""
    found = examine(
        MemorySource(log), base_offset=base_offset, end=len(log), limit_offset=limit, skip_broken=skip_broken
    )
    ranges = sorted(found.kept_ranges + [(damage.start, damage.end) for damage in found.damages])
    assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]
    assert not log or (ranges[0][0], ranges[-1][1]) == (0, len(log))
    return found


def kept(found: Examined) -> list[int]:
    offsets: list[int] = found.kept["base_offset"].tolist()
    return offsets


def damages(found: Examined) -> list[tuple[int, int, Fault]]:
    return [(damage.start, damage.end, damage.reason.fault) for damage in found.damages]


def with_magic(log: bytes, position: int, magic: int) -> bytes:
    return log[: position + MAGIC_POSITION] + bytes([magic]) + log[position + MAGIC_POSITION + 1 :]


def with_offset(log: bytes, position: int, offset: int) -> bytes:
    return log[:position] + offset.to_bytes(8, "big", signed=True) + log[position + 8 :]


def with_length(log: bytes, position: int, length: int) -> bytes:
    at = position + BATCH_V2.at.length
    return log[:at] + length.to_bytes(4, "big", signed=True) + log[at + 4 :]


@pytest.mark.parametrize("skip_broken", [False, True])
def test_a_sound_log_is_kept_as_it_is(skip_broken: bool) -> None:
    log = batches((0, 2, 4))
    found = examined(log, skip_broken=skip_broken)
    assert found.kept_ranges == [(0, len(log))]
    assert (found.damages, found.is_broken) == ((), False)


def test_an_empty_log_is_sound() -> None:
    found = examined(b"")
    assert (found.kept_ranges, found.damages, found.is_broken) == ([], (), False)


def test_a_wrong_checksum_ends_the_log_or_is_passed_over() -> None:
    log = with_flipped_bit(batches((0, 2, 4)), SIZE + 70)
    found = examined(log)
    assert (kept(found), found.is_broken) == ([0], True)
    assert damages(found) == [(SIZE, 3 * SIZE, Fault.CRC_MISMATCH)]
    found = examined(log, skip_broken=True)
    assert (kept(found), found.is_broken) == ([0, 4], True)
    assert damages(found) == [(SIZE, 2 * SIZE, Fault.CRC_MISMATCH)]
    assert found.damages[0].reason.position == SIZE


def test_a_broken_last_batch_is_passed_over_to_the_end() -> None:
    found = examined(with_flipped_bit(batches((0, 2)), SIZE + 70), skip_broken=True)
    assert damages(found) == [(SIZE, 2 * SIZE, Fault.CRC_MISMATCH)]


@pytest.mark.parametrize("length", [-5, 13, 10_000, SIZE - 12 + 1])
def test_without_a_way_on_the_rest_goes(length: int) -> None:
    found = examined(with_length(batches((0, 2, 4)), SIZE, length), skip_broken=True)
    assert kept(found) == [0]
    assert [(start, end) for start, end, _ in damages(found)] == [(SIZE, 3 * SIZE)]


def test_half_a_batch_at_the_end() -> None:
    log = batches((0, 2)) + batch(4)[:-1]
    found = examined(log, skip_broken=True)
    assert damages(found) == [(2 * SIZE, len(log), Fault.PARTIAL_BATCH)]
    assert found.is_broken


@pytest.mark.parametrize("skip_broken", [False, True])
def test_a_batch_of_an_unknown_version_goes_alone_if_its_checksum_is_right(skip_broken: bool) -> None:
    # Kafka reads such a batch as one of version 2, and goes on after it.
    found = examined(with_magic(batches((0, 2, 4)), SIZE, 3), skip_broken=skip_broken)
    assert (kept(found), found.is_broken) == ([0, 4], False)
    assert damages(found) == [(SIZE, 2 * SIZE, Fault.UNKNOWN_MAGIC)]


def test_a_batch_of_an_unknown_version_ends_the_log_if_its_checksum_is_wrong() -> None:
    log = with_flipped_bit(with_magic(batches((0, 2, 4)), SIZE, 3), SIZE + 70)
    assert (kept(examined(log)), examined(log).is_broken) == ([0], True)
    assert kept(examined(log, skip_broken=True)) == [0, 4]


def test_a_negative_version_ends_the_log() -> None:
    # Kafka takes it for one of the old formats, whose checksum is another.
    assert examined(with_magic(batches((0, 2, 4)), SIZE, 0x83)).is_broken


def test_after_a_foreign_batch_the_log_may_still_break() -> None:
    log = with_flipped_bit(with_magic(batches((0, 2, 4, 6)), SIZE, 3), 2 * SIZE + 70)
    found = examined(log)
    assert (kept(found), found.is_broken) == ([0], True)
    assert damages(found) == [
        (SIZE, 2 * SIZE, Fault.UNKNOWN_MAGIC),
        (2 * SIZE, 4 * SIZE, Fault.CRC_MISMATCH),
    ]


@pytest.mark.parametrize(("wrong", "place"), [(3, 2), (1 << 40, 2), (100, 1), (-7, 0), (2, 3)])
def test_one_wrong_offset_costs_one_batch(wrong: int, place: int) -> None:
    log = with_offset(batches((0, 2, 4, 6, 8)), place * SIZE, wrong)
    found = examined(log)
    assert kept(found) == [offset for offset in (0, 2, 4, 6, 8) if offset != 2 * place]
    assert damages(found) == [(place * SIZE, (place + 1) * SIZE, Fault.FIELD_VALUE)]
    assert not found.is_broken


def test_offsets_stay_between_the_bases_of_their_segment_and_the_next() -> None:
    log = batches((8, 10, 12, 20))
    assert kept(examined(log, base_offset=10, limit=20)) == [10, 12]
    assert kept(examined(log, base_offset=10, limit=21)) == [10, 12]
    assert kept(examined(log, base_offset=9, limit=22)) == [10, 12, 20]


def test_old_messages_are_in_order_by_their_last_offset() -> None:
    records = [Record(key=b"k", value=b"v", timestamp_ms=1)]
    log = b"".join(message_set.encode(records, magic=1, base_offset=offset) for offset in (5, 3, 9))
    found = examined(log, base_offset=0)
    assert found.kept["last_offset"].tolist() == [3, 9]
    broken = with_flipped_bit(log, len(log) // 3 + 25)
    assert examined(broken, skip_broken=True).kept["last_offset"].tolist() == [5, 9]


def rows(ranges: list[tuple[int, int]]) -> NDArray[Any]:
    table = np.zeros(len(ranges), BATCH_DTYPE)
    table["magic"] = 2
    if ranges:
        table["base_offset"], table["last_offset"] = zip(*ranges, strict=True)
    return table


def is_ordered(ranges: list[tuple[int, int]]) -> bool:
    return all(before[1] < after[0] for before, after in pairwise(ranges))


@given(st.lists(st.tuples(st.integers(-3, 12), st.integers(-1, 3)), max_size=9), st.integers(6, 12) | st.none())
def test_the_longest_ordered_row_is_as_long_as_any(drawn: list[tuple[int, int]], limit: int | None) -> None:
    ranges = [(first, first + delta) for first, delta in drawn]
    chosen = longest_ordered(rows(ranges), 0, limit)

    def is_possible(place: int) -> bool:
        first, last = ranges[place]
        return 0 <= first <= last and (limit is None or last < limit)

    assert all(map(is_possible, chosen))
    assert chosen == sorted(set(chosen))
    assert is_ordered([ranges[place] for place in chosen])
    possible = [place for place in range(len(ranges)) if is_possible(place)]
    longer = combinations(possible, len(chosen) + 1)
    assert not any(is_ordered([ranges[place] for place in places]) for places in longer)


def found_in(data: bytes) -> list[int]:
    return [int(offset) for run in find_batches(MemorySource(data)) for offset in run["base_offset"]]


def test_batches_are_found_by_their_lengths() -> None:
    assert found_in(with_flipped_bit(batches((0, 2, 4)), SIZE + 70)) == [0, 4]


def test_batches_are_found_by_a_search_where_the_lengths_are_gone() -> None:
    log = batches((0, 2, 4, 6))
    assert found_in(with_length(log, SIZE, -1)) == [0, 4, 6]
    assert found_in(b"\x02" * 1000 + log) == [0, 2, 4, 6]
    assert found_in(log[:-1]) == [0, 2, 4]
    assert found_in(b"") == found_in(b"\0" * 100) == found_in(bytes(range(256)) * 10) == []


def test_a_batch_over_the_borders_of_the_search_is_found() -> None:
    log = batches((0, 2))
    for gap in range((1 << 20) - SIZE - 3, (1 << 20) + 3, 7):
        assert found_in(b"\xff" * gap + log) == [0, 2]


def test_a_batch_in_the_value_of_a_record_is_not_taken_for_one_of_the_log() -> None:
    outer = batch(10, 2, value=batch(3))
    broken = with_length(outer, 0, -1) + batch(12)
    assert found_in(broken) == [12]


def test_a_search_that_costs_too_much_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every few bytes the header of a batch that reaches far, and whose checksum is wrong.
    header = bytearray(batch(0)[: BATCH_V2.size])
    header[BATCH_V2.at.length : BATCH_V2.at.length + 4] = (400_000).to_bytes(4, "big")
    data = b"\xff" + bytes(header) * 8000 + batch(5)
    assert found_in(data) == []
    monkeypatch.setattr(damage, "_CHECKED_AT_MOST", 1 << 20)
    assert found_in(data) == [5]
