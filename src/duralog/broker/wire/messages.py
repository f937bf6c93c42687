"""Requests and answers as values, by the schemas of `kio`: times and error codes are plain integers.

Bytes that do not fit the schema raise `InvalidMessage`: nothing is trusted, and no count is used before that many bytes
are there. Bytes after the end of a message are ignored, as in Kafka.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from duralog.broker.wire.message_reading import MALFORMED, read_message
from duralog.broker.wire.message_twins import Field, Twin, check_name, is_flexible, request_twin, response_twin
from duralog.broker.wire.request import Fields
from duralog.errors import DuralogError
from duralog.format.uuids import uuid_bytes

__all__ = [
    "InvalidMessage",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "has_throttle_time",
    "is_flexible",
    "optional",
]


LARGEST_REQUEST_BYTES = 8 << 20
"""Of those that are read by their schema. Only Produce has reason to be larger, and reads its body itself."""


_FREE_TEXT = "error_message"
"""The only field of an answer whose text is as long as the broker makes it: it may name what a client has named."""
_THROTTLE_TIME = "throttle_time"
_LONGEST_TEXT_BYTES = 32_767
_BYTES_PER_CHARACTER = 4
"""In UTF-8, at most."""
_CUT = "..."


class InvalidMessage(DuralogError):
    """The bytes of a request are not what its API and version demand."""


def optional(entity: object, name: str, default: Any = None) -> Any:
    """A field of a request that older versions do not have."""
    return getattr(entity, name, default)


def decode_request(api_key: int, version: int, body: bytes | memoryview) -> Any:
    """The body of a request as a value: kio's names, times in ms, error codes as integers, arrays as tuples."""
    if len(body) > LARGEST_REQUEST_BYTES:
        raise InvalidMessage(f"{len(body)} bytes are more than a request of API {api_key} can have a use for")
    return _decode(request_twin(api_key, version), body)


def decode_response(api_key: int, version: int, body: bytes | memoryview) -> Any:
    return _decode(response_twin(api_key, version), body)


def encode_response(api_key: int, version: int, fields: Fields) -> bytes:
    """The body of an answer. Names that this version lacks are dropped; a name that no version has is a mistake."""
    return _encode(response_twin(api_key, version), fields)


def has_throttle_time(api_key: int, version: int) -> bool:
    return _THROTTLE_TIME in response_twin(api_key, version).fields


def encode_request(api_key: int, version: int, fields: Fields) -> bytes:
    return _encode(request_twin(api_key, version), fields)


def _decode(twin: Twin, body: bytes | memoryview) -> Any:
    try:
        return read_message(twin.read, body)
    except MALFORMED as error:
        is_cut = not isinstance(error, ValueError)
        reason = f"it ends after {len(body)} bytes, before all its fields" if is_cut else error
        raise InvalidMessage(f"not a {twin.make.__name__}: {reason}") from error


def _encode(twin: Twin, fields: Fields) -> bytes:
    buffer = io.BytesIO()
    twin.write(buffer, _make(twin, fields))
    return buffer.getvalue()


def _make(twin: Twin, fields: Fields) -> Any:
    values: dict[str, Any] = {}
    for name, value in fields.items():
        field = twin.fields.get(name)
        if field is None:
            check_name(twin.make, name)
        elif value is None:
            values[field.name] = None
        elif field.is_array:
            values[field.name] = _elements(field, value)
        elif field.nested is not None:
            values[field.name] = _make(field.nested, value)
        elif field.kind == "uuid" and isinstance(value, str):
            values[field.name] = UUID(bytes=uuid_bytes(value))
        elif name == _FREE_TEXT:
            values[field.name] = _short(value)
        else:
            values[field.name] = value
    return twin.make(**values)


def _short(text: str) -> str:
    """As much of it as Java's clients can read: they close the connection at a longer text."""
    if len(text) * _BYTES_PER_CHARACTER <= _LONGEST_TEXT_BYTES:
        return text
    encoded = text.encode()
    if len(encoded) <= _LONGEST_TEXT_BYTES:
        return text
    return encoded[: _LONGEST_TEXT_BYTES - len(_CUT)].decode(errors="ignore") + _CUT


def _elements(field: Field, values: Iterable[Any]) -> tuple[Any, ...]:
    if field.nested is None:
        if field.kind == "uuid":
            return tuple(UUID(bytes=uuid_bytes(value)) if isinstance(value, str) else value for value in values)
        return tuple(values)
    nested = field.nested
    return tuple(_make(nested, value) for value in values)
