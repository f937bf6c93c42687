"""Numbers, sizes and times as the pages show them, and addresses of pages.

Digits are grouped by commas, as the commands print them. What is not known is a dash, never a zero.
"""

from __future__ import annotations

import re
import time
from urllib.parse import quote, urlencode

from duralog.config.byte_sizes import size_text
from duralog.config.plurals import plural
from duralog.config.times import duration_text

UNKNOWN = "–"
_OFFSET = re.compile(r"(?<=\boffset )\d+")
_INT64_MAX = 2**63 - 1
_KIB = 1024
_SECOND_MS = 1_000
_MINUTE_S = 60
_HOUR_S = 3_600
_DAY_S = 86_400
_YEAR_S = 365 * _DAY_S


def number_text(value: int | None) -> str:
    """`1,234,567`."""
    return UNKNOWN if value is None else f"{value:,}"


def grouped(sentence: str) -> str:
    """Offsets in a sentence of the engine, written as the pages write numbers."""
    return _OFFSET.sub(lambda found: f"{int(found[0]):,}", sentence)


def counted(value: int, noun: str) -> str:
    """`1 topic`, `1,200 topics`, `2 batches`."""
    return plural(value, noun)


def bytes_text(size_bytes: int | None) -> str:
    """`1.5 GiB`, as the commands print it."""
    return UNKNOWN if size_bytes is None else size_text(size_bytes)


def byte_rate_text(per_second: float | None) -> str:
    return UNKNOWN if per_second is None else f"{size_text(round(per_second))}/s"


def record_rate_text(per_second: float | None) -> str:
    """`0.4/s`, `12/s`, `12,000/s`."""
    if per_second is None:
        return UNKNOWN
    return f"{per_second:.1f}/s" if 0 < per_second < 10 else f"{number_text(round(per_second))}/s"


def share_text(share: float | None) -> str:
    """`25 %`; `<1 %` for a small share above 0."""
    if share is None:
        return UNKNOWN
    return "<1 %" if 0 < share < 0.01 else f"{share:.0%}".replace("%", " %")


def value_in_words(config: str, value: str) -> str:
    """`7 days` for a config of milliseconds, `1 GiB` for one of bytes, `no limit`; empty for any other."""
    if not value.isdecimal() or int(value) > _INT64_MAX:
        return ""
    if int(value) == _INT64_MAX:
        return "no limit"
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


def topic_path(topic: str) -> str:
    return f"/topic/{quote(topic, safe='')}"


def topic_records_path(topic: str) -> str:
    return f"{topic_path(topic)}/records"


def download_path(topic: str) -> str:
    return f"/download/{quote(topic, safe='')}"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/{partition}"


def records_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/records"


def compaction_path(topic: str, partition: int) -> str:
    return f"{partition_path(topic, partition)}/compaction"


def group_path(group: str) -> str:
    return f"/groups/{quote(group, safe='')}"


SUBJECTS_PATH = "/subjects"


def subject_path(subject: str, version: int | None = None, against: int | None = None) -> str:
    """A version of a subject, compared with another one."""
    query = {"version": version, "against": against}
    given = urlencode({name: number for name, number in query.items() if number is not None})
    return f"{SUBJECTS_PATH}/{quote(subject, safe='')}{'?' if given else ''}{given}"
