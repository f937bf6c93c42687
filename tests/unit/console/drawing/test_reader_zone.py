"""Times in the reader's zone: what is shown can be typed, and links mean the same in every zone."""

from __future__ import annotations

from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.console.drawing.reader_zone import IN_UTC, NotATime, zone_of

BERLIN = zone_of("Europe/Berlin")
HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_798_758_000_000
"""2026-12-31T23:00Z, which is midnight in Berlin."""
TWICE_MS = 1_792_884_600_000
"""2026-10-24T23:30Z and an hour later: 01:30 and 02:30, the latter of which Berlin's clocks show twice."""
LAST_MS = 253_402_200_000_000


def test_times_are_shown_in_the_readers_zone() -> None:
    assert BERLIN.text(NEW_YEAR_MS) == "2027-01-01 00:00:00"
    assert BERLIN.text(NEW_YEAR_MS + 7, timespec="milliseconds") == "2027-01-01 00:00:00.007"
    assert zone_of("Asia/Kathmandu").text(NEW_YEAR_MS) == "2027-01-01 04:45:00"
    assert BERLIN.exact(NEW_YEAR_MS).startswith("2027-01-01 00:00:00.000 +01:00 · 2026-12-31T23:00:00.000Z · 17987")
    assert BERLIN.about(NEW_YEAR_MS) == "Europe/Berlin, UTC+01:00 now"


def test_the_hour_that_comes_twice_is_shown_with_its_offset() -> None:
    shown = [BERLIN.text(TWICE_MS + HOUR_MS * hour) for hour in range(-1, 3)]
    assert shown == [
        "2026-10-25 00:30:00",
        "2026-10-25 01:30:00",
        "2026-10-25 02:30:00 +02:00",
        "2026-10-25 02:30:00 +01:00",
    ]


@given(
    st.sampled_from(sorted(available_timezones())),
    st.integers(0, LAST_MS) | st.integers(TWICE_MS - 9 * HOUR_MS, TWICE_MS + 9 * HOUR_MS),
)
def test_what_is_shown_can_be_typed(name: str, timestamp_ms: int) -> None:
    zone = zone_of(name)
    shown = zone.text(timestamp_ms, timespec="milliseconds")
    assert zone.parse(shown, now_ms=0) == timestamp_ms
    link = zone.link(shown)
    assert IN_UTC.parse(link, now_ms=0) == timestamp_ms
    assert zone.typed(link) == shown


def test_what_can_be_typed() -> None:
    for typed in ("2027-01-01", "2027-01-01 00:00", "2027-01-01T00:00:00", "2026-12-31T23:00Z", str(NEW_YEAR_MS)):
        assert BERLIN.parse(typed, now_ms=0) == NEW_YEAR_MS
    assert BERLIN.parse("2026-12-31 18:00 -05:00", now_ms=0) == NEW_YEAR_MS
    for age in ("-1h", "1h", "- 60m"):
        assert BERLIN.parse(age, now_ms=NEW_YEAR_MS) == NEW_YEAR_MS - HOUR_MS
    assert BERLIN.link("1h") == "-1h"
    assert BERLIN.typed("-1h") == "-1h"


@pytest.mark.parametrize(
    "typed", ["", "noon", "2027-13-01", "-1y", "20270101", "9" * 30, "x" * 5_000, "-" + "9" * 19 + "w"]
)
def test_what_is_not_a_time(typed: str) -> None:
    with pytest.raises(NotATime) as raised:
        BERLIN.parse(typed, now_ms=0)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    "name", [None, "", "../../etc/passwd", "/etc/localtime", "Mars/Base", "a" * 10_000, "Europe", "\0"]
)
def test_a_name_that_is_not_a_zone_is_utc(name: str | None) -> None:
    assert zone_of(name) is IN_UTC
