"""Addresses of the records of a topic, and names of downloads."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("nicegui")

from duralog.console.drawing.record_place import NotAPlace
from duralog.console.drawing.topic_place import TopicPlace, offset_range, parse_topic_offset, topic_place_of
from duralog.console.pages.downloads import file_name
from duralog.filters.conditions import FilterError
from duralog.filters.parsing import parse

NOW_MS = 1_800_000_000_000
OFFSETS = st.integers(0, 2**63 - 1)
CURSORS = st.dictionaries(st.integers(0, 9_999), OFFSETS, min_size=1, max_size=5)
OPENED = st.none() | st.tuples(st.integers(0, 9_999), OFFSETS)


def read(place: TopicPlace) -> TopicPlace:
    return topic_place_of(dict(parse_qsl(place.query().removeprefix("?"))))


@given(CURSORS, st.booleans(), st.booleans(), OPENED)
def test_the_address_of_a_page_is_read_as_it_was_written(
    at: dict[int, int], is_backwards: bool, is_oldest_first: bool, opened: tuple[int, int] | None
) -> None:
    place = TopicPlace(
        at=at, is_backwards=is_backwards, is_oldest_first=is_oldest_first, opened=opened, partitions="0-3"
    )
    assert read(place) == place


@given(st.text(min_size=1, max_size=50).map(str.strip), OPENED)
def test_the_address_of_a_search_is_read_as_it_was_written(where: str, opened: tuple[int, int] | None) -> None:
    if any("\ud800" <= char <= "\udfff" for char in where):
        return
    place = TopicPlace(where=where, since="-1h", until="2026-01-31T12:00:00.000Z", offsets="5-", opened=opened)
    assert read(place) == place


def test_what_is_wanted() -> None:
    place = TopicPlace(where="$.a = 1", since="-1h", offsets="100-200", partitions="0,2-3", is_oldest_first=True)
    wanted = place.wanted("t", range(5), now_ms=NOW_MS)
    assert (wanted.partitions, wanted.where, wanted.newest_first) == ((0, 2, 3), parse("$.a = 1"), False)
    assert (wanted.from_ms, wanted.before_ms) == (NOW_MS - 3_600_000, None)
    assert (wanted.from_offset, wanted.before_offset) == (100, 201)
    with pytest.raises(FilterError):
        TopicPlace(where="$.a >").wanted("t", range(5), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("", None, None), ("7", 7, 7), ("7-9", 7, 9), ("7 -", 7, None), ("- 9", None, 9), ("1\u202f000-2000", 1000, 2000)],
)
def test_ranges_of_offsets(text: str, low: int | None, high: int | None) -> None:
    assert offset_range(text) == (low, high)


@pytest.mark.parametrize("text", ["-", "x", "9-7", "99999999999999999999", "1-2-3", "9" * 19])
def test_what_is_not_a_range_of_offsets(text: str) -> None:
    with pytest.raises(NotAPlace):
        offset_range(text)


@pytest.mark.parametrize("partitions", ["9", "0-9", "x", "1,", "-1", "3-1", "0,,1", "9" * 30])
def test_partitions_that_are_not_there(partitions: str) -> None:
    with pytest.raises(NotAPlace):
        TopicPlace(partitions=partitions).chosen(range(5))


@pytest.mark.parametrize(
    "query", [{"at": "0:1,x"}, {"from": "noon"}, {"to": "1y"}, {"time": "20260101"}, {"offsets": "x"}]
)
def test_addresses_that_are_none(query: dict[str, str]) -> None:
    with pytest.raises(NotAPlace):
        topic_place_of(query)


def test_records_that_are_opened() -> None:
    assert parse_topic_offset("1:77") == (1, 77)
    for other in (None, 7, "77", "1:-7", "1:x", "x:1", f"1:{2**63}", "1:77 "):
        assert parse_topic_offset(other) is None


@pytest.mark.parametrize(
    ("topic", "name"),
    [("orders", "orders"), ("..", "topic"), ('a"/\r\n\u202eb', "a_b"), ("x" * 249, "x" * 100), ("-rf", "rf")],
)
def test_names_of_files_are_safe(topic: str, name: str) -> None:
    assert file_name(topic, "csv") == f"{name}-records.csv"
