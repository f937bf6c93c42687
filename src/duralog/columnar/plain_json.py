"""Converts decoded values to JSON, for lines, CSV cells and pages: bytes as base64, times as ISO 8601."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from typing import Any


def plain_json(value: Any, *, decimals: bool = False) -> Any:
    """A decoded value with JSON types only. With `decimals`, decimals are kept."""
    if isinstance(value, dict):
        return {str(name): plain_json(each, decimals=decimals) for name, each in value.items()}
    if isinstance(value, list | tuple):
        # A map is a list of pairs.
        if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return {str(name): plain_json(each, decimals=decimals) for name, each in value}
        return [plain_json(each, decimals=decimals) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if decimals and isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.timedelta):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def json_text(value: Any) -> str:
    """The same as a line of text."""
    return _text(plain_json(value))


def searched_json(value: Any) -> str:
    """The text that conditions search. Decimals are numbers in it with all their digits, so that they are compared as
    numbers. In output they are text, since many parsers would round them.
    """
    plain = plain_json(value, decimals=True)
    try:
        return _text(plain)
    except TypeError:
        return _with_decimals(plain)


def _with_decimals(plain: Any) -> str:
    if isinstance(plain, dict):
        return "{" + ",".join(f"{_text(name)}:{_with_decimals(each)}" for name, each in plain.items()) + "}"
    if isinstance(plain, list):
        return "[" + ",".join(map(_with_decimals, plain)) + "]"
    return str(plain) if isinstance(plain, decimal.Decimal) else _text(plain)


def _text(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
