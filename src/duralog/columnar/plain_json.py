"""Decoded values as JSON has them, for lines, cells of CSV and pages: bytes as base64, times as ISO 8601."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from typing import Any


def plain_json(value: Any) -> Any:
    """A decoded value with nothing in it that JSON does not have."""
    if isinstance(value, dict):
        return {str(name): plain_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        # A map comes as pairs.
        if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return {str(name): plain_json(each) for name, each in value}
        return [plain_json(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | datetime.timedelta):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def json_text(value: Any) -> str:
    """The same as a line of text."""
    return json.dumps(plain_json(value), ensure_ascii=False, separators=(",", ":"))
