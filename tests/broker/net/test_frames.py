"""Frames from a stream of bytes, however it is cut: whole, byte by byte, with trailing bytes, at random."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from itertools import pairwise

import pytest

from duralog.broker.wire.frames import FrameReader, InvalidFrame, decode_header, skip_tagged_fields

LARGEST = 1 << 20
SHARED_BYTES = 300_000

STREAMS = {
    "nothing": [],
    "one": [b"request"],
    "empty": [b""],
    "several": [b"a", b"", b"bcd", b"e" * 100],
    "up to the shared buffer": [b"x" * (SHARED_BYTES - 4), b"y"],
    "more than half of the shared buffer": [b"x" * 200_000, b"y" * 200_000, b"z"],
    "larger than the shared buffer": [b"first", b"x" * (SHARED_BYTES + 7), b"last"],
    "at the limit": [b"z" * LARGEST, b"after"],
    "around the size from which a frame has its own buffer": [b"q" * (65_536 - 4 + more) for more in range(-2, 3)],
}


def framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def read_all(pieces: Iterable[bytes], largest: int = LARGEST) -> tuple[list[bytes], FrameReader]:
    """What a connection sees: pieces arrive one by one, and others use the shared buffer in between."""
    shared = memoryview(bytearray(SHARED_BYTES))
    reader = FrameReader(largest)
    found: list[bytes] = []
    for piece in pieces:
        rest = piece
        while rest:
            space = reader.space(shared)
            assert len(space) > 0
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            rest = rest[count:]
            reader.received(count)
            while (frame := reader.next_frame()) is not None:
                found.append(bytes(frame))
            reader.keep()
            shared[:] = b"\xee" * len(shared)
    return found, reader


@pytest.mark.parametrize("frames", STREAMS.values(), ids=STREAMS)
class TestEveryCut:
    def test_whole(self, frames: list[bytes]) -> None:
        found, reader = read_all([framed(frames)])
        assert found == frames
        assert reader.held_bytes == 0

    def test_byte_by_byte(self, frames: list[bytes]) -> None:
        if sum(map(len, frames)) > 1000:
            # The parts that matter: around sizes, begins and ends.
            stream = framed(frames)
            edges, position = {0}, 0
            for frame in frames:
                edges |= {position + step for step in range(-3, 8)}
                position += 4 + len(frame)
            cuts = sorted(edge for edge in edges | {len(stream)} if 0 <= edge <= len(stream))
            pieces = [stream[start:end] for start, end in pairwise(cuts)]
        else:
            pieces = [bytes([byte]) for byte in framed(frames)]
        found, reader = read_all(pieces)
        assert found == frames
        assert reader.held_bytes == 0

    def test_with_trailing_bytes(self, frames: list[bytes]) -> None:
        for trailing in (b"\0", b"\0\0\0", b"\0\0\0\5", b"\0\0\0\5half"):
            found, reader = read_all([framed(frames) + trailing])
            assert found == frames
            assert reader.held_bytes == len(trailing)
            assert reader.next_frame() is None

    def test_at_random(self, frames: list[bytes]) -> None:
        rng = random.Random(len(frames))
        stream = framed(frames)
        for _ in range(20):
            cuts = sorted({0, len(stream), *(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(12)))})
            pieces = [stream[start:end] for start, end in pairwise(cuts)]
            found, reader = read_all(pieces)
            assert found == frames
            assert reader.held_bytes == 0


class TestSizes:
    @pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
    def test_a_size_out_of_range_is_refused_as_soon_as_it_is_there(self, size: int) -> None:
        with pytest.raises(InvalidFrame, match=f"says it has {size} bytes; from 0 to 100"):
            read_all([struct.pack(">i", size)], largest=100)

    @pytest.mark.parametrize(
        ("begins", "hint"),
        [
            (b"\x16\x03\x01\x02\x00\x01", "the client speaks TLS"),
            (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
            (b"\x7f\xff\xff\xff", "are allowed$"),
        ],
    )
    def test_who_has_come_to_the_wrong_port_is_recognised(self, begins: bytes, hint: str) -> None:
        with pytest.raises(InvalidFrame, match=hint):
            read_all([begins], largest=100 << 20)

    def test_what_came_before_it_is_still_found(self) -> None:
        shared = memoryview(bytearray(SHARED_BYTES))
        reader = FrameReader(100)
        data = framed([b"good"]) + struct.pack(">i", -5)
        reader.space(shared)[: len(data)] = data
        reader.received(len(data))
        assert bytes(reader.next_frame() or b"") == b"good"
        with pytest.raises(InvalidFrame):
            reader.next_frame()

    def test_a_claim_costs_no_memory(self) -> None:
        """A client that says it sends 100 MB gets no buffer of that size before the bytes are there."""
        _, reader = read_all([struct.pack(">i", 100 << 20) + b"only this"], largest=100 << 20)
        shared = memoryview(bytearray(SHARED_BYTES))
        assert len(reader.space(shared)) <= 64 << 10

    def test_room_grows_with_what_arrives(self) -> None:
        frame = bytes(range(256)) * 4000
        found, _ = read_all([struct.pack(">i", len(frame)), *(frame[i : i + 999] for i in range(0, len(frame), 999))])
        assert found == [frame]


def header(api_key: int, version: int, correlation_id: int, client_id: bytes | None, rest: bytes = b"") -> memoryview:
    length = -1 if client_id is None else len(client_id)
    return memoryview(struct.pack(">hhih", api_key, version, correlation_id, length) + (client_id or b"") + rest)


class TestHeader:
    @pytest.mark.parametrize(
        ("client_id", "told"),
        [(None, None), (b"", ""), (b"me", "me"), ("\u00e9".encode(), "\u00e9"), (b"\xff\xfe", "\ufffd\ufffd")],
    )
    def test_fields(self, client_id: bytes | None, told: str | None) -> None:
        found = decode_header(header(3, 12, -7, client_id, b"body"))
        assert (found.api_key, found.version, found.correlation_id, found.client_id) == (3, 12, -7, told)
        assert found.body_position == 10 + len(client_id or b"")

    def test_cut_anywhere(self) -> None:
        whole = header(3, 12, 1, b"client")
        for size in range(len(whole)):
            with pytest.raises(InvalidFrame):
                decode_header(whole[:size])

    @pytest.mark.parametrize("length", [5, 32767])
    def test_a_client_id_that_is_not_there(self, length: int) -> None:
        with pytest.raises(InvalidFrame, match=f"says it has {length} bytes, 4 are there"):
            decode_header(memoryview(struct.pack(">hhih", 3, 1, 1, length) + b"four"))

    @pytest.mark.parametrize("length", [-1, -2, -32768])
    def test_every_negative_length_is_no_client_id(self, length: int) -> None:
        assert decode_header(memoryview(struct.pack(">hhih", 3, 1, 1, length) + b"body"))[3:] == (None, 10)

    @pytest.mark.parametrize(
        ("tags", "size"),
        [
            (b"\0", 1),
            (b"\x01\x07\x03abc", 6),
            (b"\x02\0\0\x80\x01\x01x", 7),
            (b"\x80\0", 2),
            (b"\xff\xff\xff\xff\x0f", 5),
        ],
    )
    def test_tagged_fields_are_skipped(self, tags: bytes, size: int) -> None:
        assert skip_tagged_fields(memoryview(b"xx" + tags + b"body"), 2) == 2 + size

    def test_more_tagged_fields_than_make_sense(self) -> None:
        with pytest.raises(InvalidFrame, match="a header with 1001 tagged fields"):
            skip_tagged_fields(memoryview(b"\xe9\7" + b"\1\0" * 1001), 0)

    @pytest.mark.parametrize("tags", [b"", b"\x01", b"\x01\0", b"\x01\0\x05abc", b"\x80", b"\xff\xff\xff\xff\xff\xff"])
    def test_tagged_fields_that_end_too_early(self, tags: bytes) -> None:
        with pytest.raises(InvalidFrame):
            skip_tagged_fields(memoryview(b"xx" + tags), 2)
