"""The offset map: its limits, what it says when it is full, and what it learns of superseded offsets.

That its table is Kafka's, byte for byte: `test_offset_map_twins`.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from duralog.kernels.key_digests import Digests
from duralog.kernels.offset_map import OffsetMap


def digests(*keys: str) -> Digests:
    return np.frombuffer(b"".join(hashlib.md5(key.encode()).digest() for key in keys), np.uint64).reshape(-1, 2)


def put(offset_map: OffsetMap, **offsets: int) -> int:
    return offset_map.put(digests(*offsets), np.array(list(offsets.values()), np.int64))


def superseded(offset_map: OffsetMap) -> list[int]:
    assert offset_map.superseded is not None
    marks = np.flatnonzero(np.unpackbits(offset_map.superseded.bits, bitorder="little"))
    return [offset_map.superseded.first_offset + int(mark) for mark in marks]


def test_the_defaults_of_kafka_give_the_room_that_kafka_has() -> None:
    offset_map = OffsetMap(128 << 20)
    assert (offset_map.slots, offset_map.capacity) == (5_592_405, 5_033_164)


@pytest.mark.parametrize(("memory_bytes", "load_factor"), [(0, 0.9), (23, 0.9), (47, 0.9), (48, 0.5), (2400, 0.0)])
def test_no_room_for_a_key(memory_bytes: int, load_factor: float) -> None:
    with pytest.raises(ValueError, match="expected more than 1 slot of 24 bytes, found"):
        OffsetMap(memory_bytes, load_factor)


def test_the_smallest_map_takes_one_key() -> None:
    offset_map = OffsetMap(48)
    assert offset_map.capacity == 1
    assert put(offset_map, a=7, b=8) == 1
    assert offset_map.find(digests("a", "b")).tolist() == [7, -1]


def test_a_new_map() -> None:
    offset_map = OffsetMap(2400)
    assert (offset_map.size, offset_map.latest_offset, offset_map.fill, offset_map.superseded) == (0, -1, 0.0, None)
    assert offset_map.find(digests("a")).tolist() == [-1]


def test_the_last_put_wins() -> None:
    offset_map = OffsetMap(2400)
    assert put(offset_map, a=1, b=2) == 2
    assert put(offset_map, a=5) == 1
    assert offset_map.find(digests("a", "b", "c")).tolist() == [5, 2, -1]
    assert (offset_map.size, offset_map.latest_offset, offset_map.fill) == (2, 5, 0.02)


def test_nothing_to_put_changes_nothing() -> None:
    offset_map = OffsetMap(2400)
    assert put(offset_map) == 0
    assert (offset_map.size, offset_map.latest_offset) == (0, -1)


def test_a_full_map_takes_not_even_a_key_that_it_has() -> None:
    offset_map = OffsetMap(10 * 24, load_factor=0.3)
    assert put(offset_map, a=1, b=2, c=3, d=4) == 3
    assert put(offset_map, a=5) == 0
    assert offset_map.find(digests("a", "b", "c", "d")).tolist() == [1, 2, 3, -1]
    assert (offset_map.size, offset_map.capacity, offset_map.latest_offset) == (3, 3, 3)


def test_every_slot_can_be_taken() -> None:
    names = [str(number) for number in range(1000)]
    offset_map = OffsetMap(1000 * 24, load_factor=1.5)
    assert put(offset_map, **{name: number for number, name in enumerate(names)}) == 1000
    assert (offset_map.capacity, offset_map.fill) == (1000, 1.0)
    assert offset_map.find(digests("none of them")).tolist() == [-1]


def test_clearing_forgets_everything() -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(0, 10)
    put(offset_map, a=1, b=2)
    offset_map.reach(9)
    offset_map.clear()
    assert (offset_map.size, offset_map.latest_offset, offset_map.superseded) == (0, -1, None)
    assert not offset_map.table.any()
    assert offset_map.find(digests("a")).tolist() == [-1]


def test_offsets_may_start_again_after_clearing() -> None:
    offset_map = OffsetMap(2400)
    put(offset_map, a=100)
    offset_map.clear()
    offset_map.watch(0, 10)
    put(offset_map, a=0)
    put(offset_map, a=1)
    assert superseded(offset_map) == [0]


def test_the_latest_offset_only_grows() -> None:
    offset_map = OffsetMap(2400)
    offset_map.reach(50)
    put(offset_map, a=7)
    assert offset_map.latest_offset == 50
    offset_map.reach(20)
    assert offset_map.latest_offset == 50
    put(offset_map, a=60)
    assert offset_map.latest_offset == 60


def test_offsets_that_lost_their_key_are_marked() -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(100, 120)
    put(offset_map, a=100, b=101, c=110)
    put(offset_map, b=111, a=112)
    put(offset_map, a=119)
    assert superseded(offset_map) == [100, 101, 112]


def test_offsets_outside_of_the_watched_ones_are_not_marked() -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(10, 12)
    put(offset_map, a=9, b=10, c=11, d=12)
    put(offset_map, a=13, b=14, c=15, d=16)
    assert superseded(offset_map) == [10, 11]


@pytest.mark.parametrize("second", [4, 5])
def test_offsets_that_do_not_increase_end_the_watching(second: int) -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(0, 100)
    put(offset_map, a=5, b=second)
    assert offset_map.superseded is None
    assert offset_map.find(digests("a", "b")).tolist() == [5, second]


def test_the_order_is_watched_from_one_put_to_the_next() -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(0, 100)
    put(offset_map, a=5)
    put(offset_map, b=5)
    assert offset_map.superseded is None


def test_marks_take_an_eighth_of_the_memory_at_most() -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(0, 2401)
    assert offset_map.superseded is None
    offset_map.watch(0, 2400)
    assert offset_map.superseded is not None
    assert offset_map.superseded.bits.nbytes == 300


@pytest.mark.parametrize("end_offset", [-5, 0])
def test_an_empty_range_is_not_watched(end_offset: int) -> None:
    offset_map = OffsetMap(2400)
    offset_map.watch(0, end_offset)
    assert offset_map.superseded is None


def test_digests_and_offsets_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 digests with 1 offsets"):
        OffsetMap(2400).put(digests("a", "b"), np.zeros(1, np.int64))


def test_the_largest_offset() -> None:
    offset_map = OffsetMap(2400)
    put(offset_map, a=2**63 - 1)
    assert offset_map.find(digests("a")).tolist() == [2**63 - 1]


def test_entries_are_what_was_put() -> None:
    offset_map = OffsetMap(2400)
    put(offset_map, a=1, b=2, c=0)
    put(offset_map, a=2**62 + 5)
    found, offsets = offset_map.entries()
    assert len(found) == 3
    told = {digest.tobytes(): offset for digest, offset in zip(found, offsets.tolist(), strict=True)}
    expected = dict(zip((digest.tobytes() for digest in digests("a", "b", "c")), (2**62 + 5, 2, 0), strict=True))
    assert told == expected
    assert offset_map.offsets().tolist() == offsets.tolist()


def test_an_empty_map_has_no_entries() -> None:
    found, offsets = OffsetMap(2400).entries()
    assert (found.shape, offsets.shape) == ((0, 2), (0,))
