"""Where rows go: Kafka's murmur2 for keys, full batches for rows without, the same again for a repeated task."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.columnar.writable import binary_column
from duralog.format.murmur2 import murmur2, partition_of_key
from duralog.kernels.key_partitions import partitions_of_keys
from duralog.spark.sink.partitioner import UNDECIDED, Partitioner

KAFKAS_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""The hashes that Kafka's own test of it expects, as Java's signed numbers."""


@pytest.mark.parametrize(("key", "expected"), KAFKAS_OWN.items())
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32
    assert partition_of_key(key, 7) == (expected & 0x7FFFFFFF) % 7


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 2**31 - 1)), max_size=30))
def test_the_kernel_agrees_with_the_plain_one(rows: list[tuple[bytes, int]]) -> None:
    column = binary_column(pa.chunked_array([pa.array([key for key, _ in rows], pa.binary())]), "key")
    counts = np.array([count for _, count in rows], np.int32)
    counts.flags.writeable = False
    out = np.full(len(rows), UNDECIDED, np.int32)
    partitions_of_keys(column.offsets, column.data, counts, out)
    assert out.tolist() == [partition_of_key(key, count) for key, count in rows]


def choose(
    partitioner: Partitioner,
    keys: list[bytes | None],
    values: list[bytes],
    partitions: int,
    given: list[int] | None = None,
) -> list[int]:
    key = binary_column(pa.chunked_array([pa.array(keys, pa.binary())]), "key")
    value = binary_column(pa.chunked_array([pa.array(values, pa.binary())]), "value")
    has_key = np.array([key is not None for key in keys])
    own = None if given is None else np.array(given, np.int32)
    chosen = partitioner.choose(np.full(len(keys), partitions, np.int32), key, has_key, value, own)
    return [int(partition) for partition in chosen]


def test_a_rows_own_partition_comes_before_its_key() -> None:
    chosen = choose(Partitioner(0, 1000), [b"a", b"b", None], [b""] * 3, 9, given=[8, UNDECIDED, 5])
    assert chosen == [8, partition_of_key(b"b", 9), 5]


def test_rows_without_a_key_fill_a_batch_before_the_next_partition() -> None:
    chosen = choose(Partitioner(1, 1000), [None] * 100, [b"x" * 92] * 100, 3)
    assert chosen[:10] == [1] * 10
    assert chosen[10:20] == [2] * 10
    assert chosen[20:30] == [0] * 10
    assert sorted(set(chosen)) == [0, 1, 2]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 20))
def test_how_the_rows_come_cut_makes_no_difference(sizes: list[int], cut: int) -> None:
    keys = [None if size % 3 else b"%d" % size for size in sizes]
    values = [b"v" * size for size in sizes]
    whole = choose(Partitioner(4, 256), keys, values, 5)
    partitioner = Partitioner(4, 256)
    pieces: list[int] = []
    for begin in range(0, len(sizes), cut):
        pieces += choose(partitioner, keys[begin : begin + cut], values[begin : begin + cut], 5)
    assert pieces == whole
