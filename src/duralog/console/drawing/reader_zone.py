"""Times in the reader's time zone: formatted and parsed.

The zone is the browser's. Every shown format can be entered: `2026-01-31 23:59:59.123`, and in the hour that a clock
shows twice, `2026-10-25 02:30:00 +01:00`. Links have no zone: a moment in a link is in UTC, and an age stays relative.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from duralog.config.times import AmbiguousTime, format_time, parse_time
from duralog.console.drawing.words import UNKNOWN

TIME_FORMS = "2026-01-31 12:00, an age like -90s, -30m, -1h or -7d, or milliseconds since 1970"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_AGE = re.compile(r"-?\s*(\d{1,19}(?:ms|s|m|h|d|w))")
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
_LONGEST_NAME = 64
_LONGEST_TIME = 100
_OFFSET_AFTER_SPACE = re.compile(r"\s+(?=(?:[+-]\d\d:?\d\d|Z)$)")
_INT64_MAX = 2**63 - 1


class NotATime(ValueError):
    """The message says which formats are valid."""


@dataclass(frozen=True, slots=True)
class ReaderZone:
    name: str = "UTC"
    """As in the time zone database: `Europe/Berlin`."""
    zone: tzinfo = UTC

    def text(self, timestamp_ms: int | None, *, timespec: str = "seconds") -> str:
        """`2026-01-31 23:59:59`; with an offset in the hour that the clock shows twice. `parse` reads it."""
        if timestamp_ms is None or timestamp_ms == -1:
            return UNKNOWN
        moment = self.moment(timestamp_ms)
        if moment is None:
            return format_time(timestamp_ms)
        shown = moment.replace(tzinfo=None).isoformat(" ", timespec)
        is_shown_twice = moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()
        return f"{shown} {_offset_text(moment)}" if is_shown_twice else shown

    def exact(self, timestamp_ms: int | None) -> str:
        """For a tooltip: with milliseconds and offset, the same in UTC, and the number that is in the file."""
        if timestamp_ms is None or timestamp_ms == -1:
            return "no timestamp"
        moment = self.moment(timestamp_ms)
        if moment is None:
            return f"{timestamp_ms} ms since 1970"
        shown = moment.replace(tzinfo=None).isoformat(" ", "milliseconds")
        return f"{shown} {_offset_text(moment)} · {format_time(timestamp_ms)} · {timestamp_ms} ms"

    def about(self, now_ms: int) -> str:
        """`Europe/Berlin, UTC+01:00 now`."""
        moment = self.moment(now_ms)
        return self.name if moment is None or self.name == "UTC" else f"{self.name}, UTC{_offset_text(moment)} now"

    def parse(self, text: str, *, now_ms: int) -> int:
        """Parse the input of a reader, or the output of `text`, to milliseconds since 1970. Raises `NotATime`."""
        typed = text.strip()[:_LONGEST_TIME]
        age = _AGE.fullmatch(typed)
        try:
            if age is None and (moment := _calendar(typed)) is not None and moment.tzinfo is None:
                milliseconds = (moment.replace(tzinfo=self.zone) - _EPOCH) // _MILLISECOND
            else:
                milliseconds = parse_time(age[1] if age else _OFFSET_AFTER_SPACE.sub("", typed), now_ms=now_ms)
        except AmbiguousTime as error:
            raise NotATime(str(error)) from None
        except (ValueError, OverflowError):
            milliseconds = _INT64_MAX + 1
        if abs(milliseconds) > _INT64_MAX:
            shown = typed if len(typed) <= 40 else f"{typed[:40]}…"
            raise NotATime(f"“{shown}” is not a time: give {TIME_FORMS}")
        return milliseconds

    def link(self, text: str) -> str:
        """The input as text for a link: the same moment, or the same age, for readers in all zones."""
        age = _AGE.fullmatch(text.strip())
        return f"-{age[1]}" if age else format_time(self.parse(text, now_ms=0))

    def typed(self, link: str) -> str:
        """The time of a link, as this reader would enter it."""
        return link if _AGE.fullmatch(link) else self.text(IN_UTC.parse(link, now_ms=0), timespec="milliseconds")

    def moment(self, timestamp_ms: int) -> datetime | None:
        """None beyond the calendar."""
        try:
            return (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone(self.zone)
        except (OverflowError, ValueError, OSError):
            return None


IN_UTC = ReaderZone()


@lru_cache(maxsize=256)
def zone_of(name: str | None) -> ReaderZone:
    """The zone of this name, which comes from a browser; UTC if there is none."""
    if name is None or len(name) > _LONGEST_NAME or not _ZONE_NAME.fullmatch(name):
        return IN_UTC
    try:
        return ReaderZone(name, ZoneInfo(name))
    except (ValueError, OSError, KeyError):
        return IN_UTC


def _calendar(text: str) -> datetime | None:
    """Not digits alone: `20240501` could be milliseconds."""
    if text.isdecimal():
        return None
    try:
        return datetime.fromisoformat(_OFFSET_AFTER_SPACE.sub("", text))
    except ValueError:
        return None


def _offset_text(moment: datetime) -> str:
    """`+01:00`; seconds only where a zone of long ago has them."""
    return moment.isoformat(timespec="seconds")[19:]
