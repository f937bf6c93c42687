"""Which segments go: Kafka's three rules, what must stay in any case, and policies of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from duralog.config import TopicConfig
from duralog.storage.log.retention import (
    AgingLog,
    BelowLogStart,
    BeyondAge,
    BeyondSize,
    Removable,
    RetentionReport,
    plan,
)

NOW_MS = 1_800_000_000_000


@dataclass(frozen=True)
class Aging:
    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


def log_of(*sizes_and_ages: tuple[int, int], **changes: Any) -> AgingLog:
    """A log whose segments hold ten offsets each and have these sizes and ages; the last one is active."""
    segments = [
        Aging(index * 10, size_bytes, NOW_MS - age_ms) for index, (size_bytes, age_ms) in enumerate(sizes_and_ages)
    ]
    end_offset = len(segments) * 10 - (10 if segments[-1].size_bytes == 0 else 0)
    config = TopicConfig().with_overrides({"retention.ms": -1, **changes.pop("config", {})})
    known: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "segments": segments,
        "start_offset": 0,
        "end_offset": end_offset,
        "high_watermark": end_offset,
        "config": config,
        "now_ms": NOW_MS,
    }
    return AgingLog(**{**known, **changes})


def bases(log: AgingLog, *policies: Any) -> list[int]:
    return [removal.base_offset for removal in (plan(log, policies) if policies else plan(log))]


def test_nothing_goes_without_a_limit() -> None:
    assert bases(log_of((100, 10**12), (100, 10**12))) == []


@pytest.mark.parametrize(
    ("start_offset", "expected"), [(0, []), (9, []), (10, [0]), (19, [0]), (20, [0, 10]), (25, [0, 10])]
)
def test_segments_below_the_log_start_go_once_the_next_one_is_reached(start_offset: int, expected: list[int]) -> None:
    log = log_of((100, 0), (100, 0), (100, 0), start_offset=start_offset)
    assert bases(log) == expected


def test_the_active_segment_is_never_below_the_log_start() -> None:
    assert bases(log_of((100, 0), (100, 0), start_offset=20)) == [0]


def test_the_log_start_counts_for_compacted_topics_too() -> None:
    log = log_of((100, 0), (100, 0), start_offset=10, config={"cleanup.policy": "compact"})
    assert bases(log) == [0]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (-1, []),
        (0, [0, 10, 20]),
        (50, [0, 10]),
        (99, [0, 10]),
        (100, [0, 10]),
        (101, [0]),
        (200, [0]),
        (201, []),
        (300, []),
        (1000, []),
    ],
)
def test_a_log_keeps_at_least_its_retention_bytes(limit: int, expected: list[int]) -> None:
    log = log_of((100, 0), (100, 0), (100, 0), config={"retention.bytes": limit})
    assert bases(log) == expected


@pytest.mark.parametrize(("limit_ms", "expected"), [(-1, []), (0, [0, 10]), (49, [0, 10]), (50, [0]), (100, [])])
def test_a_segment_goes_when_its_newest_record_is_older_than_the_limit(limit_ms: int, expected: list[int]) -> None:
    log = log_of((100, 100), (100, 50), (100, 0), config={"retention.ms": limit_ms})
    assert bases(log) == expected


def test_a_record_of_the_future_keeps_its_segment_and_all_that_follow() -> None:
    log = log_of((100, 100), (100, -(10**9)), (100, 100), config={"retention.ms": 10})
    assert bases(log) == [0]


def test_the_active_segment_goes_with_the_others_when_it_is_too_old() -> None:
    log = log_of((100, 100), (100, 90), config={"retention.ms": 10})
    assert bases(log) == [0, 10]


def test_an_empty_active_segment_stays() -> None:
    log = log_of((100, 100), (0, 90), config={"retention.ms": 10})
    assert bases(log) == [0]


def test_nothing_goes_that_reaches_above_the_high_watermark() -> None:
    log = log_of((100, 100), (100, 100), (100, 100), config={"retention.ms": 10}, high_watermark=19)
    assert bases(log) == [0]
    assert bases(log_of((100, 100), (100, 100), config={"retention.ms": 10}, high_watermark=19)) == [0]


@pytest.mark.parametrize("policy", ["compact", ""])
def test_time_and_size_are_for_topics_that_delete(policy: str) -> None:
    config = {"cleanup.policy": policy, "retention.ms": 1, "retention.bytes": 1}
    assert bases(log_of((100, 100), (100, 100), config=config)) == []
    assert bases(log_of((100, 100), (100, 100), config=config | {"cleanup.policy": "compact,delete"})) == [0, 10]


def test_each_policy_sees_what_the_ones_before_it_have_left() -> None:
    """The log start takes the first segment, so only 300 bytes are there when size is asked for."""
    log = log_of((100, 0), (100, 0), (100, 0), (100, 0), start_offset=10, config={"retention.bytes": 250})
    assert bases(log, BelowLogStart(), BeyondSize()) == [0]
    removals = plan(log_of((100, 9), (100, 9), (100, 9), config={"retention.bytes": 200, "retention.ms": 5}))
    assert [(removal.base_offset, removal.policy) for removal in removals] == [
        (0, "BeyondSize"),
        (10, "BeyondAge"),
        (20, "BeyondAge"),
    ]


def test_a_removal_lists_what_is_deleted_and_why() -> None:
    (removal,) = plan(log_of((123, 100), (100, 0), config={"retention.ms": 60}))
    assert (removal.topic, removal.partition, removal.base_offset, removal.end_offset) == ("orders", 3, 0, 10)
    assert removal.size_bytes == 123
    assert removal.policy == "BeyondAge"
    assert removal.reason == "its newest record is 100 ms old, retention.ms is 60"
    assert RetentionReport(removals=[removal, removal]).size_bytes == 246


class EverySecond:
    def removable(self, log: AgingLog) -> Iterator[Removable]:
        for segment in reversed(log.segments):
            if segment.base_offset // 10 % 2 == 0:
                yield Removable(segment, "it is even")


class EvenTheLast:
    def removable(self, log: AgingLog) -> Iterator[Removable]:
        yield from (Removable(segment, "all must go") for segment in log.segments)


def test_a_policy_of_ones_own_names_segments_in_any_order_and_holes_end_the_walk() -> None:
    assert bases(log_of((1, 0), (1, 0), (1, 0)), EverySecond()) == [0]


def test_a_policy_of_ones_own_cannot_take_what_must_stay() -> None:
    assert bases(log_of((1, 0), (0, 0)), EvenTheLast()) == [0]
    assert bases(log_of((1, 0), (1, 0), high_watermark=10), EvenTheLast()) == [0]


def test_policies_are_not_called_when_no_segment_is_left() -> None:
    class MustNotBeAsked:
        def removable(self, log: AgingLog) -> Iterator[Removable]:
            raise AssertionError(log)

    assert bases(log_of((1, 0), (1, 0)), EvenTheLast(), MustNotBeAsked()) == [0, 10]


def test_the_order_of_the_built_in_policies_does_not_matter_for_what_goes_in_the_end() -> None:
    log = log_of((100, 50), (100, 40), (100, 5), (100, 0), config={"retention.ms": 30, "retention.bytes": 350})
    assert bases(log) == bases(log, BeyondAge(), BeyondSize(), BelowLogStart()) == [0, 10]
