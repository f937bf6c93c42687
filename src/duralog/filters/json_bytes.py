r"""Which rows may satisfy a condition on JSON, judged by their bytes, so that only these are parsed.

The bytes of a document with a member `amount` have its name in quotes, a colon, and the value. So all places of the
name are found in all rows at once, and what follows is compared: numbers approximately, texts by their first bytes.
This gives a superset of the matching rows, since a place may be in another object. Characters may be escaped as
`\u0061`: a row with such an escape may satisfy anything.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duralog.filters.conditions import Json, Operator, Scalar

Mask = NDArray[np.bool_]
_Bytes = NDArray[np.uint8]
_Places = NDArray[np.intp]

_PLAIN = re.compile(r"[A-Za-z0-9_ .:-]+")
"""JSON has no short escape for any of these characters."""
_FEW_ROWS = 1_000
"""As few are parsed sooner than all rows are searched again."""
_SEARCHED_BYTES = 3
"""Of a name, everywhere. The rest is compared where these were found."""
_COMPARED_BYTES = 64
_MOST_BLANKS = 8
_MOST_DIGITS = 24
_IMPRECISION = 1e-12
"""Relative: as many digits, summed up as a float, are closer to their number."""
_IS_BLANK = np.isin(np.arange(256), list(b" \t\n\r"))
_IS_OF_NUMBER = np.isin(np.arange(256), list(b"-0123456789"))
_QUOTE, _COLON, _POINT, _MINUS, _ZERO = b'":.-0'
_COMPARES_VALUES = frozenset({Operator.LESS, Operator.AT_MOST, Operator.MORE, Operator.AT_LEAST, Operator.EQUALS})


def may_match(condition: Json, column: pa.Array) -> Mask:
    """A superset of the rows of a column that satisfy the condition."""
    mask = np.ones(len(column), bool)
    needed = [step for step in condition.path if isinstance(step, str)]
    is_exact_text = isinstance(condition.operand, str) and not condition.ignores_case
    if is_exact_text and condition.operator in (Operator.EQUALS, Operator.CONTAINS):
        needed.append(str(condition.operand))
    needed = [text for text in needed if _PLAIN.fullmatch(text)]
    if not needed or not len(column):
        return mask
    last = condition.path[-1] if condition.path else None
    if isinstance(last, str) and last in needed:
        needed.remove(last)
        mask = _Members(column).with_value(last, condition)
    for text in needed:
        if mask.sum() > _FEW_ROWS or mask.all():
            mask &= _contains(column, text)
    return mask if mask.all() else mask | _contains(column, "\\u")


class _Members:
    """The bytes of all rows of a column, one after the other."""

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        width = np.int64 if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type) else np.int32
        self._offsets = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
        begin, end = int(self._offsets[0]), int(self._offsets[-1])
        self._begin = begin
        self._data: _Bytes = np.frombuffer(b"" if data is None else data, np.uint8)[begin:end]

    def with_value(self, name: str, condition: Json) -> Mask:
        """The rows with a member of this name whose value may satisfy the condition."""
        mask = np.zeros(len(self._offsets) - 1, bool)
        after_name = self._ends_of(f'"{name}"'.encode())
        if len(after_name):
            colons = self._skip_blanks(after_name)
            is_open = self._is_blank(colons)  # After very many blanks, anything may follow.
            values = self._skip_blanks(colons + 1)
            is_member = self._at(colons) == _COLON
            may_satisfy = is_open | (is_member & (self._is_blank(values) | self._satisfies(values, condition)))
            rows = np.searchsorted(self._offsets, after_name[may_satisfy] + self._begin - 1, side="right") - 1
            mask[rows] = True
        return mask

    def _ends_of(self, needle: bytes) -> _Places:
        """The places after a text."""
        data, count = self._data, len(self._data) - len(needle) + 1
        if count <= 0:
            return np.empty(0, np.intp)
        is_found = data[:count] == needle[0]
        for at in range(1, _SEARCHED_BYTES):
            is_found &= data[at : count + at] == needle[at]
        places = np.flatnonzero(is_found)
        for at in range(_SEARCHED_BYTES, len(needle)):
            places = places[data[places + at] == needle[at]]
        return places + len(needle)

    def _at(self, places: _Places) -> _Bytes:
        """A place after the end has the last byte, which is none of a member."""
        found: _Bytes = self._data.take(places, mode="clip")
        return found

    def _is_blank(self, places: _Places) -> Mask:
        mask: Mask = _IS_BLANK[self._at(places)]
        return mask

    def _skip_blanks(self, places: _Places) -> _Places:
        for _ in range(_MOST_BLANKS):
            is_blank = self._is_blank(places)
            if not is_blank.any():
                break
            places = places + is_blank
        return places

    def _satisfies(self, places: _Places, condition: Json) -> Mask:
        """Whether the values that begin at these places may satisfy the condition."""
        first, operand = self._at(places), condition.operand
        mask: Mask = first == _QUOTE
        if condition.operator in (Operator.CONTAINS, Operator.MATCHES):
            return mask
        if condition.operator not in _COMPARES_VALUES:
            return np.ones(len(places), bool)
        if isinstance(operand, str):
            is_exact = condition.operator is Operator.EQUALS and not condition.ignores_case
            return mask & self._continues(places + 1, operand) if is_exact and _PLAIN.fullmatch(operand) else mask
        if operand is None:
            mask = first == ord("n")
        elif isinstance(operand, bool):
            mask = (first == ord("t")) | (first == ord("f"))
        else:
            mask = _IS_OF_NUMBER[first] & self._numbers_satisfy(places, condition.operator, operand)
        return mask

    def _continues(self, places: _Places, text: str) -> Mask:
        mask = np.ones(len(places), bool)
        for at, byte in enumerate(f'{text}"'.encode()[:_COMPARED_BYTES]):
            mask &= self._at(places + at) == byte
        return mask

    def _numbers_satisfy(self, places: _Places, operator: Operator, operand: Scalar) -> Mask:
        assert isinstance(operand, int | Decimal)
        wanted = float(Decimal(operand))
        if not isfinite(wanted):
            return np.ones(len(places), bool)
        values, is_open = self._numbers(places)
        room = _IMPRECISION * np.maximum(np.abs(values), abs(wanted))
        match operator:
            case Operator.EQUALS:
                mask = np.abs(values - wanted) <= room
            case Operator.LESS | Operator.AT_MOST:
                mask = values <= wanted + room
            case _:
                mask = values >= wanted - room
        return mask | is_open

    def _numbers(self, places: _Places) -> tuple[NDArray[np.float64], Mask]:
        """The numbers at these places, about, and which of them are not known: long ones, and those with exponents."""
        is_negative = self._at(places) == _MINUS
        places = places + is_negative
        values = np.zeros(len(places))
        decimals = np.zeros(len(places), np.int64)
        is_going, is_fraction = np.ones(len(places), bool), np.zeros(len(places), bool)
        for _ in range(_MOST_DIGITS):
            byte = self._at(places)
            digit = byte - _ZERO
            is_digit = is_going & (digit < 10)
            is_point = is_going & (byte == _POINT)
            values = np.where(is_digit, values * 10 + digit, values)
            decimals += is_digit & is_fraction
            is_fraction |= is_point
            is_going = is_digit | is_point
            if not is_going.any():
                break
            places = places + is_going
        values /= 10.0**decimals
        is_open = is_going | np.isin(self._at(places), list(b"eE"))
        return np.where(is_negative, -values, values), is_open


def _contains(column: pa.Array, text: str) -> Mask:
    found = pc.match_substring(column, text)
    mask: Mask = (found.fill_null(False) if found.null_count else found).to_numpy(zero_copy_only=False)
    return mask
