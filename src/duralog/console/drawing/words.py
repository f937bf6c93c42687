"""Numbers, sizes and times as the pages show them, and addresses of pages.

Digits are grouped by a thin space that does not break. What is not known is a dash, never a zero.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from duralog.cli.voice.times import duration_text, format_time
from duralog.config.byte_sizes import size_text
from duralog.config.plurals import plural

UNKNOWN = "–"
THIN_SPACE = "\u202f"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64_MAX = 2**63 - 1
_KIB = 1024
_SECOND_MS = 1_000
_MINUTE_S = 60
_HOUR_S = 3_600
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S


def number_text(value: int | None) -> str:
    """`1 234 567`."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", THIN_SPACE)


def counted(value: int, noun: str) -> str:
    """`1 topic`, `1 200 topics`, `2 batches`."""
    return plural(value, noun).replace(",", THIN_SPACE)


def bytes_text(size_bytes: int | None) -> str:
    """`1.5 GiB`, as the commands print it."""
    return UNKNOWN if size_bytes is None else size_text(size_bytes)


def byte_rate_text(per_second: float | None) -> str:
    return UNKNOWN if per_second is None else f"{size_text(round(per_second))}/s"


def record_rate_text(per_second: float | None) -> str:
    """`0.4/s`, `12/s`, `12 000/s`."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}/s" if 0 < per_second < 10 else f"{number_text(round(per_second))}/s"


def share_text(share: float | None) -> str:
    """`25 %`; `<1 %` for what is little, but there."""
    if share is None:
        return UNKNOWN
    return "<1 %" if 0 < share < 0.01 else f"{share:.0%}".replace("%", " %")


def value_in_words(config: str, value: str) -> str:
    """`7 days` for a config of milliseconds, `1 GiB` for one of bytes; empty for any other."""
    if not value.isdecimal() or int(value) > _INT64_MAX:
        return ""
    if config.endswith(".ms"):
        return duration_text(int(value)) if int(value) >= _SECOND_MS else ""
    return size_text(int(value)) if config.endswith(".bytes") and int(value) >= _KIB else ""


def age_text(timestamp_ms: int | None, *, now_ms: int | None = None) -> str:
    """`just now`, `40 s ago`, `3 min ago`, `5 h ago`, `12 days ago`; `in 3 min` for a clock that runs ahead."""
    if timestamp_ms is None or timestamp_ms < 0:
        return UNKNOWN
    seconds = ((time.time_ns() // 1_000_000 if now_ms is None else now_ms) - timestamp_ms) // 1_000
    if -2 <= seconds < 2:
        return "just now"
    return f"{_span(seconds)} ago" if seconds > 0 else f"in {_span(-seconds)}"


def _span(seconds: int) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds} s"
    if seconds < _HOUR_S:
        return f"{seconds // _MINUTE_S} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds // _HOUR_S} h"
    if seconds < 2 * _YEAR_S:
        return f"{seconds // _DAY_S} days"
    return f"{number_text(seconds // _YEAR_S)} years"


def local_time_text(timestamp_ms: int | None) -> str:
    """`2026-01-31 23:59:59`, in the zone of the machine that the console runs on."""
    if timestamp_ms is None or timestamp_ms == -1:
        return UNKNOWN
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return format_time(timestamp_ms)


def exact_time_text(timestamp_ms: int | None) -> str:
    """For a tooltip: ISO 8601 with the zone, the same in UTC, and the number that is in the file."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "no timestamp"
    try:
        local = (_EPOCH + timedelta(milliseconds=timestamp_ms)).astimezone().isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms since 1970"
    return f"{local} · {format_time(timestamp_ms)} · {timestamp_ms} ms"


def topic_path(topic: str) -> str:
    return f"/topic/{quote(topic, safe='')}"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/{partition}"


def records_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/records"


def compaction_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/compaction"


def group_path(group: str) -> str:
    return f"/groups/{quote(group, safe='')}"
