"""The plain twin of the kernel: one value at a time, in Python that can be checked against Avro's specification.

It follows the steps of `resolution` and knows nothing of programs, columns and buffers. Both must agree on every value,
or refuse it for the same reason at the same position. It also finds the field of a bad row, for the error message.

What is skipped is checked only as far as needed to find its end.
"""

from __future__ import annotations

import struct
import uuid
from decimal import Context, Decimal
from typing import Any

import numpy as np

from duralog.kernels.avro.program import MAX_EMPTY_ITEMS, AvroFault
from duralog.schemas.avro.resolution import (
    Default,
    Member,
    Present,
    Read,
    ReadItems,
    ReadRecord,
    ReadUnion,
    SetNull,
    Skip,
    Step,
    is_empty,
)
from duralog.schemas.avro.schema import (
    UNITS_IN_A_DAY,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    logical_of,
)
from duralog.schemas.avro.shapes import item_type

_SIZES = {"boolean": 1, "float": 4, "double": 8}
_EXACT = Context(prec=100)


class _Refused(Exception):
    def __init__(self, fault: AvroFault, position: int) -> None:
        self.fault = fault
        self.position = position
        super().__init__(fault.name)


class PlainDecoder:
    def __init__(self, step: Step) -> None:
        self._step = step

    def decode(self, value: bytes) -> tuple[Any, AvroFault, int, str]:
        """(value, fault, position, field): the value is of a kind that `pa.array` takes for the decoder's type."""
        reader = _Reader(value)
        try:
            found = reader.follow(self._step)
            if reader.position != len(value):
                raise _Refused(AvroFault.LEFT_OVER, reader.position)
        except _Refused as refused:
            return None, refused.fault, refused.position, ".".join(reader.path)
        return found, AvroFault.NONE, 0, ""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.path: list[str] = []
        self._empty_items = 0

    def follow(self, step: Step) -> Any:
        if isinstance(step, Read):
            return self._scalar(step)
        if isinstance(step, ReadRecord):
            return self._record(step)
        if isinstance(step, ReadItems):
            return self._items(step)
        if isinstance(step, ReadUnion):
            return self._union(step)
        if isinstance(step, Present):
            return self.follow(step.step)
        if isinstance(step, SetNull):
            return None
        if isinstance(step, Member):
            found = self.follow(step.step)
            return {name: found if name == step.name else None for name in step.shape.fields}
        if isinstance(step, Default):
            return _Reader(step.data).follow(step.step)
        self._skip(step.writer)
        return None

    def _record(self, step: ReadRecord) -> dict[str, Any]:
        found = {}
        for name, inner in step.steps:
            self.path.append(name)
            value = self.follow(inner)
            self.path.pop()
            if not isinstance(inner, Skip):
                found[name] = value
        return {name: found[name] for name in step.shape.fields}

    def _items(self, step: ReadItems) -> list[Any]:
        found: list[Any] = []
        while True:
            at = self.position
            items, _ = self._block(is_empty=step.is_empty)
            if items == 0:
                return found
            if step.is_empty:
                self._empty_items += items
                if self._empty_items > MAX_EMPTY_ITEMS:
                    raise _Refused(AvroFault.TOO_MANY_ITEMS, at)
            for _ in range(items):
                key = None if step.shape.key is None else self._text()
                item = self.follow(step.item)
                found.append(item if step.shape.key is None else (key, item))

    def _block(self, *, is_empty: bool) -> tuple[int, int | None]:
        """Items, and how many bytes they take if the block says so."""
        at = self.position
        items = self._long()
        size = None
        if items < 0:
            items = -items
            size = self._length()
        if items >= 1 << 63 or (not is_empty and items > len(self.data) - self.position):
            raise _Refused(AvroFault.TOO_MANY_ITEMS, at)
        return items, size

    def _union(self, step: ReadUnion) -> Any:
        at = self.position
        branch = self._index(len(step.branches))
        chosen = step.branches[branch]
        if chosen is None:
            raise _Refused(AvroFault.UNKNOWN_BRANCH, at)
        return self.follow(chosen)

    def _index(self, branches: int) -> int:
        at = self.position
        branch = self._long()
        if not 0 <= branch < branches:
            raise _Refused(AvroFault.UNION_INDEX, at)
        return branch

    def _scalar(self, step: Read) -> Any:
        writer, reader = step.writer, step.shape.type
        logical = logical_of(reader)
        at = self.position
        if isinstance(writer, Enum):
            number = self._int()
            if not 0 <= number < len(step.symbols):
                raise _Refused(AvroFault.ENUM_INDEX, at)
            if step.symbols[number] < 0:
                raise _Refused(AvroFault.UNKNOWN_SYMBOL, at)
            assert isinstance(reader, Enum)
            return reader.symbols[step.symbols[number]]
        if logical is not None and logical.name == "decimal":
            data = self._take(writer.size) if isinstance(writer, Fixed) else self._take(self._length())
            number = int.from_bytes(data, "big", signed=True)
            if not data or abs(number) >= 10**logical.precision:
                raise _Refused(AvroFault.DECIMAL, at)
            return Decimal(number).scaleb(-logical.scale, _EXACT)
        if isinstance(writer, Fixed):
            return _fixed(self._take(writer.size), None if logical is None else logical.name)
        assert isinstance(reader, Primitive)
        value = self._primitive(writer.kind, reader.kind)
        if logical is not None and (logical.name in UNITS_IN_A_DAY or step.factor > 1):
            value *= step.factor
            lowest, highest = (
                (0, UNITS_IN_A_DAY[logical.name]) if logical.name in UNITS_IN_A_DAY else (1 - 2**63, 2**63)
            )
            if not lowest <= value < highest:
                raise _Refused(AvroFault.OUT_OF_RANGE, at)
        return value

    def _primitive(self, kind: str, wanted: str) -> Any:
        if kind == "null":
            return None
        if kind in ("int", "long"):
            number = self._int() if kind == "int" else self._long()
            if wanted == "float":
                return np.float32(np.int64(number))
            return float(number) if wanted == "double" else number
        if kind in ("string", "bytes"):
            return self._text() if wanted == "string" else self._take(self._length())
        at = self.position
        data = self._take(_SIZES[kind])
        if kind == "boolean":
            if data[0] > 1:
                raise _Refused(AvroFault.BOOLEAN, at)
            return data[0] == 1
        return struct.unpack("<f" if kind == "float" else "<d", data)[0]

    def _text(self) -> str:
        at = self.position
        try:
            return self._take(self._length()).decode()
        except UnicodeDecodeError:
            raise _Refused(AvroFault.UTF8, at) from None

    def _take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise _Refused(AvroFault.CUT, self.position)
        self.position += size
        return self.data[self.position - size : self.position]

    def _length(self) -> int:
        at = self.position
        length = self._long()
        if length < 0:
            raise _Refused(AvroFault.NEGATIVE_LENGTH, at)
        if length > len(self.data) - self.position:
            raise _Refused(AvroFault.CUT, at)
        return length

    def _int(self) -> int:
        at = self.position
        number = self._long()
        if self.position - at > 5 or not -(2**31) <= number < 2**31:
            raise _Refused(AvroFault.VARINT, at)
        return number

    def _long(self) -> int:
        at = self.position
        unsigned = 0
        for place, byte in enumerate(self.data[at : at + 10]):
            unsigned |= (byte & 0x7F) << 7 * place
            if byte < 0x80 and unsigned < 1 << 64:
                self.position = at + place + 1
                return unsigned >> 1 ^ -(unsigned & 1)
        raise _Refused(AvroFault.VARINT if len(self.data) - at >= 10 else AvroFault.CUT, at)

    def _skip(self, one: AvroType) -> None:
        if isinstance(one, Record):
            for inner in one.fields:
                self._skip(inner.type)
        elif isinstance(one, Union):
            self._skip(one.branches[self._index(len(one.branches))])
        elif isinstance(one, Array | Map):
            self._skip_items(one)
        elif isinstance(one, Enum) or (isinstance(one, Primitive) and one.kind in ("int", "long")):
            while self._skip_bytes(1) >= 0x80:
                pass
        elif isinstance(one, Fixed):
            self._skip_bytes(one.size)
        elif one.kind in ("string", "bytes"):
            self._take(self._length())
        elif one.kind != "null":
            self._skip_bytes(_SIZES[one.kind])

    def _skip_bytes(self, size: int) -> int:
        """The last of them. If there are not enough, the fault is where they end."""
        if size > len(self.data) - self.position:
            raise _Refused(AvroFault.CUT, len(self.data))
        self.position += size
        return self.data[self.position - 1] if size else 0

    def _skip_items(self, one: Array | Map) -> None:
        empty = isinstance(one, Array) and is_empty(item_type(one))
        while True:
            items, size = self._block(is_empty=empty)
            if items == 0:
                return
            if size is not None:
                self.position += size
            elif not empty:
                for _ in range(items):
                    if isinstance(one, Map):
                        self._take(self._length())
                    self._skip(item_type(one))


def _fixed(data: bytes, logical: str | None) -> Any:
    if logical == "uuid":
        return str(uuid.UUID(bytes=data))
    if logical == "duration":
        return dict(zip(("months", "days", "milliseconds"), struct.unpack("<III", data), strict=True))
    return data
