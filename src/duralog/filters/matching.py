"""Which records of an Arrow batch a condition holds for.

Conditions on text are applied to whole columns. JSON is parsed only for the rows that the rest may match, each document
once; rows whose bytes lack a member's name, or a text that it must equal, are skipped.

Keys and values may also be given decoded, as JSON: paths are then looked up in these, and a text is compared with the
bytes and with the decoded text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any as Anything

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.columnar.schema import HEADERS, KEY, VALUE
from duralog.filters.conditions import All, Any, Condition, Field, Json, Not, Operator, Text, uses_json
from duralog.filters.json_paths import LARGEST_BYTES, compares, find, read_json

Mask = NDArray[np.bool_]
_PLAIN = re.compile(r"[A-Za-z0-9_ .:-]+")
"""JSON has no short escape for any of these characters."""
_FEW_ROWS = 1_000
_Documents = dict[tuple[Field, str | None], list[Anything]]


class Matcher:
    """For one thread."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._has_json = uses_json(condition)
        self.too_large = 0
        """Documents that were too large to parse as JSON."""

    def rows(self, records: pa.RecordBatch, decoded: pa.RecordBatch | None = None) -> NDArray[np.intp]:
        """The row numbers of matching records, in order. REQUIRES: the columns of `RECORD_SCHEMA`.

        `decoded` has the same rows, with JSON text as keys and values where they were decoded.
        """
        masks: dict[int, Mask] = {}
        views = (records,) if decoded is None else (records, decoded)
        rows = np.flatnonzero(self._possible(self._condition, views, masks))
        if not self._has_json or not len(rows):
            return rows
        fields = _Fields(views[-1].take(pa.array(rows)))
        masks = {condition: mask[rows] for condition, mask in masks.items()}
        held = [self._holds(self._condition, row, fields, masks, {}) for row in range(len(rows))]
        matching: NDArray[np.intp] = rows[np.array(held, bool)]
        return matching

    def _possible(self, condition: Condition, views: Sequence[pa.RecordBatch], masks: dict[int, Mask]) -> Mask:
        """A superset of the matching rows; exact if the condition has no JSON. Keeps the masks of such parts.

        `views` are the records, and maybe the same ones decoded.
        """
        count = views[0].num_rows
        match condition:
            case Text():
                seen = [text_mask(condition, records) for records in views]
                mask = seen[0]
                for more in seen[1:]:
                    mask = mask & more if condition.operator is Operator.DIFFERS else mask | more
            case Json():
                return _may_have(condition, views[-1])
            case Not():
                inner = self._possible(condition.condition, views, masks)
                mask = np.ones(count, bool) if uses_json(condition) else ~inner
            case All():
                mask = np.ones(count, bool)
                for part in sorted(condition.conditions, key=uses_json):
                    # For few rows, parsing is faster than a search through all.
                    if not isinstance(part, Json) or mask.sum() > _FEW_ROWS:
                        mask &= self._possible(part, views, masks)
            case Any():
                mask = np.zeros(count, bool)
                for part in condition.conditions:
                    mask |= self._possible(part, views, masks)
        if not uses_json(condition):
            masks[id(condition)] = mask
        return mask

    def _holds(
        self, condition: Condition, row: int, fields: _Fields, masks: dict[int, Mask], documents: _Documents
    ) -> bool:
        if (mask := masks.get(id(condition))) is not None:
            return bool(mask[row])
        match condition:
            case Json():
                return self._json_holds(condition, row, fields, documents)
            case Not():
                return not self._holds(condition.condition, row, fields, masks, documents)
            case All():
                return all(self._holds(part, row, fields, masks, documents) for part in condition.conditions)
            case Any():
                return any(self._holds(part, row, fields, masks, documents) for part in condition.conditions)
        raise AssertionError("text has a mask")

    def _json_holds(self, condition: Json, row: int, fields: _Fields, documents: _Documents) -> bool:
        place = condition.field, condition.header
        if place not in documents:
            data = fields.of(row, *place)
            self.too_large += len([each for each in data if len(each) > LARGEST_BYTES])
            documents[place] = [read_json(each) for each in data]
        found = [value for document in documents[place] for value in find(document, condition.path)]
        if condition.operator is Operator.MATCHES or condition.ignores_case:
            texts = [value for value in found if isinstance(value, str)]
            others = condition.operator is Operator.DIFFERS and len(texts) < len(found)
            return others or bool(
                texts
                and _folded(_strings(texts), condition.operator, str(condition.operand), condition.ignores_case).any()
            )
        return any(compares(value, condition.operator, condition.operand) for value in found)


class _Fields:
    """The bytes of fields, row by row. A column is converted to Python objects when it is first used."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records
        self._columns: dict[str, list[Anything]] = {}

    def of(self, row: int, field: Field, header: str | None) -> list[bytes]:
        name = HEADERS if field is Field.HEADER else str(field)
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._records.column(name).to_pylist()
        found = column[row]
        if field is Field.HEADER:
            return [each["value"] for each in found or () if each["key"] == header and each["value"] is not None]
        return [] if found is None else [found]


def _may_have(condition: Json, records: pa.RecordBatch) -> Mask:
    r"""A superset of the matching rows, by the bytes that they must contain: names, and a required text. Characters may
    be escaped as `\u0061`: a row with such an escape may contain anything.
    """
    texts = [step for step in condition.path if isinstance(step, str)]
    if condition.operator in (Operator.EQUALS, Operator.CONTAINS) and not condition.ignores_case:
        texts += [condition.operand] if isinstance(condition.operand, str) else []
    texts = [text for text in texts if _PLAIN.fullmatch(text)]
    mask = np.ones(records.num_rows, bool)
    if condition.field is Field.HEADER or not texts:
        return mask
    column = records.column(str(condition.field))
    for text in texts:
        mask &= _mask(pc.match_substring(column, text))
    return mask if mask.all() else mask | _mask(pc.match_substring(column, "\\u"))


def text_mask(condition: Text, records: pa.RecordBatch) -> Mask:
    match condition.field:
        case Field.KEY:
            return _column_mask(condition, records.column(KEY))
        case Field.VALUE:
            return _column_mask(condition, records.column(VALUE))
        case Field.HEADER:
            return _header_mask(records, lambda headers: _named(headers, condition))
    mask = _column_mask(condition, records.column(KEY))
    mask |= _column_mask(condition, records.column(VALUE))
    return mask | _header_mask(
        records,
        lambda headers: (
            _column_mask(condition, headers.field("key").cast(pa.binary()))
            | _column_mask(condition, headers.field("value"))
        ),
    )


def _named(headers: pa.StructArray, condition: Text) -> Mask:
    if condition.operator is Operator.EXISTS:
        mask = np.ones(len(headers), bool)
    else:
        mask = _column_mask(condition, headers.field("value"))
    return mask if condition.header is None else mask & _mask(pc.equal(headers.field("key"), condition.header))


def _header_mask(records: pa.RecordBatch, of_headers: Callable[[pa.StructArray], Mask]) -> Mask:
    column = records.column(HEADERS)
    mask = np.zeros(records.num_rows, bool)
    headers = column.flatten()
    if len(headers):
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        mask[parents[of_headers(headers)]] = True
    return mask


def _column_mask(condition: Text, column: pa.Array) -> Mask:
    operator, operand = condition.operator, condition.operand
    if operator is Operator.EXISTS or (operator is Operator.DIFFERS and operand is None):
        return _mask(column.is_valid())
    if operand is None:
        return _mask(column.is_null())
    if operator is Operator.MATCHES or condition.ignores_case:
        return _folded(_text(column), operator, operand.decode(), condition.ignores_case)
    if operator is Operator.CONTAINS:
        return _mask(pc.match_substring(column, operand))
    scalar = pa.scalar(operand, pa.binary())
    return _mask(pc.equal(column, scalar) if operator is Operator.EQUALS else pc.not_equal(column, scalar))


def _folded(texts: pa.Array, operator: Operator, operand: str, ignores_case: bool) -> Mask:
    """Conditions that RE2 evaluates: regular expressions, and texts in any case."""
    if operator is Operator.MATCHES:
        return _mask(pc.match_substring_regex(texts, operand, ignore_case=ignores_case))
    if operator is Operator.CONTAINS:
        return _mask(pc.match_substring(texts, operand, ignore_case=ignores_case))
    is_equal = pc.match_substring_regex(texts, rf"\A(?:{_quoted(operand)})\z", ignore_case=ignores_case)
    return _mask(is_equal if operator is Operator.EQUALS else pc.invert(is_equal))


def _quoted(text: str) -> str:
    r"""A regular expression that matches exactly this text: RE2 accepts `\x{...}` for any character."""
    return "".join(char if char.isalnum() and char.isascii() else rf"\x{{{ord(char):x}}}" for char in text)


def _text(column: pa.Array) -> pa.Array:
    """Bytes as text; null where they are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return _strings([None if data is None else _decoded(data) for data in column.to_pylist()])


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _strings(texts: Sequence[str | None]) -> pa.Array:
    """Lone surrogates, which JSON can contain, are invalid text in Arrow: they are replaced."""
    return pa.array([None if text is None else text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def _mask(booleans: pa.Array) -> Mask:
    filled = booleans.fill_null(False) if booleans.null_count else booleans
    mask: Mask = filled.to_numpy(zero_copy_only=False)
    return mask
