"""Splits the bytes of a connection into requests, and decodes their headers.

A frame is a 32-bit size and that many bytes. All connections receive into one large shared buffer, in which every
complete frame is handled where it lies. There are no sockets here: bytes in, frames out, and "need more" is an ordinary
answer. What is left over moves to the connection:

- a small part of a frame is put back in front of the next bytes,
- a large frame gets its own buffer, which is received into directly. It grows with what arrives, not with what
  the size says: a claim alone costs nothing. A few such buffers are kept for the next large frame of any connection:
  memory that was never touched before costs more than all copying.

What must always be true: no byte is taken twice or skipped, however the stream is cut; a frame is only valid until the
next call. A size that is negative or above the limit raises `InvalidFrame`: nothing after it on the connection can be
read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from duralog.errors import DuralogError

SHARED_BUFFER_BYTES = 512 << 10
_OWN_BUFFER_FROM_BYTES = 64 << 10
SPARE_BUFFER_BYTES = 1280 << 10
"""Some more than the largest request of Kafka's producer, as it is configured by default."""
_MOST_SPARES = 4
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_NEGATIVE_FROM = 1 << 31
_MOST_TAGGED_FIELDS = 1000
_EMPTY = memoryview(b"")
_NO_TLS = "the client speaks TLS, which this port does not: set security.protocol=PLAINTEXT or SASL_PLAINTEXT"
_NO_HTTP = "the client speaks HTTP, which this port does not; metrics have their own port"
_OTHERS = {b"\x16\x03": _NO_TLS, b"GET ": _NO_HTTP, b"HEAD": _NO_HTTP, b"POST": _NO_HTTP, b"PUT ": _NO_HTTP}
"""How requests of other protocols begin, and what to log when a client has the wrong port."""


class InvalidFrame(DuralogError):
    """The bytes are not a request of Kafka's protocol, or are more than is allowed."""


class FrameReader:
    """The received and unhandled bytes of one connection."""

    __slots__ = ("_area", "_end", "_is_shared", "_needed", "_spares", "_start", "largest_frame_bytes", "owned_bytes")

    def __init__(self, largest_frame_bytes: int, spares: list[memoryview] | None = None) -> None:
        """`spares` are unused buffers for large frames. All connections share them and give them back."""
        self.largest_frame_bytes = largest_frame_bytes
        self._spares = [] if spares is None else spares
        self._area = _EMPTY
        """What was received lies here, from `_start` to `_end`."""
        self._start = 0
        self._end = 0
        self._is_shared = False
        self._needed = 0
        """The size of the frame that is not complete yet, with the size itself; 0 if that is not known."""
        self.owned_bytes = 0
        """The size of the buffer that is this connection's own."""

    @property
    def held_bytes(self) -> int:
        """Received and not handled."""
        return self._end - self._start

    @property
    def growth_bytes(self) -> int:
        """By how much `space` would let the own buffer grow; 0 if that has room, or the shared one is used."""
        if self._end == self._start or not self._is_full():
            return 0
        return self._room_bytes() - self.owned_bytes

    @property
    def missing_bytes(self) -> int:
        """By how much the own buffer would have to grow for the whole frame; 0 if the shared one is used."""
        return max(self._needed - self.owned_bytes, 0) if self.has_large_frame else 0

    @property
    def has_large_frame(self) -> bool:
        """Whether a part of a frame is here that is received into its own buffer."""
        return self._end > self._start and self._needed > _OWN_BUFFER_FROM_BYTES

    def own_whole_frame(self) -> None:
        """Have room for the whole frame. REQUIRES: `has_large_frame`."""
        self._move_to(memoryview(bytearray(self._needed)))

    def space(self, shared: memoryview) -> memoryview:
        """Where the next bytes go: the rest of the shared buffer, or of this frame's own one."""
        held = self._end - self._start
        if held and self._needed > _OWN_BUFFER_FROM_BYTES:
            if self._is_full():
                self._grow()
            return self._area[self._end : self._needed]
        if held:
            shared[:held] = self._area[self._start : self._end]
        self._area = shared
        self._is_shared = True
        self.owned_bytes = 0
        self._start = 0
        self._end = held
        return shared[held:] if held else shared

    def received(self, count: int) -> None:
        """This many bytes were received into the space."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next request without its size, or None if it is not all there yet."""
        start = self._start
        if self._end - start < _SIZE.size:
            self._needed = 0
            return None
        (size,) = _SIZE.unpack_from(self._area, start)
        if not 0 <= size <= self.largest_frame_bytes:
            begins = bytes(self._area[start : start + _SIZE.size])
            strange = next((f": {other}" for first, other in _OTHERS.items() if begins.startswith(first)), "")
            raise InvalidFrame(
                f"a request says it has {size} bytes; from 0 to {self.largest_frame_bytes} are allowed{strange}"
            )
        begin = start + _SIZE.size
        end = begin + size
        if end > self._end:
            self._needed = end - start
            return None
        self._start = end
        return self._area[begin:end]

    def keep(self) -> None:
        """Take what is left out of the shared buffer, which another connection uses next."""
        held = self._end - self._start
        if held == 0:
            if len(self._area) == SPARE_BUFFER_BYTES and len(self._spares) < _MOST_SPARES:
                self._spares.append(self._area)
            self._area = _EMPTY
            self._start = self._end = 0
            self._is_shared = False
            self.owned_bytes = 0
        elif self._is_shared:
            self._move_to(memoryview(bytearray(held)))

    def _is_full(self) -> bool:
        """Whether a large frame does not have its own buffer yet, or has filled it."""
        return self.has_large_frame and (self._is_shared or self._start > 0 or self._end == len(self._area))

    def _room_bytes(self) -> int:
        """The size of the next buffer: at least twice what is held, at most the frame, or that of a spare."""
        needed = self._needed
        room = min(needed, max(2 * self.held_bytes, _OWN_BUFFER_FROM_BYTES))
        is_spare = needed <= SPARE_BUFFER_BYTES and (self._spares or (room == needed and 2 * room > SPARE_BUFFER_BYTES))
        return SPARE_BUFFER_BYTES if is_spare else room

    def _grow(self) -> None:
        if self._spares and self._needed <= SPARE_BUFFER_BYTES:
            self._move_to(self._spares.pop())
        else:
            self._move_to(memoryview(bytearray(self._room_bytes())))

    def _move_to(self, area: memoryview) -> None:
        held = self.held_bytes
        area[:held] = self._area[self._start : self._end]
        self._area = area
        self._is_shared = False
        self.owned_bytes = len(area)
        self._start = 0
        self._end = held


class Header(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Where the body begins, or, in a flexible version, the header's tagged fields."""


def decode_header(frame: memoryview) -> Header:
    """The header of a request. Raises InvalidFrame where there is none."""
    if len(frame) < _HEADER.size:
        raise InvalidFrame(f"a request of {len(frame)} bytes is too short for its header")
    api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
    end = _HEADER.size + max(length, 0)
    if end > len(frame):
        raise InvalidFrame(f"the client id says it has {length} bytes, {len(frame) - _HEADER.size} are there")
    if length < 0:
        return Header(api_key, version, correlation_id, None, end)
    return Header(api_key, version, correlation_id, str(frame[_HEADER.size : end], "utf-8", "replace"), end)


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Where the tagged fields end that begin at the position. None of a request header's has a meaning here."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
    count, position = _unsigned_varint(frame, position)
    if count >= _NEGATIVE_FROM:
        # To Kafka, this is a number below zero, and there are none.
        return position
    if count > _MOST_TAGGED_FIELDS:
        raise InvalidFrame(f"a header with {count} tagged fields; up to {_MOST_TAGGED_FIELDS} are allowed")
    for _ in range(count):
        _, position = _unsigned_varint(frame, position)
        size, position = _unsigned_varint(frame, position)
        position += size
        if position > len(frame):
            raise InvalidFrame("a tagged field of the header runs past the request")
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(frame):
            break
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise InvalidFrame("a number among the header's tagged fields has no end")
