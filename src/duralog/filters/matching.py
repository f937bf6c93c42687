"""Which records of an Arrow batch a condition holds for.

Conditions on text are applied to whole columns. JSON is parsed only for the rows that the rest and their bytes
(`duralog.filters.json_bytes`) may match, each document once.

Keys and values may also be given decoded, as JSON: paths are then looked up in these, and a text is compared with the
bytes and with the decoded text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any as Anything

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.columnar.schema import HEADERS, KEY, VALUE
from duralog.filters.conditions import All, Any, Condition, Field, Json, Not, Operator, Text, uses_json
from duralog.filters.json_bytes import may_match
from duralog.filters.json_paths import LARGEST_BYTES, compares, find, read_json

Mask = NDArray[np.bool_]
_FEW_ROWS = 1_000
_Rows = NDArray[np.intp]
_PARSED_AT_ONCE = 250
"""Documents are many times larger once they are parsed."""


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
        held = []
        for first in range(0, len(rows), _PARSED_AT_ONCE):
            some = rows[first : first + _PARSED_AT_ONCE]
            documents = _Documents(views[-1].take(pa.array(some)))
            of_some = {condition: mask[some] for condition, mask in masks.items()}
            held.append(some[self._held(self._condition, np.arange(len(some)), documents, of_some)])
        return np.concatenate(held)

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
                if condition.field is Field.HEADER:
                    return np.ones(count, bool)
                return may_match(condition, views[-1].column(str(condition.field)))
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

    def _held(self, condition: Condition, rows: _Rows, documents: _Documents, masks: dict[int, Mask]) -> Mask:
        """For each of these rows, whether the condition holds."""
        if (mask := masks.get(id(condition))) is not None:
            return mask[rows]
        match condition:
            case Json():
                return self._json_held(condition, rows, documents)
            case Not():
                return ~self._held(condition.condition, rows, documents, masks)
            case All() | Any():
                # A row that is decided is not looked at again.
                decided = isinstance(condition, Any)
                held = np.full(len(rows), not decided)
                for part in condition.conditions:
                    is_open = np.flatnonzero(held != decided)
                    held[is_open] = self._held(part, rows[is_open], documents, masks)
                return held
        raise AssertionError("text has a mask")

    def _json_held(self, condition: Json, rows: _Rows, documents: _Documents) -> Mask:
        path, operator, operand = condition.path, condition.operator, condition.operand
        parsed = documents.of(condition.field, condition.header)
        found = [[value for document in parsed(row) for value in find(document, path)] for row in rows.tolist()]
        self.too_large += documents.take_too_large()
        if operator is not Operator.MATCHES and not condition.ignores_case:
            return np.array([any(compares(value, operator, operand) for value in values) for values in found], bool)
        # Texts of all rows at once.
        texts = [(at, value) for at, values in enumerate(found) for value in values if isinstance(value, str)]
        held = np.zeros(len(rows), bool)
        if texts:
            places = np.array([at for at, _ in texts])
            is_held = _folded(_strings([text for _, text in texts]), operator, str(operand), condition.ignores_case)
            held[places[is_held]] = True
        if operator is Operator.DIFFERS:
            held |= np.array([any(not isinstance(value, str) for value in values) for values in found], bool)
        return held


class _Documents:
    """The JSON of fields, row by row: converted to Python objects and parsed when it is first used."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self._records = records
        self._parsed: dict[tuple[Field, str | None], dict[int, list[Anything]]] = {}
        self._columns: dict[str, list[Anything]] = {}
        self._too_large = 0

    def of(self, field: Field, header: str | None) -> Callable[[int], list[Anything]]:
        """What parses the documents of a row: one, or one for each header of a name."""
        known = self._parsed.setdefault((field, header), {})
        name = HEADERS if field is Field.HEADER else str(field)
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._records.column(name).to_pylist()

        def parsed(row: int) -> list[Anything]:
            documents = known.get(row)
            if documents is None:
                data = column[row]
                if field is Field.HEADER:
                    texts = [each["value"] for each in data or () if each["key"] == header]
                else:
                    texts = [data]
                texts = [each for each in texts if each is not None]
                self._too_large += sum(len(each) > LARGEST_BYTES for each in texts)
                documents = known[row] = [read_json(each) for each in texts]
            return documents

        return parsed

    def take_too_large(self) -> int:
        """How many were too large to be parsed since the last call."""
        count, self._too_large = self._too_large, 0
        return count


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
