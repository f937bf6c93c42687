"""Decoded columns and PostgreSQL's own JSON of the same values, in one form that can be compared."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any


def in_truth(name: str, value: Any) -> Any:
    """A decoded value in a form that can be compared with PostgreSQL's."""
    if value is None:
        return None
    if name == "any_scale":
        return Decimal(int.from_bytes(value["value"], "big", signed=True)).scaleb(-value["scale"])
    if name == "doc":
        return json.loads(value, parse_float=Decimal)
    if name in ("seen", "at_zone"):
        return in_utc(name, value)
    if name == "span":
        # Months have 365.25 / 12 days.
        return {37091106700000: "1 year 2 mons 3 days 04:05:06.7"}[value]
    if name == "raw":
        return f"\\x{value.hex()}"
    if name == "bits":
        return f"{int.from_bytes(value, 'little'):03b}"
    return value


def of_truth(name: str, value: Any) -> Any:
    """A value of PostgreSQL's JSON, likewise."""
    if value is None:
        return None
    if name in ("made", "made_ms"):
        return datetime.datetime.fromisoformat(value)
    if name == "day":
        return datetime.date.fromisoformat(value)
    if name == "at":
        return datetime.time.fromisoformat(value)
    if name in ("seen", "at_zone"):
        return in_utc(name, value)
    if name in ("ratio", "exact"):
        return float(value)
    if name == "any_scale":
        return Decimal(value)
    return value


def in_utc(name: str, text: str) -> str:
    if name == "at_zone":
        text = f"2000-01-01T{text}"
    # "+00", which Python 3.11 reads, and "04:05:06.5", which it does not: it wants 3 or 6 digits.
    text = text.replace("06.5", "06.500").replace("00.5+", "00.500+")
    return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC).isoformat()
