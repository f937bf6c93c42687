"""Buffers for large requests: used again, few of them, and never by two connections at a time."""

from __future__ import annotations

import os
import struct

from duralog.broker.wire.frames import SHARED_BUFFER_BYTES, SPARE_BUFFER_BYTES, FrameReader

_LARGEST = 10 << 20
_LARGE = SPARE_BUFFER_BYTES - 1000


def _feed(reader: FrameReader, data: bytes, shared: memoryview, piece_bytes: int = 100_000) -> list[bytes]:
    """The frames that come out, when the bytes arrive in pieces."""
    found: list[bytes] = []
    sent = 0
    while sent < len(data):
        space = reader.space(shared)
        count = min(len(space), piece_bytes, len(data) - sent)
        space[:count] = data[sent : sent + count]
        sent += count
        reader.received(count)
        while (frame := reader.next_frame()) is not None:
            found.append(bytes(frame))
        reader.keep()
    return found


def _framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def test_a_buffer_is_used_again() -> None:
    spares: list[memoryview] = []
    shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
    contents = [os.urandom(_LARGE - 1000 * number) for number in range(5)]
    reader = FrameReader(_LARGEST, spares)
    assert _feed(reader, b"".join(map(_framed, contents[:1])), shared) == contents[:1]
    (spare,) = spares
    assert _feed(reader, b"".join(map(_framed, contents)), shared) == contents
    # Another connection takes the same one.
    assert _feed(FrameReader(_LARGEST, spares), _framed(contents[2]), shared, 7000) == [contents[2]]
    assert [one.obj for one in spares] == [spare.obj]


def test_connections_do_not_share_one_at_a_time() -> None:
    spares: list[memoryview] = []
    shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
    contents = [bytes([number]) * _LARGE for number in range(8)]
    readers = [FrameReader(_LARGEST, spares) for _ in contents]
    most = _LARGE - 10
    for _ in range(2):
        for reader, content in zip(readers, contents, strict=True):
            assert _feed(reader, _framed(content)[:most], shared) == []
        for reader, content in zip(readers, contents, strict=True):
            assert _feed(reader, _framed(content)[most:], shared) == [content]
        # Not more than a few are kept.
        assert len(spares) == 4


def test_larger_requests_have_their_own() -> None:
    spares: list[memoryview] = []
    shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
    content = os.urandom(2 * SPARE_BUFFER_BYTES)
    assert _feed(FrameReader(_LARGEST, spares), _framed(content), shared) == [content]
    assert spares == []


def test_a_claim_alone_costs_little() -> None:
    spares: list[memoryview] = []
    shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
    reader = FrameReader(_LARGEST, spares)
    assert _feed(reader, struct.pack(">i", _LARGE) + b"x" * 100, shared) == []
    assert len(reader.space(shared)) < 200_000
