"""From topics, offsets and timestamps to ranges of offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duralog.errors import InvalidConfig, OffsetOutOfRange, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.offset_ranges import (
    FROM_EARLIEST,
    TO_LATEST,
    OffsetRange,
    Offsets,
    Timestamps,
    resolve,
    select_partitions,
)
from duralog.scanning.slices import DataLoss
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.time_lookup import EARLIEST, LATEST
from duralog.storage.store import Store
from tests.support.spark.planned_log import NOW_MS, fill, open_for_writing, record

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Partition 0 goes from 100 to 1000, with a transaction that is open since 995; partition 1 is empty."""
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 2)
        store.create_topic("payments", 1)
        store.create_topic("__consumer_offsets", 1)
        log = store.partition("orders", 0)
        fill(log, 0, 995)
        log.append(
            [record(number) for number in range(995, 1000)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.delete_records(100)
        yield store


def test_partitions_by_name_by_pattern_or_one_by_one(store: Store) -> None:
    assert select_partitions(store, topics=["payments", "orders"]) == [ORDERS, OTHER, TopicPartition("payments", 0)]
    assert select_partitions(store, pattern="p.*") == [TopicPartition("payments", 0)]
    assert select_partitions(store, pattern="order") == []
    assert select_partitions(store, pattern=".*") == [ORDERS, OTHER, TopicPartition("payments", 0)]
    assert select_partitions(store, topics=["__consumer_offsets"]) == [TopicPartition("__consumer_offsets", 0)]
    assert select_partitions(store, assigned={"orders": [1]}) == [OTHER]


def test_what_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(UnknownTopic, match=r"there is no topic order in .*; there are __consumer_offsets, orders, pay"):
        select_partitions(store, topics=["order"])
    with pytest.raises(UnknownTopic, match="there is no partition 2 of orders in "):
        select_partitions(store, assigned={"orders": [0, 2]})
    with pytest.raises(InvalidConfig, match=r"'\(' is not a regular expression"):
        select_partitions(store, pattern="(")


def test_all_there_is(store: Store) -> None:
    assert resolve(store, [ORDERS, OTHER]) == {ORDERS: OffsetRange(100, 1000), OTHER: OffsetRange(0, 0)}
    assert resolve(store, [ORDERS], isolation=COMMITTED) == {ORDERS: OffsetRange(100, 995)}
    assert resolve(store, [ORDERS], TO_LATEST, FROM_EARLIEST) == {ORDERS: OffsetRange(1000, 1000)}


def test_offsets_of_partitions_win_over_the_one_for_all(store: Store) -> None:
    start = Offsets(everywhere=LATEST, of={ORDERS: 200})
    end = Offsets(everywhere=LATEST, of={ORDERS: 300, OTHER: EARLIEST})
    assert resolve(store, [ORDERS, OTHER], start, end) == {ORDERS: OffsetRange(200, 300), OTHER: OffsetRange(0, 0)}
    assert resolve(store, [ORDERS], Offsets(of={ORDERS: EARLIEST}), Offsets(of={ORDERS: LATEST})) == {
        ORDERS: OffsetRange(100, 1000)
    }


def test_a_partition_that_nothing_is_said_of_is_named(store: Store) -> None:
    with pytest.raises(InvalidConfig, match="the start is not given for orders-1"):
        resolve(store, [ORDERS, OTHER], Offsets(of={ORDERS: 200}))
    with pytest.raises(InvalidConfig, match="the end is not given for orders-0, orders-1"):
        resolve(store, [ORDERS, OTHER], FROM_EARLIEST, Timestamps())


@pytest.mark.parametrize(
    ("start", "end", "isolation", "asked", "clamped"),
    [
        (99, LATEST, Isolation.READ_UNCOMMITTED, 99, OffsetRange(100, 1000)),
        (1001, LATEST, Isolation.READ_UNCOMMITTED, 1001, OffsetRange(1000, 1000)),
        (EARLIEST, 1001, Isolation.READ_UNCOMMITTED, 1001, OffsetRange(100, 1000)),
        (EARLIEST, 996, COMMITTED, 996, OffsetRange(100, 995)),
    ],
)
def test_an_offset_that_is_not_there_is_data_loss(
    store: Store, start: int, end: int, isolation: Isolation, asked: int, clamped: OffsetRange
) -> None:
    bounds = Offsets(of={ORDERS: start}), Offsets(of={ORDERS: end})
    limit = 995 if isolation is COMMITTED else 1000
    sentence = rf"orders-0: offset {asked} was asked for, but the log goes from 100 to {limit}"
    with pytest.raises(OffsetOutOfRange, match=sentence):
        resolve(store, [ORDERS], *bounds, isolation=isolation)
    losses: list[DataLoss] = []
    assert resolve(store, [ORDERS], *bounds, isolation=isolation, on_data_loss=losses.append) == {ORDERS: clamped}
    assert [(loss.asked_start, loss.available_start, loss.available_end) for loss in losses] == [(asked, 100, limit)]


def test_offsets_by_time(store: Store) -> None:
    def between(start: Timestamps, end: Timestamps) -> OffsetRange:
        return resolve(store, [ORDERS], start, end)[ORDERS]

    assert between(Timestamps(everywhere_ms=NOW_MS + 250), Timestamps(everywhere_ms=NOW_MS + 260)) == (250, 260)
    assert between(Timestamps(everywhere_ms=0), Timestamps(everywhere_ms=NOW_MS + 10**9)) == (100, 1000)
    assert between(Timestamps(everywhere_ms=0, of={ORDERS: NOW_MS + 400}), Timestamps(everywhere_ms=0)) == (400, 400)


def test_a_start_after_all_records_is_an_error_or_the_end(store: Store) -> None:
    late = NOW_MS + 10**9
    with pytest.raises(OffsetOutOfRange, match=f"orders-0: no record has a timestamp of {late} or later"):
        resolve(store, [ORDERS], Timestamps(everywhere_ms=late))
    start = Timestamps(everywhere_ms=late, if_none="latest")
    assert resolve(store, [ORDERS, OTHER], start) == {ORDERS: OffsetRange(1000, 1000), OTHER: OffsetRange(0, 0)}
    assert resolve(store, [ORDERS], start, isolation=COMMITTED) == {ORDERS: OffsetRange(995, 995)}


def test_a_negative_timestamp_is_refused(store: Store) -> None:
    with pytest.raises(InvalidConfig, match="orders-0: -5 is not a timestamp"):
        resolve(store, [ORDERS], Timestamps(everywhere_ms=-5))
