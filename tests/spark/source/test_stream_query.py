"""Streaming queries of a Spark session over logs that change meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

import duralog
from duralog import Record, Store
from duralog.spark import explain, lag
from duralog.spark.spark_versions import HAS_READ_LIMITS

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    # Compaction is the tests' own: the cleaner would come before or after a query, as it likes.
    config = {"log.index.interval.bytes": 256, "log.segment.delete.delay.ms": 0, "log.cleaner.enable": False}
    with duralog.open(tmp_path / "logs", config=config) as opened:
        opened.create_topic("a", partitions=2)
        yield opened


def fill(store: Store, partition: int, count: int, topic: str = "a") -> None:
    log = store.partition(topic, partition)
    for _ in range(count):
        log.append([Record(key=b"k", value=b"%d" % log.end_offset)])


class Query:
    """A query into a folder of JSON files, which Spark writes exactly once, with its checkpoint."""

    def __init__(self, spark: SparkSession, store: Store, folder: Path) -> None:
        self._spark = spark
        self._path = store.path
        self.output = folder / "output"
        self.checkpoint = folder / "checkpoint"

    def start(self, *, available_now: bool = True, **options: str) -> StreamingQuery:
        frame = self._spark.readStream.format("duralog").options(startingOffsets="earliest", **options).load(self._path)
        columns = frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
        writer = columns.writeStream.format("json").option("checkpointLocation", str(self.checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self.output))

    def run(self, **options: str) -> list[dict[str, Any]]:
        """All that is available now. Returns the progress of the micro-batches that read something."""
        query = self.start(available_now=True, **options)
        query.awaitTermination()
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[tuple[str, int, int]]:
        found = self._spark.read.schema("topic string, partition int, offset long, value string").json(str(self.output))
        assert all(row["value"] == str(row["offset"]) for row in found.collect())
        return sorted((row["topic"], row["partition"], row["offset"]) for row in found.collect())


@pytest.fixture
def query(spark: SparkSession, store: Store, tmp_path: Path) -> Query:
    return Query(spark, store, tmp_path)


def expected(*ranges: tuple[str, int, int, int]) -> list[tuple[str, int, int]]:
    return sorted((topic, partition, offset) for topic, partition, a, b in ranges for offset in range(a, b))


def test_a_restarted_query_continues_where_it_was(store: Store, query: Query) -> None:
    fill(store, 0, 10)
    fill(store, 1, 5)
    progress = query.run()
    assert progress[-1]["sources"][0]["endOffset"] == {"a": {"0": 10, "1": 5}}
    assert progress[-1]["sources"][0]["latestOffset"] == {"a": {"0": 10, "1": 5}}
    assert query.run() == []
    fill(store, 0, 3)
    store.add_partitions("a", 3)
    fill(store, 2, 4)
    # Where a new query would start makes no difference to one that has a checkpoint.
    assert sum(batch["numInputRows"] for batch in query.run(startingTimestamp="1")) == 7
    assert query.rows() == expected(("a", 0, 0, 13), ("a", 1, 0, 5), ("a", 2, 0, 4))


@pytest.mark.since_spark("4.2")
def test_triggers_are_limited(store: Store, query: Query) -> None:
    fill(store, 0, 20)
    batches = query.run(maxOffsetsPerTrigger="7")
    assert [batch["numInputRows"] for batch in batches] == [7, 7, 6]
    assert query.rows() == expected(("a", 0, 0, 20))
    assert [lag(batch) for batch in batches] == [{("a", 0): behind, ("a", 1): 0} for behind in (13, 6, 0)]
    ends = [json.dumps(batch["sources"][0]["endOffset"]) for batch in batches]
    left = [explain(store.path, subscribe="a", startingOffsets=end).planned_bytes for end in ends]
    assert left[0] > left[1] > left[2] == 0


def test_the_lag_of_a_running_query(store: Store, query: Query) -> None:
    fill(store, 0, 5)
    running = query.start()
    running.awaitTermination()
    progress = running.lastProgress
    assert progress is not None
    assert lag(progress) == {("a", 0): 0, ("a", 1): 0}
    other = {"description": "RateStreamV2", "endOffset": 3, "latestOffset": None}
    (source,) = json.loads(progress.json)["sources"]
    assert lag({"sources": [other, source]}) == lag(progress)
    behind = {**source, "endOffset": {"a": {"0": 0, "1": 0}}}
    assert lag({"sources": [source, behind]}) == lag({"sources": [behind, source]}) == lag({"sources": [behind]})


def test_a_live_log(store: Store, query: Query) -> None:
    """A query that runs on sees what is appended, rolled and compacted while it runs, once."""
    limits = {"maxBytesPerTrigger": "2k"} if HAS_READ_LIMITS else {}
    running = query.start(available_now=False, subscribePattern="[ab]", **limits)
    try:
        for step in range(4):
            fill(store, step % 2, 20)
            store.partition("a", step % 2).roll()
            running.processAllAvailable()
        store.create_topic("b", partitions=1)
        fill(store, 0, 5, "b")
        running.processAllAvailable()
    finally:
        running.stop()
    assert query.rows() == expected(("a", 0, 0, 40), ("a", 1, 0, 40), ("b", 0, 0, 5))


def test_retention_and_compaction_under_a_running_query(store: Store, query: Query) -> None:
    """What was read may be deleted, and what was not read yet compacted: the rest comes once."""
    store.create_topic("c", partitions=1, config={"cleanup.policy": "compact"})
    deleted, compacted = store.partition("a", 0), store.partition("c", 0)
    fill(store, 0, 30)
    running = query.start(available_now=False, **({"maxOffsetsPerTrigger": "10"} if HAS_READ_LIMITS else {}))
    try:
        running.processAllAvailable()
        for _ in range(3):
            deleted.roll()
            fill(store, 0, 10)
            deleted.delete_records(before_offset=deleted.end_offset - 10)
            store.apply_retention()
            running.processAllAvailable()
        fill(store, 0, 5, "c")
        compacted.roll()
        running.processAllAvailable()
        fill(store, 0, 5, "c")
        compacted.roll()
        assert store.compact("c", 0) is not None
        fill(store, 0, 5, "c")
        running.processAllAvailable()
    finally:
        running.stop()
    found = query.rows()
    assert [row for row in found if row[0] == "a"] == expected(("a", 0, 0, 60))
    # Offsets 5 to 8 may have been compacted away before the query came to them.
    assert len(found) == len(set(found))
    assert set(expected(("c", 0, 0, 5), ("c", 0, 9, 15))) <= set(found)


@pytest.mark.since_spark("4.2")
def test_watermarks(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """Windows of the records' own times: closed by a later record, and not opened again by a late one."""
    log = store.partition("a", 0)
    frame = spark.readStream.format("duralog").option("startingOffsets", "earliest").load(store.path)
    windows = frame.withWatermark("timestamp", "10 seconds").groupBy(window("timestamp", "10 seconds")).count()

    def run(*seconds: int) -> list[tuple[int, int]]:
        """Append records of these times, in one batch. Returns the windows that are closed by now."""
        log.append([Record(value=b"x", timestamp_ms=second * 1000) for second in seconds])
        writer = windows.selectExpr("unix_timestamp(window.start) as start", "count").writeStream.format("json")
        writer = writer.outputMode("append").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "windows")).awaitTermination()
        closed = spark.read.schema("start long, count long").json(str(tmp_path / "windows"))
        return sorted((row["start"], row["count"]) for row in closed.collect())

    assert run(1000, 1003, 1012) == []
    assert run(1009, 1031) == [(1000, 3), (1010, 1)]
    assert run(1005, 1025, 1060) == [(1000, 3), (1010, 1), (1020, 1), (1030, 1)]


def test_a_hot_partition(store: Store, query: Query) -> None:
    """It is read by many tasks, and does not keep the records of the other one waiting."""
    hot = store.partition("a", 1)
    for first in range(0, 2000, 100):
        hot.append([Record(key=b"k", value=b"%d" % (first + row)) for row in range(100)])
    fill(store, 0, 20)
    tasks = explain(store.path, subscribe="a", maxSplitBytes="4k").tasks
    assert max(sum(part.size_bytes for part in task) for task in tasks) < hot.size_bytes / 4
    batch, *_ = query.run(maxSplitBytes="4k", **({"maxOffsetsPerTrigger": "1010"} if HAS_READ_LIMITS else {}))
    assert not HAS_READ_LIMITS or batch["sources"][0]["endOffset"]["a"] == {"0": 10, "1": 1000}
    assert query.rows() == expected(("a", 0, 0, 20), ("a", 1, 0, 2000))


def test_committed_records_only(spark: SparkSession, store: Store, query: Query) -> None:
    log = store.partition("a", 0)
    for sequence, commit in enumerate((True, False, None)):
        log.append(
            [Record(key=b"t", value=b"%d" % log.end_offset)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        if commit is not None:
            log.end_transaction(7, 0, commit=commit)
    committed = {"kafka.isolation.level": "read_committed"}
    assert query.run(**committed)[-1]["sources"][0]["endOffset"]["a"]["0"] == 4
    assert query.rows() == [("a", 0, 0)]
    log.end_transaction(7, 0, commit=True)
    query.run(**committed)
    assert query.rows() == [("a", 0, 0), ("a", 0, 4)]


def test_loss_is_an_error_or_is_passed_over(store: Store, query: Query) -> None:
    fill(store, 0, 10)
    query.run()
    fill(store, 0, 10)
    log = store.partition("a", 0)
    log.roll()
    fill(store, 0, 2)
    log.delete_records(before_offset=20)
    store.apply_retention()
    with pytest.raises(StreamingQueryException) as error:
        query.run()
    told = str(error.value)
    assert "a-0: offsets 10 to 2" in told
    assert "but the log goes from 20 to 22" in told
    assert query.run(failOnDataLoss="false")[-1]["numInputRows"] == 2
    assert query.rows() == expected(("a", 0, 0, 10), ("a", 0, 20, 22))


def test_what_does_not_exist_is_reported_in_a_sentence(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    reader = spark.readStream.format("duralog").option("subscribe", "nope")
    query = reader.load(store.path).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="there is no topic nope in"):
        query.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("available_now", [True, False])
def test_what_is_refused_is_reported_in_a_sentence(
    spark: SparkSession, store: Store, tmp_path: Path, available_now: bool
) -> None:
    """With a schema of the user's, nothing is looked at before the query starts."""
    reader = spark.readStream.format("duralog").schema("offset long").option("subcribe", "a")
    writer = reader.load(store.path).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match="there is no option subcribe: did you mean subscribe"):
        (writer.trigger(availableNow=True) if available_now else writer).start().awaitTermination()


def test_a_batch_at_a_time(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    """`foreachBatch` gets frames, with all columns."""
    fill(store, 0, 6)
    seen: list[tuple[int, list[int]]] = []

    def keep(frame: DataFrame, number: int) -> None:
        seen.append((number, sorted(row["offset"] for row in frame.collect())))

    options = {"startingOffsets": "earliest", "includeHeaders": "true"}
    if HAS_READ_LIMITS:
        options["maxOffsetsPerTrigger"] = "4"
    frame = spark.readStream.format("duralog").options(**options).load(store.path)
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen == ([(0, [0, 1, 2, 3]), (1, [4, 5])] if HAS_READ_LIMITS else [(0, [0, 1, 2, 3, 4, 5])])
