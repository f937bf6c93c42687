"""The buffers that the kernel fills, and the Arrow arrays made of them without a copy.

Buffers start small and grow when the kernel asks for it. A column that would need more than Arrow's 32-bit offsets can
count is an error: the caller decodes fewer rows at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.errors import DuralogError
from duralog.kernels.avro.program import (
    BITS,
    COLUMN_FIELDS,
    CONTENT,
    CONTENT_ROOM,
    COUNT,
    DOMAIN_FIELDS,
    KIND,
    MAX_ROWS,
    NOTHING,
    OFFSETS,
    ROOM,
    VALIDITY,
    VALUES,
)
from duralog.kernels.writing import SLACK
from duralog.schemas.avro.schema import Enum, Fixed
from duralog.schemas.avro.shapes import DURATION, Items, Scalar, Shape, Struct

_HEX = np.frombuffer(bytes.fromhex("".join(f"{byte:02x}".encode().hex() for byte in range(256))), np.uint16)
"""Two hexadecimal digits for each byte."""
_UUID_PARTS = ((0, 4, 0), (4, 6, 9), (6, 8, 14), (8, 10, 19), (10, 16, 24))
"""Of a UUID: its bytes from and to, and where they begin in the text."""


ALWAYS_BYTES = 1 << 30
MOST_BYTES_PER_BYTE = 32
"""What all columns of one call may take, and what they may take in addition for each byte of their values. A number of
one byte becomes eight, and half of the room may be unused.
"""


class TooLargeResult(DuralogError):
    """More values than one Arrow array holds."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} would be more than Arrow's offsets can count, 2^31 - 1: decode fewer rows at a time")


class TooMuchMemory(DuralogError):
    """The schema makes very much of few bytes, e.g. by long defaults."""

    def __init__(self, needed: int, data_bytes: int) -> None:
        super().__init__(
            f"the columns of this Avro schema would need {needed >> 20:,} MiB for {data_bytes:,} bytes of values:"
            " decode fewer of its fields"
        )


class ColumnBuffers:
    """The buffers of all columns, and the tables with their addresses that the kernel reads."""

    def __init__(self, columns: list[Shape], domains: int, rows: int, size: int, data_bytes: int) -> None:
        """`size` is what the values probably take, of a buffer of `data_bytes`."""
        if rows > MAX_ROWS:
            raise TooLargeResult("the rows")
        self._shapes = columns
        self._data_bytes = data_bytes
        self._room = 0
        self.columns: NDArray[np.int64] = np.zeros((max(1, len(columns)), COLUMN_FIELDS), np.int64)
        self.domains: NDArray[np.int64] = np.zeros((domains, DOMAIN_FIELDS), np.int64)
        self.domains[:, ROOM] = rows
        self._values: dict[int, pa.Buffer] = {}
        self._validity: dict[int, pa.Buffer] = {}
        self._content: dict[int, pa.Buffer] = {}
        strings = [shape for shape in columns if shape.kind == OFFSETS and isinstance(shape, Scalar)]
        for shape in columns:
            self._make_room(shape, rows)
        for shape in strings:
            self._make_content(shape.column, min(MAX_ROWS, size // len(strings) + 64))

    def grow_items(self, domain: int, needed: int) -> None:
        if needed > MAX_ROWS:
            raise TooLargeResult("the items of an array or map")
        rows = min(MAX_ROWS, max(needed, 2 * int(self.domains[domain, ROOM])))
        self.domains[domain, ROOM] = rows
        for shape in self._shapes:
            if shape.domain == domain:
                self._make_room(shape, rows)

    def grow_content(self, column: int, needed: int) -> None:
        if needed > MAX_ROWS:
            raise TooLargeResult("the bytes of a column")
        self._make_content(column, min(MAX_ROWS, max(needed, 2 * int(self.columns[column, CONTENT_ROOM]))))

    def _make_room(self, shape: Shape, rows: int) -> None:
        """Buffers for the rows of its domain, with what the old ones hold."""
        number, kind = shape.column, shape.kind
        if kind * rows > MAX_ROWS:
            raise TooLargeResult("the bytes of a column")
        entry = self.columns[number]
        entry[KIND] = kind
        if kind != NOTHING:
            old = self._values.get(number)
            # Values are copied in vectors, so there is slack after the last one.
            values = self._values[number] = self._enlarged(old, _values_bytes(kind, rows) + SLACK)
            entry[VALUES] = values.address
            if kind == OFFSETS and old is None:
                np.frombuffer(values, np.int32, 1)[0] = 0  # the kernel writes the others
        if shape.is_nullable:
            validity = self._validity[number] = self._enlarged(self._validity.get(number), (rows + 7) // 8)
            entry[VALIDITY] = validity.address

    def _make_content(self, column: int, room: int) -> None:
        content = self._content[column] = self._enlarged(self._content.get(column), room + SLACK)
        entry = self.columns[column]
        entry[CONTENT] = content.address
        entry[CONTENT_ROOM] = room

    def _enlarged(self, old: pa.Buffer | None, size: int) -> pa.Buffer:
        """A buffer that begins with what the old one holds. The kernel writes a value before it counts it."""
        self._room += size - (0 if old is None else old.size)
        if self._room > ALWAYS_BYTES + MOST_BYTES_PER_BYTE * self._data_bytes:
            raise TooMuchMemory(self._room, self._data_bytes)
        new = pa.allocate_buffer(size)
        if old is not None:
            np.frombuffer(new, np.uint8)[: old.size] = np.frombuffer(old, np.uint8)
        return new

    def to_arrow(self, shape: Shape, validity: pa.Buffer | None) -> pa.Array:
        """The array of a shape. `validity` is that of the struct around it, of which a child is null wherever it is."""
        rows = int(self.domains[shape.domain, COUNT])
        if shape.is_nullable:
            validity = self._validity[shape.column].slice(0, (rows + 7) // 8)
        if isinstance(shape, Struct):
            return _struct(shape.arrow_type, rows, validity, [self.to_arrow(one, validity) for one in shape.children()])
        if isinstance(shape, Items):
            items = self.to_arrow(shape.item, None)
            if shape.key is not None:
                entry = pa.struct([shape.arrow_type.key_field, shape.arrow_type.item_field])
                items = _struct(entry, len(items), None, [self.to_arrow(shape.key, None), items])
            buffers = [validity, self._used_values(shape, rows)]
            return pa.Array.from_buffers(shape.arrow_type, rows, buffers, children=[items])
        assert isinstance(shape, Scalar)
        return self._scalar(shape, rows, validity)

    def _scalar(self, shape: Scalar, rows: int, validity: pa.Buffer | None) -> pa.Array:
        if shape.kind == NOTHING:
            return pa.nulls(rows)
        one = shape.type
        values = self._used_values(shape, rows)
        if isinstance(one, Enum):
            return _symbols(one.symbols, rows, validity, values)
        if isinstance(one, Fixed) and one.logical is not None and one.logical.name != "decimal":
            return (_uuids if one.logical.name == "uuid" else _durations)(values, rows, validity)
        buffers = [validity, values]
        if shape.kind == OFFSETS:
            used = int(np.frombuffer(values, np.int32)[rows])
            buffers.append(self._content[shape.column].slice(0, used))
        return pa.Array.from_buffers(shape.arrow_type, rows, buffers)

    def _used_values(self, shape: Shape, rows: int) -> pa.Buffer:
        return self._values[shape.column].slice(0, _values_bytes(shape.kind, rows))


def bitmap(truths: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(truths, bitorder="little"))


def _values_bytes(kind: int, rows: int) -> int:
    if kind == OFFSETS:
        return 4 * (rows + 1)
    if kind == BITS:
        return (rows + 7) // 8
    return kind * rows


def _struct(arrow_type: Any, rows: int, validity: pa.Buffer | None, children: list[pa.Array]) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, rows, [validity], children=children)


def _symbols(symbols: tuple[str, ...], rows: int, validity: pa.Buffer | None, values: pa.Buffer) -> pa.Array:
    numbers = pa.Array.from_buffers(pa.int32(), rows, [validity, values])
    if rows * max(map(len, symbols)) > MAX_ROWS:
        counts = np.bincount(np.frombuffer(values, np.int32), minlength=len(symbols))
        if int(counts @ np.array([len(symbol) for symbol in symbols])) > MAX_ROWS:
            raise TooLargeResult("the symbols of an enum")
    return pa.DictionaryArray.from_arrays(numbers, pa.array(symbols, pa.string()), safe=False).dictionary_decode()


def _uuids(values: pa.Buffer, rows: int, validity: pa.Buffer | None) -> pa.Array:
    """Sixteen bytes each, as text of 36 characters."""
    if rows * 36 > MAX_ROWS:
        raise TooLargeResult("the text of a uuid")
    digits = _HEX[np.frombuffer(values, np.uint8).reshape(rows, 16)].view(np.uint8)
    text = np.full((rows, 36), ord("-"), np.uint8)
    for begin, end, place in _UUID_PARTS:
        text[:, place : place + 2 * (end - begin)] = digits[:, 2 * begin : 2 * end]
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(36)
    return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(text.reshape(-1))])


def _durations(values: pa.Buffer, rows: int, validity: pa.Buffer | None) -> pa.Array:
    """Three unsigned numbers each."""
    parts = np.ascontiguousarray(np.frombuffer(values, np.uint32).reshape(rows, 3).T, np.int64)
    children = [pa.Array.from_buffers(pa.int64(), rows, [validity, pa.py_buffer(part)]) for part in parts]
    return _struct(DURATION, rows, validity, children)
