"""JSON payloads as columns of a known type.

Each payload is parsed once; columns are then built field by field from all rows, with a check of what each value is.
A value that does not fit makes its row bad and names the field. pyarrow's own reader is not used: payloads like `null`
crash the process, and it takes two values in one payload for two rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from duralog.errors import SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.column_types import pruned_type
from duralog.schemas.exact_numbers import Exact
from duralog.schemas.frames import MessagePlace
from duralog.schemas.json_columns import JsonColumns, note_fields
from duralog.schemas.json_types import infer_type, json_schema_type
from duralog.schemas.payloads import Bytes, Decoded, Int64s, Payloads, binary_column, count_left_out, no_reasons
from duralog.schemas.registered_schema import RegisteredSchema

_ROWS = 2_048
"""Rows that are parsed before their columns are built: what they take as Python objects stays small."""


class JsonFormat:
    """The decoder of a JSON Schema, or of an inferred type. JSON needs no writer's schema."""

    def __init__(
        self,
        reader: RegisteredSchema | None,
        catalogue: SchemaCatalogue,
        columns: Sequence[str] | None,
        inferred: pa.Field | None,
    ) -> None:
        if reader is not None:
            imports = {name: each.text for name, each in catalogue.resolve(reader).items()}
            field = json_schema_type(reader.text, imports)
        elif inferred is not None:
            field = inferred
        else:
            raise SchemaError("format json needs a JSON Schema, or a type that was inferred from a sample")
        if columns is not None:
            whole, field = field, field.with_type(pruned_type(field.type, columns))
            self._payloads = JsonPayloads(field, whole=whole)
        else:
            self._payloads = JsonPayloads(field)
        self.arrow_type = field.type

    def payloads(self, _writer: RegisteredSchema | None, _place: MessagePlace | None) -> Payloads:
        """The same for all writers."""
        return self._payloads


class JsonPayloads:
    """Payloads of one type. `whole` also has the fields that were not asked for: only others are `left_out`."""

    def __init__(self, field: pa.Field, *, whole: pa.Field | None = None) -> None:
        self._field = field
        self._known: dict[str, frozenset[str]] = {}
        note_fields((whole or field).type, "", self._known)
        self._parse_float = Exact if _has_decimal(field.type) else float
        self.arrow_type = field.type

    def decode(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        """The payloads at these positions."""
        count = len(starts)
        if count <= _ROWS:
            return self._some(data, starts, ends)
        parts = [self._some(data, starts[at : at + _ROWS], ends[at : at + _ROWS]) for at in range(0, count, _ROWS)]
        return Decoded(
            pa.concat_arrays([part.values for part in parts]),
            pa.concat_arrays([part.reasons for part in parts]),
            count_left_out(part.left_out for part in parts),
        )

    def _some(self, data: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        return self._built(*parse_all(binary_column(data, starts, ends), self._parse_float))

    def _built(self, values: list[Any], reasons: dict[int, str]) -> Decoded:
        """The column of parsed payloads, None for those that are not JSON, with the reasons for these."""
        return self._as_column(values, reasons, self._field)

    def _as_column(self, values: list[Any], reasons: dict[int, str], field: pa.Field) -> Decoded:
        columns = JsonColumns(reasons, self._known)
        found = columns.build(values, None, field, "")
        if not reasons:
            return Decoded(found, no_reasons(len(values)), columns.left_out)
        texts = [reasons.get(row) for row in range(len(values))]
        keep = np.arange(len(values))
        mask = np.fromiter((text is not None for text in texts), bool, len(texts))
        return Decoded(found.take(pa.array(keep, mask=mask)), pa.array(texts, pa.string()), columns.left_out)


def infer_json_type(payloads: pa.Array) -> pa.Field:
    """The column that fits a sample of payloads without an id; raises `SchemaError` if none of them is JSON."""
    return infer_type(parsed_sample(payloads))


def parsed_sample(payloads: pa.Array) -> list[object]:
    """The values of a sample's payloads that are JSON, at least one."""
    values, reasons = parse_all(payloads.drop_null())
    if len(reasons) == len(values):
        why = next(iter(reasons.values()), "there is none")
        raise SchemaError(f"no payload of the sample is JSON: {why}")
    return [value for row, value in enumerate(values) if row not in reasons]


def _has_decimal(type_: pa.DataType) -> bool:
    if pa.types.is_nested(type_):
        return any(_has_decimal(type_.field(place).type) for place in range(type_.num_fields))
    return bool(pa.types.is_decimal(type_))


def parse_all(column: pa.Array, parse_float: Callable[[str], float] = float) -> tuple[list[Any], dict[int, str]]:
    """The parsed payloads of a binary column without nulls, None where they are not JSON, and why they are not."""
    reasons: dict[int, str] = {}
    try:
        texts = column.cast(pa.large_string()).to_pylist()
    except pa.ArrowInvalid:
        texts = []
        for row, each in enumerate(column):
            try:
                texts.append(each.as_py().decode())
            except UnicodeDecodeError as error:
                texts.append("null")
                reasons[row] = f"damaged JSON at byte {error.start}: not UTF-8"
    decoder = json.JSONDecoder(parse_float=parse_float, parse_constant=_refuse_constant)
    scan = decoder.scan_once  # type: ignore[attr-defined]
    values = []
    for row, text in enumerate(texts):
        try:
            value, end = scan(text, 0)
            if end == len(text):
                values.append(value)
                continue
        except (StopIteration, ValueError, RecursionError):
            pass
        # With blanks around it, or damaged: what says where costs a third more.
        try:
            values.append(decoder.decode(text))
        except (ValueError, RecursionError) as error:
            values.append(None)
            reasons[row] = _why(error, text)
    return values, reasons


def _why(error: Exception, text: str) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"damaged JSON at byte {len(text[: error.pos].encode(errors='replace'))}: {error.msg}"
    if isinstance(error, RecursionError):
        return "damaged JSON: nested too deeply"
    return f"damaged JSON: {str(error)[:100]}"


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
