"""The kernel that unpacks LZ4 frames and the reference: what the kernel takes, both unpack to the same.

The kernel may leave a frame to the reference, but not one that Kafka's writer could have made.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord
from duralog.format import lz4_frame
from duralog.kernels.lz4 import FULL, LEFT, ROOM_BYTES, UNPACKED, unpack_frames

DAMAGED_FRAMES = 4000


def unpack(frames: Sequence[bytes], *, room: int = 1 << 20, max_bytes: int = 1 << 30) -> tuple[list[bytes], int]:
    """What the kernel makes of the frames, and why it stopped."""
    sizes = np.array([len(frame) for frame in frames], np.int64)
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join(frames), np.uint8)
    out = np.full(room + 1, 0xEE, np.uint8)
    edges = np.zeros(len(frames) + 1, np.int64)
    number, why = unpack_frames(data, ends - sizes, ends, 0, max_bytes, out[:room], edges[1:])
    assert out[room] == 0xEE
    return [out[begin:end].tobytes() for begin, end in pairwise(edges[: number + 1].tolist())], why


def reference(frame: bytes, *, max_bytes: int = 1 << 30) -> bytes | None:
    try:
        return bytes(lz4_frame.decompress(frame, magic=2, max_bytes=max_bytes))
    except CorruptRecord:
        return None


def sample(chance: random.Random) -> bytes:
    """Text with repetitions far and near, short and long."""
    words = [chance.randbytes(chance.choice((1, 2, 3, 5, 8, 13, 15, 16, 17, 40, 300))) for _ in range(12)]
    repeats = (1, 1, 1, 2, 9, 70)
    return b"".join(chance.choice(words) * chance.choice(repeats) for _ in range(chance.randrange(60)))


@given(st.lists(st.randoms(use_true_random=False).map(sample), max_size=5), st.sampled_from([None, 1, 9, 17]))
def test_frames_as_kafka_writes_them(contents: list[bytes], level: int | None) -> None:
    frames = [lz4_frame.compress(content, magic=2, level=level) for content in contents]
    assert unpack(frames) == (contents, UNPACKED)


@pytest.mark.parametrize("size", [0, 1, 14, 15, 16, 270, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("content", [b"\0", b"ab", b"0123456", b"one longer word than a vector has", None])
def test_sizes_and_distances(size: int, content: bytes | None) -> None:
    whole = random.Random(size).randbytes(size) if content is None else (content * (size // len(content) + 1))[:size]
    assert unpack([lz4_frame.compress(whole, magic=2)]) == ([whole], UNPACKED)


def test_damaged_frames(randomised: int) -> None:
    taken = left = 0
    for seed in range(DAMAGED_FRAMES * randomised):
        chance = random.Random(seed)
        frame = bytearray(lz4_frame.compress(sample(chance), magic=2, level=chance.choice((None, 9))))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(frame))
            if chance.random() < 0.5:
                frame[at] = chance.choice((0, 1, 0x0F, 0x10, 0x1F, 0xF0, 0xFF, chance.randrange(256)))
            elif chance.random() < 0.5:
                del frame[at : at + chance.choice((1, 2, 9))]
            else:
                frame[at:at] = chance.randbytes(chance.choice((1, 2, 9)))
        found, why = unpack([bytes(frame)])
        if why == LEFT:
            left += 1
        else:
            taken += 1
            assert found == [reference(bytes(frame))]
    assert taken
    assert left


def test_short_blocks_of_any_bytes(randomised: int) -> None:
    """Where the rules for the end of a block count: all of them are near it."""
    taken = 0
    for seed in range(DAMAGED_FRAMES * randomised):
        chance = random.Random(seed)
        head = bytes([chance.choice((0x1F, 0x10, 0x50, 0xF0, 0x0F, 0x40))]) + chance.randbytes(chance.randrange(6))
        block = head + bytes(chance.choice((0, 1, 2, 5, 0x10, 0x50, 0xFF)) for _ in range(chance.randrange(24)))
        frame = lz4_frame.HEADER + len(block).to_bytes(4, "little") + block + bytes(4)
        found, why = unpack([frame])
        if why == UNPACKED:
            taken += 1
            assert found == [reference(frame)]
    assert taken


def test_a_frame_of_another_kind_is_left() -> None:
    good = lz4_frame.compress(b"good", magic=2)
    others = [
        b"",
        good[:5],
        good[:-4],
        lz4_frame.compress(b"v0", magic=0),
        b"\0" + good[1:],
        good[:4] + b"\x64" + good[5:],
    ]
    for other in others:
        assert unpack([good, other, good]) == ([b"good"], LEFT)


def test_it_stops_where_the_next_block_might_not_fit() -> None:
    frames = [lz4_frame.compress(b"x" * 1000, magic=2) for _ in range(3)]
    assert unpack(frames, room=ROOM_BYTES - 1) == ([], FULL)
    assert unpack(frames, room=ROOM_BYTES) == ([b"x" * 1000], FULL)
    assert unpack(frames, room=ROOM_BYTES + 1000) == ([b"x" * 1000] * 2, FULL)


def test_more_than_is_allowed_is_left() -> None:
    frame = lz4_frame.compress(b"x" * 1000, magic=2)
    assert unpack([frame], max_bytes=1000) == ([b"x" * 1000], UNPACKED)
    assert unpack([frame], max_bytes=999) == ([], LEFT)
    assert reference(frame, max_bytes=999) is None
