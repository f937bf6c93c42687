"""Avro values as Arrow arrays: a compiled schema, and its decoder for many rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.kernels.avro.interpreter import decode_avro
from duralog.kernels.avro.program import (
    COLUMN_BYTES,
    DOMAIN_BYTES,
    LANES,
    NEEDS_BYTES,
    NO_VALUE,
    POSITION_SHIFT,
    REMAINING,
    AvroFault,
)
from duralog.schemas.avro.buffers import ColumnBuffers, bitmap
from duralog.schemas.avro.parsing import AvroSchema
from duralog.schemas.avro.plain import PlainDecoder
from duralog.schemas.avro.program import compile_program
from duralog.schemas.avro.resolution import resolve
from duralog.schemas.avro.shapes import ShapeMaker, wanted_fields

_TEXTS = {
    AvroFault.NONE: "the value is good",
    AvroFault.CUT: "the value ends inside a field",
    AvroFault.VARINT: "a variable-length integer is too long or too large for its type",
    AvroFault.UNION_INDEX: "the index of a union's branch is out of range",
    AvroFault.ENUM_INDEX: "the index of an enum's symbol is out of range",
    AvroFault.NEGATIVE_LENGTH: "a length is negative",
    AvroFault.LEFT_OVER: "bytes are left over after the last field",
    AvroFault.TOO_MANY_ITEMS: "an array or map claims more items than the value can hold",
    AvroFault.UTF8: "a string is not UTF-8",
    AvroFault.DECIMAL: "a decimal has no bytes, or more digits than its precision",
    AvroFault.BOOLEAN: "a boolean is neither 0 nor 1",
    AvroFault.UNKNOWN_BRANCH: "a union has a branch that the reader's schema does not have",
    AvroFault.UNKNOWN_SYMBOL: "an enum has a symbol that the reader's schema does not have, nor a default for it",
    AvroFault.OUT_OF_RANGE: "a time is out of the range of its type",
}


def error_text(code: int) -> str:
    """What an error code of `AvroDecoder.decode` means."""
    return _TEXTS[AvroFault(code)]


def compile_decoder(
    writer: AvroSchema, reader: AvroSchema | None = None, columns: Sequence[str] | None = None
) -> AvroDecoder:
    """A decoder of values that were written with `writer`, which gives those of `reader`.

    `columns` are dotted paths of the reader's fields: the others are skipped. Arrays, maps and unions with null have no
    name of their own in a path: `items.price` is the price of all items. Raises `SchemaError` if the schemas cannot be
    resolved, or a column does not exist.
    """
    return AvroDecoder(writer, reader, columns)


class AvroDecoder:
    """See `compile_decoder`. Can be pickled, and used by several threads at a time."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None, columns: Sequence[str] | None) -> None:
        self._made_of = (writer, reader, None if columns is None else tuple(columns))
        read_as = (reader or writer).root
        shapes = ShapeMaker()
        self._root = shapes.make(read_as, None if columns is None else wanted_fields(columns))
        self._columns = shapes.columns
        step = resolve(writer.root, read_as, self._root)
        self._program = compile_program(step, writer.root, self._root, shapes.domains)
        self._plain = PlainDecoder(step)
        self.arrow_type: pa.DataType = self._root.arrow_type

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_decoder, self._made_of

    def decode(
        self, data: Any, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[pa.Array, NDArray[np.uint8]]:
        """The values at these positions of `data`, and for each row an error code: 0, or see `error_text`.

        A bad row is null. So is a row that starts at -1, a record without a value: it is not an error.
        """
        values, faults = self.decode_with_positions(data, starts, ends)
        return values, (faults & ((1 << POSITION_SHIFT) - 1)).astype(np.uint8)

    def decode_with_positions(
        self, data: Any, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[pa.Array, NDArray[np.int64]]:
        """As `decode`, with the position in the row above the lowest `POSITION_SHIFT` bits of a code."""
        bytes_in = np.frombuffer(data, np.uint8)
        starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
        rows = len(starts)
        if len(ends) != rows:
            raise ValueError(f"{rows} starts and {len(ends)} ends")
        program = self._program
        faults = np.empty(rows, np.int64)
        size = max(0, min(len(bytes_in), int(ends[-1] - starts[0]))) if rows else 0  # an estimate
        buffers = ColumnBuffers(self._columns, program.domains, rows, size, len(bytes_in))
        columns, domains = buffers.columns.reshape(-1), buffers.domains.reshape(-1)
        marks = np.empty(LANES * program.marks, np.int64)
        row = 0
        while True:
            stopped, row, place, needed = decode_avro.run(
                *(bytes_in, starts, ends, program.instructions, program.tables, program.constants),
                *(columns, domains, marks, faults, row),
            )
            if stopped == 0:
                break
            if stopped == NEEDS_BYTES:
                buffers.grow_content(place // COLUMN_BYTES, needed)
            else:
                buffers.grow_items(place // DOMAIN_BYTES, needed)
        if buffers.domains[0, REMAINING] == 0:
            return buffers.to_arrow(self._root, None), faults
        validity = bitmap(faults == 0)
        faults[faults == NO_VALUE] = 0
        return buffers.to_arrow(self._root, validity), faults

    def explain(self, value: bytes) -> str:
        """Why a value is bad: the reason, the field and the position. Slow, for the error of a single row."""
        _, fault, position, path = self._plain.decode(value)
        where = f"field {path}, " if path else ""
        return error_text(fault) if fault == 0 else f"{where}byte {position} of {len(value)}: {error_text(fault)}"
