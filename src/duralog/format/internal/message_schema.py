"""Kafka's encoding of generated messages, driven by tables: the values of internal topics and of the metadata log.

A `Message` declares its fields once for all versions: since when, until when, whether null is allowed, and the tag of
an optional field. A version is flexible or not. Flexible ones have compact lengths (an unsigned varint of the length
plus one, 0 for null) and end each struct with its tagged fields; the others have int16 lengths of strings and int32
lengths of all else, -1 for null.

Decoded, a message is a dict: ids are 22 characters of text, bytes are bytes, structs are dicts, arrays are lists. A
tagged field that is absent has its default. Tags that the table does not know are kept under "unknown_tags" and
are written again. Every length and count is checked before it is used, and the elements of all arrays are counted; what
does not fit is a `CorruptRecord`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.uuids import UUID_BYTES, uuid_bytes, uuid_text
from duralog.format.varint import Bytes, decode_unsigned_varint, encode_unsigned_varint

UNKNOWN_TAGS = "unknown_tags"

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_SCALARS = (*_NUMBERS, "boolean", "uuid", "string", "bytes")
_LONGEST_STRING = 32767

MAX_ELEMENTS = 1_000_000
"""Of all arrays of one message. An element may take a hundred times the memory of its bytes. A record of Kafka's
default `max.message.bytes` does not have that many numbers."""

REQUIRED: Any = object()
"""The default of a field that a writer must give."""


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: str | Struct


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str | ArrayOf | Struct
    _: KW_ONLY
    since: int = 0
    until: int = 32767
    tag: int | None = None
    nullable: bool = False
    default: Any = REQUIRED
    element: Field | None = None
    """Of an array. It is made here, since a reader needs it for each array."""

    def __post_init__(self) -> None:
        if isinstance(self.type, ArrayOf):
            object.__setattr__(self, "element", Field(self.name, self.type.element))
        assert not isinstance(self.type, str) or self.type in _SCALARS, self.type
        assert self.tag is None or self.default is not REQUIRED, f"the tagged field {self.name} needs a default"

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until


@dataclass(frozen=True, slots=True)
class Message:
    name: str
    fields: tuple[Field, ...]
    _: KW_ONLY
    last_version: int = 0
    flexible_since: int | None = 0
    """None for a message that has no flexible version."""

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


def decode_message(
    message: Message, version: int, data: Bytes, position: int = 0, *, may_trail: bool = False
) -> dict[str, Any]:
    """The fields of a message that fills the bytes from `position` to the end. REQUIRES: the version is known.

    With `may_trail`, bytes after the last field are ignored.
    """
    assert 0 <= version <= message.last_version
    reader = _Reader(memoryview(data), position, version, message.is_flexible(version))
    fields = reader.struct(message.fields)
    if reader.position != len(data) and not may_trail:
        raise CorruptRecord(
            f"bytes are left after the last field of {message.name}",
            fault=Fault.TRAILING_BYTES,
            position=reader.position,
            expected=0,
            found=len(data) - reader.position,
        )
    return fields


def encode_message(message: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message. A field that is left out gets its default, if it has one."""
    if not 0 <= version <= message.last_version:
        raise InvalidRecord(f"{message.name} has the versions 0 to {message.last_version}, not {version}")
    writer = _Writer(message.name, version, message.is_flexible(version))
    writer.struct(message.fields, fields)
    return b"".join(writer.parts)


def describe(message: Message, version: int) -> str:
    """The fields of one version on one line: names, types on the wire, tagged fields with their tags."""
    return _describe_fields(message.fields, version, message.is_flexible(version))


class _Reader:
    def __init__(self, data: memoryview, position: int, version: int, flexible: bool) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.version = version
        self.flexible = flexible
        self.elements_left = MAX_ELEMENTS

    def struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in fields:
            if not field.is_in(self.version):
                continue
            if field.tag is None:
                values[field.name] = self._value(field)
            else:
                tagged[field.tag] = field
                values[field.name] = _fresh(field.default)
        if self.flexible:
            self._tagged_fields(tagged, values)
        return values

    def _tagged_fields(self, known: dict[int, Field], values: dict[str, Any]) -> None:
        unknown: dict[int, bytes] = {}
        for _ in range(self._varint()):
            tag = self._varint()
            start = self.position
            size = self._varint()
            content = self._take(size, "a tagged field")
            if tag not in known:
                unknown[tag] = content
                continue
            after = self.position
            self.position -= size
            values[known[tag].name] = self._value(known[tag])
            if self.position != after:
                raise CorruptRecord(
                    f"the tagged field {known[tag].name} has another length than it says",
                    fault=Fault.FIELD_LENGTH,
                    position=start,
                    expected=size,
                    found=size + self.position - after,
                )
        if unknown:
            values[UNKNOWN_TAGS] = unknown

    def _value(self, field: Field) -> Any:
        if isinstance(field.type, str):
            return self._scalar(field, field.type)
        if isinstance(field.type, Struct):
            return self.struct(field.type.fields) if self._struct_is_there(field) else None
        count = self._length(field, "array")
        if count is None:
            return None
        self._count_elements(field, count)
        assert field.element is not None
        return [self._value(field.element) for _ in range(count)]

    def _scalar(self, field: Field, name: str) -> Any:
        number = _NUMBERS.get(name)
        if number is not None:
            return number.unpack(self._take(number.size, field.name))[0]
        if name == "boolean":
            return self._take(1, field.name) != b"\0"
        if name == "uuid":
            return uuid_text(self._take(UUID_BYTES, field.name))
        length = self._length(field, name)
        if length is None:
            return None
        content = self._take(length, field.name)
        return content if name == "bytes" else content.decode("utf-8", errors="replace")

    def _struct_is_there(self, field: Field) -> bool:
        """A struct that may be null starts with a sign of it: a varint in a tagged field, a byte elsewhere."""
        if not field.nullable:
            return True
        if field.tag is not None:
            return self._varint() > 0
        return int.from_bytes(self._take(1, field.name), signed=True) >= 0

    def _length(self, field: Field, kind: str) -> int | None:
        """A length or a count that the remaining bytes can hold: an element takes at least one byte."""
        start = self.position
        if self.flexible:
            length = self._varint() - 1
        else:
            number = _NUMBERS["int16" if kind == "string" else "int32"]
            length = number.unpack(self._take(number.size, field.name))[0]
        if length < 0 and field.nullable:
            return None
        if not 0 <= length <= self.end - self.position:
            raise CorruptRecord(
                f"the {kind} {field.name} has an impossible length",
                fault=Fault.RECORD_COUNT if kind == "array" else Fault.FIELD_LENGTH,
                position=start,
                expected=f"0 to {self.end - self.position}",
                found="null" if length < 0 else length,
            )
        return length

    def _count_elements(self, field: Field, count: int) -> None:
        self.elements_left -= count
        if self.elements_left < 0:
            raise CorruptRecord(
                f"the array {field.name} has too many elements",
                fault=Fault.TOO_LARGE,
                position=self.position,
                expected=f"at most {MAX_ELEMENTS:,} elements in all arrays",
                found=f"{count:,} in this one",
            )

    def _varint(self) -> int:
        value, self.position = decode_unsigned_varint(self.data, self.position, self.end)
        return value

    def _take(self, size: int, what: str) -> bytes:
        if size > self.end - self.position:
            raise CorruptRecord(
                f"the bytes end inside {what}",
                fault=Fault.FIELD_LENGTH,
                position=self.position,
                expected=f"{size} bytes",
                found=f"{self.end - self.position} bytes",
            )
        content = bytes(self.data[self.position : self.position + size])
        self.position += size
        return content


class _Writer:
    def __init__(self, message: str, version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.parts: list[bytes] = []

    def struct(self, fields: tuple[Field, ...], values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            raise InvalidRecord(f"{self.message} has a struct that is not a mapping: {values!r}")
        in_version = [field for field in fields if field.is_in(self.version)]
        self._refuse_strangers(in_version, values)
        tagged: dict[int, bytes] = dict(values.get(UNKNOWN_TAGS, {}))
        for field in in_version:
            value = values.get(field.name, field.default)
            if value is REQUIRED:
                raise InvalidRecord(f"{self.message} v{self.version} needs the field {field.name}")
            if field.tag is None:
                self._value(field, value)
            elif value != field.default:
                content = _Writer(self.message, self.version, self.flexible)
                content._value(field, value)
                tagged[field.tag] = b"".join(content.parts)
        if self.flexible:
            self.parts.append(encode_unsigned_varint(len(tagged)))
            for tag in sorted(tagged):
                self.parts += (encode_unsigned_varint(tag), encode_unsigned_varint(len(tagged[tag])), tagged[tag])

    def _refuse_strangers(self, in_version: list[Field], values: Mapping[str, Any]) -> None:
        known = {field.name for field in in_version}
        if self.flexible:
            known.add(UNKNOWN_TAGS)
        strangers = sorted(values.keys() - known)
        if strangers:
            raise InvalidRecord(f"{self.message} v{self.version} has no field {', '.join(strangers)}")

    def _value(self, field: Field, value: Any) -> None:
        if value is None and not field.nullable:
            raise InvalidRecord(f"{self.message}: the field {field.name} may not be null")
        if isinstance(field.type, Struct):
            if field.nullable:
                self.parts.append(_struct_sign(field, value is not None))
            if value is not None:
                self.struct(field.type.fields, value)
        elif isinstance(field.type, ArrayOf):
            self._length(None if value is None else len(value), "array")
            assert field.element is not None
            for item in value or ():
                self._value(field.element, item)
        else:
            self._scalar(field, field.type, value)

    def _scalar(self, field: Field, name: str, value: Any) -> None:
        try:
            if name in _NUMBERS:
                self.parts.append(_NUMBERS[name].pack(value))
            elif name == "boolean":
                self.parts.append(b"\1" if value else b"\0")
            elif name == "uuid":
                self.parts.append(uuid_bytes(value))
            else:
                self._text_or_bytes(name, value)
        except (struct.error, ValueError, TypeError, AttributeError) as error:
            raise InvalidRecord(f"{self.message}: the field {field.name} cannot hold {value!r:.100}: {error}") from None

    def _text_or_bytes(self, name: str, value: Any) -> None:
        if value is None:
            self._length(None, name)
            return
        content = value.encode("utf-8") if name == "string" else bytes(memoryview(value))
        if name == "string" and len(content) > _LONGEST_STRING:
            raise ValueError(f"a string may have {_LONGEST_STRING} bytes at most")
        self._length(len(content), name)
        self.parts.append(content)

    def _length(self, length: int | None, kind: str) -> None:
        if self.flexible:
            self.parts.append(encode_unsigned_varint(0 if length is None else length + 1))
        else:
            self.parts.append(_NUMBERS["int16" if kind == "string" else "int32"].pack(-1 if length is None else length))


def _struct_sign(field: Field, is_there: bool) -> bytes:
    if field.tag is not None:
        return b"\1" if is_there else b"\0"
    return b"\1" if is_there else b"\xff"


def _fresh(default: Any) -> Any:
    """A default that its receiver may change."""
    if isinstance(default, Mapping):
        return {name: _fresh(value) for name, value in default.items()}
    return list(default) if isinstance(default, list) else default


def _describe_fields(fields: tuple[Field, ...], version: int, flexible: bool) -> str:
    in_version = [field for field in fields if field.is_in(version)]
    parts = [f"{field.name} {_describe_type(field, version, flexible)}" for field in in_version if field.tag is None]
    if flexible:
        tagged: Iterator[tuple[int, Field]] = ((field.tag, field) for field in in_version if field.tag is not None)
        parts.append(
            "TAGS["
            + ", ".join(
                f"{tag}:{field.name} {_describe_type(field, version, flexible)}"
                for tag, field in sorted(tagged, key=lambda item: item[0])
            )
            + "]"
        )
    return ", ".join(parts)


def _describe_type(field: Field, version: int, flexible: bool) -> str:
    if isinstance(field.type, Struct):
        return "{" + _describe_fields(field.type.fields, version, flexible) + "}"
    prefix = ("compact_" if flexible else "") + ("nullable_" if field.nullable else "")
    if isinstance(field.type, ArrayOf):
        element = field.type.element
        inner = Field(field.name, element, default=None)
        return f"{prefix}array<{_describe_type(inner, version, flexible)}>"
    return f"{prefix}{field.type}" if field.type in ("string", "bytes") else field.type
