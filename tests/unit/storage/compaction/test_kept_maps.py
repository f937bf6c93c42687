"""The memory of a large map is used again, by one compaction at a time, and freed when unused."""

from __future__ import annotations

import numpy as np

from duralog.kernels.key_digests import digests_of
from duralog.kernels.offset_map import NO_OFFSET, OffsetMap
from duralog.storage.compaction.kept_maps import KeptMaps

LARGE = 16 << 20
DIGESTS = digests_of(np.frombuffer(b"abc", np.uint8), np.arange(3), np.ones(3, np.int32))
OFFSETS = np.arange(3)


def used(maps: KeptMaps, memory_bytes: int = LARGE, load_factor: float = 0.9) -> OffsetMap:
    with maps.lent() as make:
        made = make(memory_bytes, load_factor)
        assert (made.size, made.latest_offset, made.superseded) == (0, NO_OFFSET, None)
        assert made.find(DIGESTS).tolist() == [NO_OFFSET] * 3
        assert made.put(DIGESTS, OFFSETS) == 3
        assert made.find(DIGESTS).tolist() == [0, 1, 2]
        return made


def test_a_large_map_is_used_again() -> None:
    maps = KeptMaps()
    assert used(maps) is used(maps)


def test_one_of_another_size_or_that_is_small_is_not() -> None:
    maps = KeptMaps()
    first = used(maps)
    assert used(maps, LARGE + 24) is not first
    assert used(maps, LARGE + 24, 0.5).capacity < used(maps, LARGE + 24).capacity
    assert used(maps, 2400) is not used(maps, 2400)


def test_two_at_a_time_have_one_each() -> None:
    maps = KeptMaps()
    with maps.lent() as make, maps.lent() as make_other:
        assert make(LARGE, 0.9) is not make_other(LARGE, 0.9)


def test_what_is_given_back_is_not_used_again() -> None:
    maps = KeptMaps()
    first = used(maps)
    maps.drop()
    assert used(maps) is not first
