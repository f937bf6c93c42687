"""Parses and formats times for people.

A time on a command line is ISO 8601 (without a zone it means UTC), a number of milliseconds since 1970, or an age
such as `2h`, counted back from now. Digits that could be a date, such as `20240501`, are refused: as milliseconds they
would be a moment of 1970, or one far in the future, and a command would quietly show all or nothing.

Kafka's files keep milliseconds since 1970 in UTC: so do all commands.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_INT64_MAX = 2**63 - 1

_AGE = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_AGE_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(
    r"(?P<sign>[+-])?P(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_DURATION_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_MILLISECONDS = re.compile(r"-?\d+")
_DATE = re.compile(r"(?:19|20)\d{6}(?:\d{6})?")

TIME_FORMS = "ISO 8601 (UTC unless it names a zone), milliseconds since 1970, or an age like 90s, 30m, 2h, 7d"


class AmbiguousTime(ValueError):
    """Digits that could be a date. The message shows how to write either meaning."""


def now_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def parse_time(text: str, *, now_ms: int) -> int:
    """Milliseconds since 1970. Raises `ValueError` with the accepted forms."""
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        milliseconds = int(text)
        if _DATE.fullmatch(text) and (date := _read_date(text)):
            raise AmbiguousTime(
                f"{text!r} could be a date or a number of milliseconds: give the time as {date}, or the milliseconds as"
                f" {format_time(milliseconds)}"
            )
    elif age := _AGE.fullmatch(text):
        milliseconds = now_ms - int(age[1]) * _AGE_UNIT_MS[age[2]]
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a time: give {TIME_FORMS}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = (moment - _EPOCH) // _MILLISECOND
    if abs(milliseconds) > _INT64_MAX:
        raise ValueError(f"{text!r} is beyond the times that a log can hold")
    return milliseconds


def parse_duration_ago(text: str, *, now_ms: int) -> int:
    """The time before now by this duration, in milliseconds. The duration as Java's `Duration.parse`, or an age like
    2h.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        if not text.strip()[:1].isdecimal() or text.strip().isdecimal():
            raise ValueError(f"{text!r} is not a duration: give PnDTnHnMnS such as P1DT2H30M, or an age like 2h")
        return parse_time(text, now_ms=now_ms)
    if not any(found[name] for name in _DURATION_UNIT_MS):
        raise ValueError(f"{text!r} is not a duration: it has no days, hours, minutes or seconds")
    size_ms = sum(int(float(found[name] or 0) * unit_ms) for name, unit_ms in _DURATION_UNIT_MS.items())
    return now_ms - (-size_ms if found["sign"] == "-" else size_ms)


def _read_date(digits: str) -> str | None:
    """A date, or a date and time, of the calendar as it is to be written."""
    try:
        if len(digits) == 8:
            return datetime.strptime(digits, "%Y%m%d").date().isoformat()
        return datetime.strptime(digits, "%Y%m%d%H%M%S").isoformat()
    except ValueError:
        return None


def format_time(milliseconds: int) -> str:
    """`2024-05-01T12:00:00.000Z`; the bare number where the calendar ends; `-` for no timestamp."""
    if milliseconds == -1:
        return "-"
    if not _FIRST_MS <= milliseconds <= _LAST_MS:
        return str(milliseconds)
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def duration_text(milliseconds: int) -> str:
    """`7 days`, `2.5 hours`, `40 ms`: in the largest fitting unit."""
    for name, unit_ms in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000)):
        if abs(milliseconds) >= unit_ms:
            count = milliseconds / unit_ms
            if count == 1:
                return f"1 {name.removesuffix('s')}"
            return f"{count:.0f} {name}" if count.is_integer() else f"{count:.1f} {name}"
    return f"{milliseconds} ms"
