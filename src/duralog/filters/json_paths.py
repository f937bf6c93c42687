"""Finding values in a JSON document by a path, and comparing them. The documents are not trusted.

Numbers are exact. A document that is larger than `LARGEST_BYTES`, nested too deeply, or has a number of thousands of
digits, contains no values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from duralog.filters.conditions import Every, Operator, Path, Scalar

LARGEST_BYTES = 8 << 20
NOTHING = object()
"""The value of a document that cannot be parsed."""
_BLANKS = " \t\n\r\ufeff"
"""Also the mark that some writers put before UTF-8."""
_NOT_A_NUMBER = object()
"""The value of NaN and the infinities, which some writers write although JSON does not allow them."""


def read_json(data: bytes) -> Any:
    """The parsed document; `NOTHING` if it is not JSON."""
    if len(data) > LARGEST_BYTES:
        return NOTHING
    try:
        text = data.decode().lstrip(_BLANKS)
        # Faster than `decode`, which looks for blanks by regular expressions.
        document, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        return NOTHING
    return NOTHING if text[end:].strip(_BLANKS) else document


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=lambda _name: _NOT_A_NUMBER)


def find(document: Any, path: Path) -> Sequence[Any]:
    """The values at the path, in document order: at most one, unless the path has `[*]`."""
    if document is NOTHING:
        return ()
    for done, step in enumerate(path):
        # A fast path while there is only one value.
        if isinstance(step, str):
            if not isinstance(document, dict) or step not in document:
                return ()
        elif isinstance(step, Every):
            return _find_some([document], path[done:])
        elif not isinstance(document, list) or step >= len(document):
            return ()
        document = document[step]
    return (document,)


def _find_some(found: list[Any], path: Path) -> Sequence[Any]:
    for step in path:
        found = [value for each in found for value in _below(each, step)]
        if not found:
            break
    return found


def _below(value: Any, step: str | int | Every) -> Iterator[Any]:
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield value[step]
    elif isinstance(value, list):
        if isinstance(step, Every):
            yield from value
        elif step < len(value):
            yield value[step]


def compares(value: Any, operator: Operator, operand: Scalar) -> bool:
    """Values of different types are different, and have no order. REQUIRES: not `matches`."""
    if operator is Operator.EXISTS:
        return True
    if operator is Operator.EQUALS:
        return bool(value == operand) and _kind(value) == _kind(operand)
    if operator is Operator.DIFFERS:
        return not (value == operand and _kind(value) == _kind(operand))
    if operator is Operator.CONTAINS:
        return isinstance(value, str) and str(operand) in value
    if _kind(value) != _kind(operand):
        return False
    match operator:
        case Operator.LESS:
            return bool(value < operand)
        case Operator.AT_MOST:
            return bool(value <= operand)
        case Operator.MORE:
            return bool(value > operand)
    return bool(value >= operand)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | Decimal):
        return "number"
    return "text" if isinstance(value, str) else "other"
