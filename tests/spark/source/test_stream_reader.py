"""The driver's side of a streaming read, asked as Spark asks it, without Spark: offsets, limits, loss."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

import duralog
from duralog import OffsetOutOfRange, Record, Store, UnknownTopic
from duralog.errors import DuralogError
from duralog.format.topic_partition import TopicPartition
from duralog.spark.source import stream
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import schema_of
from duralog.spark.source.stream import DuralogStreamReader
from duralog.spark.source.stream_offsets import from_json, shared_out, to_json

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the reader takes for the module `time`: it never pauses."""
    clock = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr(stream, "time", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    config = {"log.index.interval.bytes": 256, "log.segment.delete.delay.ms": 0}
    with duralog.open(tmp_path / "logs", config=config) as opened:
        opened.create_topic("a", partitions=2)
        yield opened


def fill(store: Store, topic: str, partition: int, count: int, *, batch: int = 1, size: int = 10) -> None:
    """In several segments, if it is more than a few batches."""
    log = store.partition(topic, partition)
    for first in range(0, count, batch):
        log.append([Record(key=b"k", value=b"v" * size) for _ in range(batch)])
        if first % (20 * batch) == 19 * batch:
            log.roll()


def reader(store: Store, **options: str) -> DuralogStreamReader:
    parsed = ReadOptions.of({"path": store.path, "startingOffsets": "earliest", **options}, streaming=True)
    return DuralogStreamReader(schema_of(parsed), parsed)


def rows(of: DuralogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of what tasks read that were sent somewhere else."""
    found = []
    elsewhere: DuralogStreamReader = pickle.loads(pickle.dumps(of))
    for task in pickle.loads(pickle.dumps(of.partitions(start, end))):
        for batch in elsewhere.read(task):
            columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
            found += list(zip(*columns, strict=True))
    return sorted(found)


def expected(*ranges: tuple[str, int, int, int]) -> list[tuple[str, int, int]]:
    return sorted((topic, partition, offset) for topic, partition, a, b in ranges for offset in range(a, b))


# Offsets


def test_offsets_are_the_connectors_json_in_one_order() -> None:
    positions = {TopicPartition("b", 10): 5, TopicPartition("b", 9): 4, TopicPartition("a", 0): 1}
    assert json.dumps(to_json(positions)) == '{"a": {"0": 1}, "b": {"9": 4, "10": 5}}'
    assert from_json(to_json(positions)) == positions


ODD = ({"x": 1}, {"-1": 1}, {"01": 1}, {"0": "1"}, {"0": -1}, {"0": True}, {"0": 2**63}, {"9999999999": 1}, 1)


@pytest.mark.parametrize("value", [[], None, *({"a": odd} for odd in ODD)])
def test_another_source_s_offsets_are_refused(value: Any) -> None:
    with pytest.raises(DuralogError, match="the checkpoint has the offset"):
        from_json(value)


def test_a_limit_is_shared_by_what_there_is() -> None:
    start = {TopicPartition("a", n): 100 for n in range(4)}
    end = {
        TopicPartition("a", 0): 1000,
        TopicPartition("a", 1): 190,
        TopicPartition("a", 2): 100,
        TopicPartition("a", 3): 101,
    }
    assert list(shared_out(start, end, 100).values()) == [190, 109, 100, 101]
    assert shared_out(start, end, 10_000) == end


# The course of a query


def test_a_query_from_the_start_and_on(store: Store) -> None:
    fill(store, "a", 0, 5)
    query = reader(store)
    start = query.initialOffset()
    assert start == {"a": {"0": 0, "1": 0}}
    first = query.latestOffset(start, ALL)
    assert first == {"a": {"0": 5, "1": 0}}
    assert rows(query, start, first) == expected(("a", 0, 0, 5))
    assert query.latestOffset(first, ALL) == first
    fill(store, "a", 1, 3)
    second = query.latestOffset(first, ALL)
    assert rows(query, first, second) == expected(("a", 1, 0, 3))
    assert rows(query, second, second) == []
    assert query.reportLatestOffset() == second
    assert rows(query, start, second) == expected(("a", 0, 0, 5), ("a", 1, 0, 3))


def test_a_query_from_now_on(store: Store) -> None:
    fill(store, "a", 0, 5)
    assert reader(store, startingOffsets="latest").initialOffset() == {"a": {"0": 5, "1": 0}}
    assert reader(store, startingOffsets='{"a":{"0":3,"1":-1}}').initialOffset() == {"a": {"0": 3, "1": 0}}


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"a":{"0":5,"1":-1}}'},
        {"startingTimestamp": "9999999999999", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_query_from_now_on_that_dies_in_its_first_batch(store: Store, options: dict[str, str]) -> None:
    """As Spark asks: it writes down the end of the first batch, and asks for the start of it again and again."""
    fill(store, "a", 0, 5)
    killed = reader(store, **options)
    start = killed.initialOffset()
    for partition in range(2):
        fill(store, "a", partition, 2)
    written_down = killed.latestOffset(start, ALL)
    assert killed.initialOffset() == start
    fill(store, "a", 1, 2)

    query = reader(store, **options)
    found = rows(query, query.initialOffset(), written_down)
    following = query.latestOffset(written_down, ALL)
    found += rows(query, written_down, following)
    assert sorted(found) == expected(("a", 0, 5, 7), ("a", 1, 0, 4))
    assert killed.latestOffset(start, ALL) == following


def test_partitions_and_topics_that_appear_are_read_from_their_start(store: Store) -> None:
    query = reader(store, subscribePattern="[ab]")
    start = query.initialOffset()
    store.add_partitions("a", 3)
    store.create_topic("b", partitions=1)
    store.create_topic("c", partitions=1)
    for topic, partition in (("a", 2), ("b", 0), ("c", 0)):
        fill(store, topic, partition, 4)
    end = query.latestOffset(start, ALL)
    assert end == {"a": {"0": 0, "1": 0, "2": 4}, "b": {"0": 4}}
    assert rows(query, start, end) == expected(("a", 2, 0, 4), ("b", 0, 0, 4))


def test_only_what_was_subscribed_to(store: Store) -> None:
    store.create_topic("b", partitions=2)
    assert reader(store, subscribe="b").initialOffset() == {"b": {"0": 0, "1": 0}}
    assert reader(store, assign='{"b":[1],"a":[0]}').initialOffset() == {"a": {"0": 0}, "b": {"1": 0}}


def test_available_now_ends_where_the_log_ended_when_it_began(store: Store) -> None:
    fill(store, "a", 0, 10)
    query = reader(store, maxOffsetsPerTrigger="4")
    query.prepareForTriggerAvailableNow()
    fill(store, "a", 0, 10)
    store.add_partitions("a", 3)
    fill(store, "a", 2, 1)
    offset = query.initialOffset()
    seen = []
    while True:
        following = query.latestOffset(offset, query.getDefaultReadLimit())
        if following == offset:
            break
        seen.append(following["a"]["0"])
        offset = following
    assert seen == [4, 8, 10]


def test_a_committed_reader_stops_at_an_open_transaction(store: Store) -> None:
    log = store.partition("a", 0)
    fill(store, "a", 0, 2)
    log.append([Record(key=b"t", value=b"1")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    fill(store, "a", 0, 2)
    committed = reader(store, **{"kafka.isolation.level": "read_committed"})
    start = committed.initialOffset()
    assert committed.latestOffset(start, ALL)["a"]["0"] == 2
    assert reader(store).latestOffset(start, ALL)["a"]["0"] == 5
    log.end_transaction(7, 0, commit=False)
    end = committed.latestOffset(start, ALL)
    assert end["a"]["0"] == 6
    assert rows(committed, start, end) == [("a", 0, offset) for offset in (0, 1, 3, 4)]


# Limits


def test_spark_gets_the_limit() -> None:
    def limit(**options: str) -> object:
        return DuralogStreamReader(
            schema_of(parsed := ReadOptions.of({"path": "x", **options}, streaming=True)), parsed
        ).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxOffsetsPerTrigger="5", maxBytesPerTrigger="7") == ReadMaxRows(5)
    assert limit(maxBytesPerTrigger="7") == ReadMaxBytes(7)
    assert limit(minOffsetsPerTrigger="3") == ReadMinRows(3)


def test_all_available_is_all_whatever_the_options_say(store: Store) -> None:
    fill(store, "a", 0, 10)
    query = reader(store, maxOffsetsPerTrigger="4", maxBytesPerTrigger="1", minOffsetsPerTrigger="3")
    assert query.latestOffset(query.initialOffset(), ALL) == {"a": {"0": 10, "1": 0}}


@pytest.mark.parametrize("batch", [1, 5])
def test_bytes_limit_a_trigger(store: Store, batch: int) -> None:
    fill(store, "a", 0, 200, batch=batch, size=50)
    fill(store, "a", 1, 40, batch=batch, size=50)
    total = sum(info.size_bytes for partition in range(2) for info in store.partition("a", partition).segments)
    query = reader(store, maxBytesPerTrigger=str(total // 6))
    offset = query.initialOffset()
    triggers, found = 0, []
    while (following := query.latestOffset(offset, query.getDefaultReadLimit())) != offset:
        found += rows(query, offset, following)
        offset = following
        triggers += 1
    assert sorted(found) == expected(("a", 0, 0, 200), ("a", 1, 0, 40))
    assert 4 <= triggers <= 7


def test_a_limit_below_a_batch_still_gets_on(store: Store) -> None:
    fill(store, "a", 0, 20, size=1000)
    query = reader(store, maxBytesPerTrigger="1")
    offset = query.initialOffset()
    ends = []
    while (following := query.latestOffset(offset, query.getDefaultReadLimit())) != offset:
        ends.append(following["a"]["0"])
        offset = following
    assert ends[-1] == 20
    assert len(ends) >= 5


def test_bytes_limit_a_log_with_gaps(store: Store) -> None:
    """Offsets that compaction took away lead to the next segment, not back."""
    store.create_topic("c", partitions=1, config={"cleanup.policy": "compact"})
    log = store.partition("c", 0)
    fill(store, "c", 0, 50, size=200)
    log.roll()
    store.compact("c", 0)
    left = [record.offset for record in log.read(0)]
    assert len(left) < 5
    query = reader(store, subscribe="c", maxBytesPerTrigger="1")
    offset, found, triggers = query.initialOffset(), [], 0
    while (following := query.latestOffset(offset, query.getDefaultReadLimit())) != offset:
        assert following["c"]["0"] > offset["c"]["0"]
        found += [row[2] for row in rows(query, offset, following)]
        offset, triggers = following, triggers + 1
    assert found == left
    assert offset["c"]["0"] == log.end_offset


def test_few_records_wait_for_more_but_not_for_ever(store: Store, clock: SimpleNamespace) -> None:
    now = 0.0
    clock.monotonic = lambda: now
    query = reader(store, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    limit = query.getDefaultReadLimit()
    fill(store, "a", 0, 3)
    first = query.latestOffset(query.initialOffset(), limit)
    assert first["a"]["0"] == 3, "a query begins at once"
    fill(store, "a", 0, 3)
    now = 59.0
    assert query.latestOffset(first, limit) == first
    now = 61.0
    second = query.latestOffset(first, limit)
    assert second["a"]["0"] == 6
    fill(store, "a", 0, 10)
    assert query.latestOffset(second, limit)["a"]["0"] == 16


# Loss


def lose_the_beginning(store: Store) -> int:
    log = store.partition("a", 0)
    log.roll()
    fill(store, "a", 0, 1)
    log.delete_records(before_offset=log.end_offset - 1)
    store.apply_retention()
    return log.start_offset


def test_records_that_went_before_they_were_read(store: Store) -> None:
    fill(store, "a", 0, 10)
    query = reader(store)
    start = query.initialOffset()
    end = query.latestOffset(start, ALL)
    first = lose_the_beginning(store)
    end["a"]["0"] = first + 1
    with pytest.raises(OffsetOutOfRange, match=f"a-0: offsets 0 to .* were asked for, but the log goes from {first}"):
        query.partitions(start, end)
    assert rows(reader(store, failOnDataLoss="false"), start, end) == expected(("a", 0, first, first + 1))


def test_records_that_went_between_planning_and_reading(store: Store) -> None:
    fill(store, "a", 0, 10)
    query, patient = reader(store), reader(store, failOnDataLoss="false")
    start = query.initialOffset()
    end = query.latestOffset(start, ALL)
    tasks, patient_tasks = query.partitions(start, end), patient.partitions(start, end)
    lose_the_beginning(store)
    with pytest.raises(OffsetOutOfRange):
        [list(query.read(task)) for task in tasks]
    assert [list(patient.read(task)) for task in patient_tasks] == [[]]


def test_a_partition_that_is_gone(store: Store) -> None:
    store.create_topic("b", partitions=1)
    fill(store, "b", 0, 3)
    query, patient = reader(store, subscribe="a,b"), reader(store, subscribe="a,b", failOnDataLoss="false")
    start = query.latestOffset(query.initialOffset(), ALL)
    store.delete_topic("b")
    with pytest.raises(OffsetOutOfRange, match="b-0 is gone, or no longer read; the query was at offset 3"):
        query.latestOffset(start, ALL)
    assert patient.latestOffset(start, ALL) == {"a": {"0": 0, "1": 0}}


def test_a_partition_that_went_after_its_end_was_written_down(store: Store) -> None:
    """A query that was stopped in the middle of a batch starts again, and the topic has been deleted meanwhile."""
    store.create_topic("b", partitions=1)
    fill(store, "a", 0, 3)
    fill(store, "b", 0, 3)
    query = reader(store, failOnDataLoss="false")
    start = query.initialOffset()
    end = query.latestOffset(start, ALL)
    store.delete_topic("b")
    assert rows(query, start, end) == expected(("a", 0, 0, 3))
    assert rows(query, {"a": {"0": 1}}, end) == expected(("a", 0, 1, 3))  # it was new to the query
    assert rows(reader(store), end, {**end, "a": {"0": 3, "1": 0}}) == []  # nothing of it was to be read
    with pytest.raises(OffsetOutOfRange, match="b-0 is gone; it was to be read up to offset 3: records may be lost"):
        reader(store).partitions(start, end)


def test_a_log_that_ends_before_the_query_stood(store: Store) -> None:
    start = {"a": {"0": 7, "1": 0}}
    fill(store, "a", 0, 3)
    with pytest.raises(OffsetOutOfRange, match="a-0 ends at offset 3, but the query was at 7"):
        reader(store).latestOffset(start, ALL)
    patient = reader(store, failOnDataLoss="false", maxOffsetsPerTrigger="5")
    end = patient.latestOffset(start, patient.getDefaultReadLimit())
    assert end["a"]["0"] == 3
    assert rows(patient, start, end) == []


def test_a_topic_that_is_created_again_while_the_query_runs(store: Store) -> None:
    """By its offsets it could be the one before, grown on."""
    fill(store, "a", 0, 3)
    query, patient = reader(store), reader(store, failOnDataLoss="false")
    start = {"a": {"0": 3, "1": 0}}
    for of in (query, patient):
        assert of.latestOffset(start, ALL) == start
    store.delete_topic("a")
    store.create_topic("a", partitions=2)
    fill(store, "a", 0, 5)
    with pytest.raises(OffsetOutOfRange, match="the topic a was deleted and created again since the query read it"):
        query.latestOffset(start, ALL)
    assert [patient.latestOffset(start, ALL) for _ in range(2)] == [{"a": {"0": 5, "1": 0}}] * 2


def test_a_topic_that_is_created_again_between_an_end_and_its_tasks(store: Store) -> None:
    fill(store, "a", 0, 5)
    query, patient = reader(store), reader(store, failOnDataLoss="false")
    start = query.initialOffset()
    end = {"a": {"0": 5, "1": 0}}
    for of in (query, patient):
        assert of.latestOffset(start, ALL) == end
    store.delete_topic("a")
    store.create_topic("a", partitions=2)
    fill(store, "a", 0, 5)
    with pytest.raises(OffsetOutOfRange, match="the topic a was deleted and created again since the query read it"):
        query.partitions(start, end)
    assert rows(patient, start, end) == expected(("a", 0, 0, 5))


def test_a_new_partition_that_has_lost_its_beginning(store: Store) -> None:
    fill(store, "a", 0, 5)
    first = lose_the_beginning(store)
    start = {"a": {"1": 0}}
    with pytest.raises(
        OffsetOutOfRange, match=f"a-0 is new to the query, but its log starts at offset {first}, not at 0"
    ):
        reader(store).latestOffset(start, ALL)
    patient = reader(store, failOnDataLoss="false")
    assert rows(patient, start, patient.latestOffset(start, ALL)) == expected(("a", 0, first, first + 1))


def test_what_is_not_there_when_a_query_begins(store: Store) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic x"):
        reader(store, subscribe="x").initialOffset()
    with pytest.raises(UnknownTopic, match="there is no partition 5 of a"):
        reader(store, assign='{"a":[5]}').initialOffset()
