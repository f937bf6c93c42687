"""Columns of parsed JSON, field by field, with a check of what each value is.

A value that does not fit makes its row bad, and the reason names the field.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from duralog.schemas.exact_numbers import Exact
from duralog.schemas.json_types import (
    AS_BASE64,
    AS_FLOAT_TEXT,
    AS_LOOSE_TEXT,
    AS_PAIRS,
    AS_TEXT,
    ENCODING,
    EXPECTED,
    is_double,
    is_text,
)
from duralog.schemas.payloads import Int64s, count_left_out

_MOST_NAME = 200
"""Characters of a field's name in a report."""
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_MAX_DIGITS = 80
"""More than any decimal column has."""
_ALL_DIGITS = Context(prec=_MAX_DIGITS)


class JsonColumns:
    """Builds columns from parsed values, with reasons for rows whose values do not fit."""

    def __init__(self, reasons: dict[int, str], known: Mapping[str, frozenset[str]]) -> None:
        self._reasons = reasons
        self._known = known
        self.left_out: dict[str, int] = {}

    def build(self, values: list[Any], rows: Int64s | None, field: pa.Field, path: str) -> pa.Array:
        """A column; `rows` are the payloads that nested values belong to."""
        type_ = field.type
        encoding = (field.metadata or {}).get(ENCODING)
        if encoding == AS_TEXT:
            return pa.array([None if value is None else _json(value) for value in values], pa.string())
        if encoding == AS_LOOSE_TEXT:
            return pa.array([None if value is None else _loose(value) for value in values], pa.string())
        if encoding == AS_BASE64:
            if pa.types.is_decimal(type_):
                return self._converted(values, rows, type_, path, lambda value: _decimal(value, type_.scale))
            return self._converted(values, rows, type_, path, _from_base64)
        if encoding == AS_FLOAT_TEXT and str in set(map(type, values)):
            return self._converted(values, rows, type_, path, _number_or_text)
        if encoding == AS_PAIRS:
            return self._pairs(values, rows, type_, path)
        if EXPECTED in (field.metadata or {}):
            return self._converted(values, rows, type_, path, _nothing, field.metadata[EXPECTED].decode())
        if pa.types.is_struct(type_):
            values = self._only(values, rows, dict, path, "an object")
            return self._struct(values, rows, type_, path)
        if pa.types.is_list(type_):
            values = self._only(values, rows, list, path, "an array")
            items = self.build(_flat(values), _repeated(values, rows), type_.value_field, f"{path}[]")
            return pa.ListArray.from_arrays(_offsets(values), items, type=type_)
        if pa.types.is_map(type_):
            values = self._only(values, rows, dict, path, "an object")
            keys = pa.array(list(chain.from_iterable(each for each in values if each is not None)), pa.string())
            pairs = [None if each is None else list(each.values()) for each in values]
            items = self.build(_flat(pairs), _repeated(pairs, rows), type_.item_field, f"{path}{{}}")
            return pa.MapArray.from_arrays(_offsets(pairs), keys, items, type=type_)
        return self._scalars(values, rows, type_, path)

    def _struct(self, values: list[Any], rows: Int64s | None, type_: pa.DataType, path: str) -> pa.Array:
        missing = None
        if None in values:
            missing = pa.array([value is None for value in values])
            values = [{} if value is None else value for value in values]
        others = set().union(*values).difference(self._known[path])
        if others:
            found = Counter(chain.from_iterable(value.keys() & others for value in values))
            named = ({_shown_name(_field_path(path, name)): count} for name, count in sorted(found.items()))
            self.left_out = count_left_out([self.left_out, *named])
        children = [
            self.build([value.get(each.name) for value in values], rows, each, _field_path(path, each.name))
            for each in type_
        ]
        if not children:
            is_missing = [False] * len(values) if missing is None else missing.to_pylist()
            return pa.array([None if each else {} for each in is_missing], type_)
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=missing)

    def _pairs(self, values: list[Any], rows: Int64s | None, type_: pa.DataType, path: str) -> pa.Array:
        """A map as an array of its keys and values."""
        values = list(self._only(values, rows, list, path, "an array of keys and values"))
        for place, value in enumerate(values):
            if value is None or all(
                isinstance(pair, list) and len(pair) == 2 and pair[0] is not None for pair in value
            ):
                continue
            self._refuse(place, rows, path, "an array of keys and values", value)
            values[place] = None
        nested, pairs = _repeated(values, rows), _flat(values)
        keys = self.build([key for key, _ in pairs], nested, type_.key_field, f"{path}{{}}")
        items = self.build([item for _, item in pairs], nested, type_.item_field, f"{path}{{}}")
        if keys.null_count:
            # Their rows are bad.
            for place in _repeated(values, None)[np.asarray(keys.is_null())].tolist():
                values[place] = None
            return self._pairs(values, rows, type_, path)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=type_)

    def _scalars(self, values: list[Any], rows: Int64s | None, type_: pa.DataType, path: str) -> pa.Array:
        kinds = set(map(type, values))
        kinds.discard(type(None))
        allowed: set[type]
        convert: Callable[[Any], object]
        if pa.types.is_floating(type_):
            allowed, convert = ({float, Exact} if pa.types.is_float64(type_) else set()), _number
        elif pa.types.is_boolean(type_):
            allowed, convert = {bool}, _boolean
        elif pa.types.is_string(type_):
            allowed, convert = {str}, _text
        elif pa.types.is_null(type_):
            allowed, convert = set(), _nothing
        else:
            allowed, convert = {int}, _whole
        if kinds <= allowed:
            try:
                found = pa.array(values, type_)
                if not pa.types.is_floating(type_) or math.isfinite(
                    sum(value for value in values if value is not None)
                ):
                    return found
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                pass
        return self._converted(values, rows, type_, path, convert)

    def _converted(  # The parameters of `build`, and how.
        self,
        values: list[Any],
        rows: Int64s | None,
        type_: pa.DataType,
        path: str,
        convert: Callable[[Any], object],
        expected: str | None = None,
    ) -> pa.Array:
        """One by one: what does not fit makes its row bad."""
        found: list[object] = []
        for place, value in enumerate(values):
            try:
                scalar = None if value is None else convert(value)
                # What is out of the type's range is known only here.
                pa.scalar(scalar, type_)
                found.append(scalar)
            except (ValueError, OverflowError, pa.ArrowException):
                found.append(None)
                self._refuse(place, rows, path, expected or str(type_), value)
        return pa.array(found, type_)

    def _only(self, values: list[Any], rows: Int64s | None, kind: type, path: str, name: str) -> list[Any]:
        kinds = set(map(type, values))
        if kinds <= {kind, type(None)}:
            return values
        kept = list(values)
        for place, value in enumerate(values):
            if value is not None and type(value) is not kind:
                kept[place] = None
                self._refuse(place, rows, path, name, value)
        return kept

    def _refuse(self, place: int, rows: Int64s | None, path: str, expected: str, value: object) -> None:
        row = place if rows is None else int(rows[place])
        shown = _json(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        self._reasons.setdefault(row, f"{path or 'the payload'} is not {expected}: {shown}")


def note_fields(type_: pa.DataType, path: str, found: dict[str, frozenset[str]]) -> None:
    """The names of the fields of each struct, by where it is."""
    if pa.types.is_struct(type_):
        found[path] = found.get(path, frozenset()) | {each.name for each in type_}
        for each in type_:
            note_fields(each.type, _field_path(path, each.name), found)
    elif pa.types.is_list(type_):
        note_fields(type_.value_type, f"{path}[]", found)
    elif pa.types.is_map(type_):
        note_fields(type_.item_type, f"{path}{{}}", found)


def _field_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown_name(path: str) -> str:
    """For reports, which may be written to a terminal."""
    return path[:_MOST_NAME].encode(errors="backslashreplace").decode()


def _flat(values: list[Any]) -> list[Any]:
    return list(chain.from_iterable(each for each in values if each is not None))


def _lengths(values: list[Any]) -> Int64s:
    return np.fromiter((0 if each is None else len(each) for each in values), np.int64, len(values))


def _repeated(values: list[Any], rows: Int64s | None) -> Int64s:
    return np.repeat(np.arange(len(values)) if rows is None else rows, _lengths(values))


def _offsets(values: list[Any]) -> pa.Array:
    """The offsets of lists; a null list is a null offset."""
    offsets = np.concatenate([[0], np.cumsum(_lengths(values))]).astype(np.int32)
    missing = np.array([*(each is None for each in values), False], bool)
    return pa.array(offsets, pa.int32(), mask=missing)


def _json(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, separators=(",", ":"))
    except (ValueError, RecursionError):
        text = "..."
    return text


def _loose(value: object) -> str:
    if isinstance(value, str) and is_text(value):
        return value
    return _json(value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(float(value)):
        raise ValueError
    if isinstance(value, int) and not -(2**53) <= value <= 2**53 and not is_double(value):
        raise ValueError
    return float(value)


def _number_or_text(value: object) -> float:
    return float(value) if value in _NOT_FINITE else _number(value)


def _whole(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    value.encode()
    return value


def _nothing(_value: object) -> object:
    raise ValueError


def _from_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError from None


def _decimal(value: object, scale: int) -> Decimal:
    """Of Connect's two formats: the unscaled number's bytes in base64, or a number."""
    if isinstance(value, Exact):
        found = Decimal(value.text)
        if abs(found.adjusted()) > _MAX_DIGITS:
            raise ValueError
        return found
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    data = _from_base64(value)
    if len(data) > 32:
        raise ValueError
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _ALL_DIGITS)
