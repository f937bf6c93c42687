"""The body of a Produce response, encoded by hand, for all served versions (3 to 13)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from duralog.broker.produce.request import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS
from duralog.broker.wire.error_codes import NONE
from duralog.broker.wire.request import CLOSE, NO_ANSWER, RawAnswer, Silence
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.varint import encode_unsigned_varint

NO_OFFSET = -1
_FIRST_WITH_START_OFFSET = 5
_FIRST_WITH_RECORD_ERRORS = 8
_MOST_TEXT_BYTES = 2**15 - 1
"""What fits a length of two bytes. Longer texts are truncated."""

_NOT_THROTTLED = bytes(4)
_FLEXIBLE_END = _NOT_THROTTLED + b"\0"
_NULL = 0
_EMPTY = 1
_NO_TAGS = 0

_V3 = struct.Struct(">ihqq")
_V5 = struct.Struct(">ihqqq")
_FLEXIBLE = struct.Struct(">ihqqqBBB")
"""A partition without record errors and without a message."""
_pack_flexible = _FLEXIBLE.pack
_NO_RECORD_ERRORS_NO_MESSAGE = struct.pack(">ih", 0, -1)


class PartitionResponse(NamedTuple):
    """The result of one partition's records."""

    error_code: int = NONE
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET
    record_errors: Sequence[tuple[int, str]] = ()
    """Positions in the batch, and the error of the record there."""
    message: str | None = None


PartitionResponses = Mapping[bytes, Mapping[int, PartitionResponse]]
"""Topic, as the request names it, to partition to response."""


def answer(responses: PartitionResponses, acks: int, version: int, *, is_refused: bool) -> RawAnswer | Silence:
    """The answer to a request. With acks=0 there is none: the connection ends if anything was refused."""
    if acks == 0:
        return CLOSE if is_refused else NO_ANSWER
    return RawAnswer([encode(responses, version)])


def encode(responses: PartitionResponses, version: int) -> bytes:
    """The whole body. Clients are never redirected to another broker."""
    return b"".join(
        _flexible_parts(responses, version) if version >= FIRST_FLEXIBLE else _plain_parts(responses, version)
    )


def throttled(answer: RawAnswer, version: int, throttle_ms: int) -> RawAnswer:
    """The same answer for a client that has exceeded a quota."""
    body = answer.parts[-1]
    assert isinstance(body, bytes)
    end = _FLEXIBLE_END if version >= FIRST_FLEXIBLE else _NOT_THROTTLED
    time = struct.pack(">i", throttle_ms)
    return RawAnswer([*answer.parts[:-1], body[: -len(end)] + time + end[len(time) :]])


def _flexible_parts(responses: PartitionResponses, version: int) -> list[bytes]:
    parts = [_varint(len(responses) + 1)]
    for topic, partitions in responses.items():
        if version < FIRST_WITH_TOPIC_IDS:
            parts.append(_varint(len(topic) + 1))
        parts += (topic, _varint(len(partitions) + 1))
        for index, response in partitions.items():
            code, base_offset, append_time, start_offset, record_errors, message = response
            if not record_errors and message is None:
                parts.append(
                    _pack_flexible(index, code, base_offset, append_time, start_offset, _EMPTY, _NULL, _NO_TAGS)
                )
                continue
            parts += (
                _V5.pack(index, code, base_offset, append_time, start_offset),
                _varint(len(record_errors) + 1),
                *(struct.pack(">i", place) + _compact_text(text) + b"\0" for place, text in record_errors),
                _compact_text(message) + b"\0",
            )
        parts.append(b"\0")
    parts.append(_FLEXIBLE_END)
    return parts


def _plain_parts(responses: PartitionResponses, version: int) -> Iterable[bytes]:
    yield struct.pack(">i", len(responses))
    for topic, partitions in responses.items():
        yield struct.pack(">h", len(topic)) + topic + struct.pack(">i", len(partitions))
        for index, response in partitions.items():
            code, base_offset, append_time, start_offset, record_errors, message = response
            if version < _FIRST_WITH_START_OFFSET:
                yield _V3.pack(index, code, base_offset, append_time)
                continue
            yield _V5.pack(index, code, base_offset, append_time, start_offset)
            if version < _FIRST_WITH_RECORD_ERRORS:
                continue
            if not record_errors and message is None:
                yield _NO_RECORD_ERRORS_NO_MESSAGE
                continue
            yield struct.pack(">i", len(record_errors))
            for place, text in record_errors:
                yield struct.pack(">i", place) + _plain_text(text)
            yield _plain_text(message)
    yield _NOT_THROTTLED


_SMALL = tuple(encode_unsigned_varint(value) for value in range(0x80))


def _varint(value: int) -> bytes:
    return _SMALL[value] if value < 0x80 else encode_unsigned_varint(value)


def _cut(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:_MOST_TEXT_BYTES].decode("utf-8", "ignore").encode("utf-8")


def _compact_text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    cut = _cut(text)
    return _varint(len(cut) + 1) + cut


def _plain_text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    cut = _cut(text)
    return struct.pack(">h", len(cut)) + cut
