"""MD5 in vector lanes: the lengths at which padding and blocks change, and keys at the ends of the data.

Random keys against `hashlib`: `test_offset_map_twins`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from duralog.kernels.key_digests import _ROWS, LANES, digest_keys, digests_of


def keys_in(data: bytes, places: list[tuple[int, int]]) -> list[bytes]:
    positions = np.array([position for position, _ in places], np.int64)
    lengths = np.array([length for _, length in places], np.int32)
    digests = digests_of(np.frombuffer(data, np.uint8), positions, lengths)
    assert digests.shape == (len(places), 2)
    return [row.tobytes() for row in digests]


def expected(data: bytes, places: list[tuple[int, int]]) -> list[bytes]:
    return [hashlib.md5(data[position : position + length]).digest() for position, length in places]


DATA = bytes(range(256)) * 8


@pytest.mark.parametrize("length", [*range(66), *range(117, 131), 183, 184, 191, 192, 2048])
def test_every_length_around_the_ends_of_words_and_blocks(length: int) -> None:
    assert keys_in(DATA, [(0, length)]) == [hashlib.md5(DATA[:length]).digest()]


def test_no_keys() -> None:
    assert keys_in(DATA, []) == []


@pytest.mark.parametrize("count", [1, LANES - 1, LANES, LANES + 1, 3 * LANES + 5])
def test_any_number_of_keys(count: int) -> None:
    places = [(number, 10) for number in range(count)]
    assert keys_in(DATA, places) == expected(DATA, places)


def test_long_and_short_keys_side_by_side() -> None:
    places = [(number, (number * 37) % 200 if number % 3 else 3) for number in range(5 * LANES)]
    assert keys_in(DATA, places) == expected(DATA, places)


def test_a_long_key_leaves_nothing_in_its_lane_for_the_next_one() -> None:
    places = [(0, 1000)] * LANES + [(0, 1)] * LANES
    assert keys_in(DATA, places) == expected(DATA, places)


@pytest.mark.parametrize("size", [0, 1, 3, 7, 8, 9, 15, 63, 64])
def test_keys_that_end_where_the_data_ends(size: int) -> None:
    data = DATA[:size]
    places = [(size - length, length) for length in range(size + 1)]
    assert keys_in(data, places) == expected(data, places)


def test_other_bytes_of_the_data_do_not_matter() -> None:
    first, second = b"\xff" * 64 + b"key" + b"\xff" * 64, b"\x00" * 64 + b"key"
    assert keys_in(first, [(64, 3)]) == keys_in(second, [(64, 3)]) == [hashlib.md5(b"key").digest()]


@pytest.mark.slow
def test_a_cpu_without_vectors_makes_the_same_digests() -> None:
    """The same source, compiled for the plainest CPU of this kind: fewer lanes, narrow instructions."""
    script = (
        "import hashlib, numpy as np\n"
        "from duralog.kernels.key_digests import LANES, digests_of\n"
        "data = bytes(range(250)) * 4\n"
        "lengths = np.arange(100, dtype=np.int32)\n"
        "digests = digests_of(np.frombuffer(data, np.uint8), lengths.astype(np.int64), lengths)\n"
        "assert digests.tobytes() == b''.join(hashlib.md5(data[n : 2 * n]).digest() for n in range(100))\n"
        "print(LANES)\n"
    )
    plain = {**os.environ, "DURALOG_KERNELS": "numba", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    answer = subprocess.run([sys.executable, "-c", script], env=plain, capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.stderr) == ("16\n", "")


def test_a_workspace_for_fewer_lanes_is_refused() -> None:
    one = np.zeros(1, np.int64)
    workspace = np.zeros(_ROWS * LANES - 1, np.uint32)
    digests = np.zeros(2, np.uint64)
    assert digest_keys(np.zeros(0, np.uint8), one, one.astype(np.int32), workspace, digests) == 0
    assert not digests.any()
