"""The two oldest responses to a fetch: one set of messages, and several such responses in one.

These are the formats that Kafka's documentation, section 5.4 "Log", shows under "Reads" (`MessageSetSend` and
`MultiMessageSetSend`). Kafka 0.7 sent them. The broker does not: they are here for programs that follow that document.

Both start with the same six bytes. The length counts what follows it, including the error code. Then come messages,
copied from a log file as they are, or in the response to a multi-fetch one whole response after the other.

The messages are bytes here: `duralog.format.batches` reads them. They may end inside of a message, which the next fetch
reads again. The response itself must be whole: a length that the bytes cannot hold, or that has no room for an error
code, is a `CorruptRecord` with the position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.layout import Layout
from duralog.format.varint import Bytes

NO_ERROR = 0

RESULT_HEADER = Layout(
    "Fetch result: what stands before the messages, or before the results of a multi-fetch",
    ("length", "int32", "bytes that follow this field, at least 2"),
    ("error_code", "int16", "0 for none"),
    size=6,
)

_LENGTH_BYTES = RESULT_HEADER.at.error_code
_ERROR_CODE_BYTES = RESULT_HEADER.size - _LENGTH_BYTES
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MessageSetResult:
    """The answer to a fetch of one partition."""

    messages: Bytes
    error_code: int = NO_ERROR


@dataclass(frozen=True, slots=True)
class MultiMessageSetResult:
    """The answer to a fetch of several partitions, in the order in which they were asked for."""

    results: Sequence[MessageSetResult]
    error_code: int = NO_ERROR


def encode_result_header(content_bytes: int, error_code: int = NO_ERROR) -> bytes:
    """The header of this many bytes of messages, for a sender that copies those straight from a file."""
    length = _ERROR_CODE_BYTES + content_bytes
    if not 0 <= content_bytes <= _INT32_MAX - _ERROR_CODE_BYTES:
        raise InvalidRecord(f"a fetch result holds up to {_INT32_MAX - _ERROR_CODE_BYTES} bytes, not {content_bytes}")
    if not -(2**15) <= error_code < 2**15:
        raise InvalidRecord(f"error code {error_code} does not fit 16 bits")
    return RESULT_HEADER.pack(length, error_code)


def encode_message_set_result(result: MessageSetResult) -> bytes:
    return encode_result_header(len(result.messages), result.error_code) + result.messages


def encode_multi_message_set_result(multi: MultiMessageSetResult) -> bytes:
    content = b"".join(map(encode_message_set_result, multi.results))
    return encode_result_header(len(content), multi.error_code) + content


def decode_message_set_result(data: Bytes, position: int = 0, end: int | None = None) -> tuple[MessageSetResult, int]:
    """The result at `position`, whose messages are a view of `data`, and where it ends."""
    view = memoryview(data)
    error_code, content, result_end = _decode_header(view, position, len(view) if end is None else end)
    return MessageSetResult(view[content:result_end], error_code), result_end


def decode_multi_message_set_result(data: Bytes, position: int = 0) -> tuple[MultiMessageSetResult, int]:
    """The result at `position`, with the results inside, and where it ends."""
    view = memoryview(data)
    error_code, position, end = _decode_header(view, position, len(view))
    results: list[MessageSetResult] = []
    while position < end:
        result, position = decode_message_set_result(view, position, end)
        results.append(result)
    return MultiMessageSetResult(tuple(results), error_code), end


def _decode_header(view: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """The error code, where the content starts and where it ends."""
    if end - position < RESULT_HEADER.size:
        raise CorruptRecord(
            "a fetch result ends inside of its header",
            fault=Fault.FIELD_LENGTH,
            position=position,
            expected=f"{RESULT_HEADER.size} bytes",
            found=f"{end - position} bytes",
        )
    length, error_code = RESULT_HEADER.unpack(view, position)
    room = end - position - _LENGTH_BYTES
    if not _ERROR_CODE_BYTES <= length <= room:
        raise CorruptRecord(
            "impossible length of a fetch result",
            fault=Fault.FIELD_LENGTH,
            position=position,
            expected=f"{_ERROR_CODE_BYTES} to {room}",
            found=length,
        )
    return error_code, position + RESULT_HEADER.size, position + _LENGTH_BYTES + length
