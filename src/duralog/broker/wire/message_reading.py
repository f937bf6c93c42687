"""Reads messages by kio's schemas, from unchecked bytes.

kio's own reader is native and quick, but it trusts the client about the size of an array: a request of twenty bytes
makes it ask for more memory than there is, which ends the process. It also refuses what Kafka takes. Here no count is
trusted that the bytes at hand could not hold, a message has a bounded number of elements however they are nested,
tagged fields that this version does not know are skipped, and texts that are not UTF-8 get U+FFFD for what cannot be
read, as in Kafka. So is every negative length null, not only -1.

A reader is made once for each class: fields of fixed size that follow each other are read by one `struct`. For bytes
that are not what the schema says, readers raise one of `MALFORMED`.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

Bytes = bytes | memoryview
Read = Callable[[Bytes, int], tuple[Any, int]]
"""From bytes and a position to a value and the position after it."""

MALFORMED = (struct.error, IndexError, ValueError)

MOST_ELEMENTS = 100_000
"""Of all arrays and tagged sections of a message together: for each, something is done while others wait."""

_FORMATS = {"bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d"}
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UUID_BYTES = 16
_LONGEST_TEXT_BYTES = 0x7FFF
"""Also where a compact length could say more."""


class _Room(threading.local):
    elements = 0
    """How many the message that is being read may still have."""


_room = _Room()


def read_message(read: Read, data: Bytes) -> Any:
    """A whole message by the reader of its class."""
    _room.elements = MOST_ELEMENTS
    return read(data, 0)[0]


def _take_room(count: int, what: str, position: int, size: int) -> None:
    _room.elements -= count
    if _room.elements < 0:
        raise ValueError(f"{what} at position {position} of {size}: a message has {MOST_ELEMENTS} at most")


@dataclass(frozen=True, slots=True)
class Shape:
    """How one field lies in the bytes."""

    kind: str
    """kio's name of the type; empty for nested classes."""
    tag: int | None
    is_array: bool
    is_nullable: bool
    read_nested: Read | None

    @property
    def is_fixed(self) -> bool:
        return self.kind in _FORMATS and not self.is_array


def reader_of(make: Callable[..., Any], shapes: Sequence[Shape], defaults: Sequence[Any], *, flexible: bool) -> Read:
    """The reader of a class that is made from the values of its fields, in order."""
    tagged: dict[int, tuple[int, Read]] = {}
    steps: list[tuple[int, str, Read | None]] = []
    """The place of the first field that is read; the format of a run of fixed ones, or the reader of a single one."""
    for place, shape in enumerate(shapes):
        if shape.tag is not None:
            tagged[shape.tag] = (place, _value(shape, flexible))
        elif not shape.is_fixed:
            steps.append((place, "", _value(shape, flexible)))
        elif steps and steps[-1][1] and steps[-1][0] + len(steps[-1][1]) == place:
            first, run, _ = steps.pop()
            steps.append((first, run + _FORMATS[shape.kind], None))
        else:
            steps.append((place, _FORMATS[shape.kind], None))
    compiled = [(place, read_one, struct.Struct(">" + run)) for place, run, read_one in steps]

    def read(data: Bytes, position: int) -> tuple[Any, int]:
        values = list(defaults)
        for place, read_one, run in compiled:
            if read_one is None:
                found = run.unpack_from(data, position)
                values[place : place + len(found)] = found
                position += run.size
            else:
                values[place], position = read_one(data, position)
        if flexible:
            count = data[position]
            position += 1
            if count:
                position = _read_tagged(data, position - 1, tagged, values)
        return make(*values), position

    return read


def _read_tagged(data: Bytes, position: int, tagged: dict[int, tuple[int, Read]], values: list[Any]) -> int:
    count, position = _unsigned_varint(data, position)
    _take_room(max(count, 0), f"{count} tagged fields", position, len(data))
    for _ in range(count):
        tag, position = _unsigned_varint(data, position)
        size, position = _unsigned_varint(data, position)
        end = position + size
        if not position <= end <= len(data):
            raise ValueError(f"a tagged field of {size} bytes at position {position} of {len(data)}")
        if tag in tagged:
            place, read = tagged[tag]
            values[place], position = read(data, position)
            if position != end:
                raise ValueError(f"tagged field {tag} says it has {size} bytes, and has {position - end + size}")
        position = end
    return position


def _value(shape: Shape, flexible: bool) -> Read:
    """The reader of one field."""
    if not shape.is_array:
        return _element(shape, flexible, is_nullable=shape.is_nullable)
    read_element = _element(shape, flexible, is_nullable=False)
    read_length = _unsigned_varint if flexible else _int32
    bias = 1 if flexible else 0

    def read(data: Bytes, position: int) -> tuple[Any, int]:
        count, position = read_length(data, position)
        count -= bias
        if count < 0:
            if not shape.is_nullable:
                raise ValueError(f"an array of {count} elements at position {position}")
            return None, position
        if count > len(data) - position:
            raise ValueError(f"an array of {count} elements at position {position} of {len(data)}")
        _take_room(count, f"an array of {count} elements", position, len(data))
        elements = []
        for _ in range(count):
            element, position = read_element(data, position)
            elements.append(element)
        return tuple(elements), position

    return read


def _element(shape: Shape, flexible: bool, *, is_nullable: bool) -> Read:
    if shape.read_nested is not None:
        return _nullable(shape.read_nested) if is_nullable else shape.read_nested
    if shape.kind == "uuid":
        return _uuid
    if shape.kind in _FORMATS:
        return _number(struct.Struct(">" + _FORMATS[shape.kind]))
    is_text = shape.kind == "string"
    read_length = _unsigned_varint if flexible else _int16 if is_text else _int32
    bias = 1 if flexible else 0

    def read(data: Bytes, position: int) -> tuple[Any, int]:
        size, position = read_length(data, position)
        size -= bias
        if size < 0:
            if not is_nullable:
                raise ValueError(f"{shape.kind} of {size} bytes at position {position}")
            return None, position
        end = position + size
        if end > len(data) or (is_text and size > _LONGEST_TEXT_BYTES):
            raise ValueError(f"{shape.kind} of {size} bytes at position {position} of {len(data)}")
        found = data[position:end]
        return str(found, "utf-8", "replace") if is_text else bytes(found), end

    return read


def _nullable(read_nested: Read) -> Read:
    def read(data: Bytes, position: int) -> tuple[Any, int]:
        marker = data[position]
        return (None, position + 1) if marker >= 0x80 else read_nested(data, position + 1)

    return read


def _number(number: struct.Struct) -> Read:
    def read(data: Bytes, position: int) -> tuple[Any, int]:
        return number.unpack_from(data, position)[0], position + number.size

    return read


def _uuid(data: Bytes, position: int) -> tuple[Any, int]:
    """None for the id that means "no id", as kio has it."""
    end = position + _UUID_BYTES
    raw = bytes(data[position:end])
    if len(raw) < _UUID_BYTES:
        raise ValueError(f"an id at position {position} of {len(data)}")
    return UUID(bytes=raw) if any(raw) else None, end


def _int16(data: Bytes, position: int) -> tuple[int, int]:
    return _INT16.unpack_from(data, position)[0], position + 2


def _int32(data: Bytes, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(data, position)[0], position + 4


def _unsigned_varint(data: Bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return _signed(value), position
    raise ValueError(f"a number without an end before position {position}")


def _signed(value: int) -> int:
    """The 32 bits that Kafka keeps of an unsigned number are to it a signed one: a length from 2^31 on is negative."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
