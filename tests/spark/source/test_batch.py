"""Batch reads through a Spark session: the rows are those that the store itself reads, whatever is asked for."""

from __future__ import annotations

import datetime
import gc
import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import duralog
import pyspark_duralog
from duralog import Record
from duralog.scanning.planning import Plan
from duralog.spark import explain
from duralog.spark.data_source import DuralogDataSource

pytestmark = pytest.mark.spark

START_MS = 1_700_000_000_000
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two partitions of several segments and every codec, a compacted topic, one with transactions, an empty one."""
    path = str(tmp_path_factory.mktemp("source") / "logs")
    with duralog.open(path, config={"log.index.interval.bytes": 512, "log.cleaner.enable": False}) as store:
        store.create_topic("orders", partitions=2)
        for partition in range(2):
            log = store.partition("orders", partition)
            for batch in range(20):
                log.append([_record(partition, batch, row) for row in range(50)], codec=CODECS[batch % 5])
                if batch % 6 == 5:
                    log.roll()
        store.create_topic("state", partitions=1, config={"cleanup.policy": "compact"})
        log = store.partition("state", 0)
        for batch in range(10):
            log.append([Record(key=b"%d" % (row % 7), value=b"%d" % batch, timestamp_ms=START_MS) for row in range(20)])
        log.roll()
        store.compact("state", 0)
        store.create_topic("payments", partitions=1)
        log = store.partition("payments", 0)
        for sequence, commit in enumerate((True, False, True, False)):
            for producer in (11, 12):
                log.append(
                    [Record(key=b"%d" % producer, value=b"%r" % commit, timestamp_ms=START_MS)],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=True,
                )
            log.end_transaction(11, 0, commit=commit)
            log.end_transaction(12, 0, commit=not commit)
        still_open = Record(key=b"11", value=b"open", timestamp_ms=START_MS)
        log.append([still_open], producer_id=11, producer_epoch=0, base_sequence=4, is_transactional=True)
        store.create_topic("quiet", partitions=3)
    return path


def _record(partition: int, batch: int, row: int) -> Record:
    number = batch * 50 + row
    return Record(
        key=None if row % 10 == 0 else b"k%d" % (row % 7),
        value=None if row % 11 == 0 else b"v%d-%d" % (partition, number) * (row % 4),
        timestamp_ms=START_MS + number * 1000,
        headers=[(f"h{h}", None if h == 1 else b"x%d" % row) for h in range(row % 3)],
    )


def read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("duralog").options(**options).load(path)


def stored(path: str, topic: str, isolation: str = "read_uncommitted") -> list[tuple[object, ...]]:
    """What the store reads, as rows of the connector's schema with headers."""
    with duralog.open(path, read_only=True) as store:
        return [
            (
                record.key,
                record.value,
                topic,
                partition,
                record.offset,
                datetime.datetime.fromtimestamp(record.timestamp_ms / 1000, datetime.UTC).replace(tzinfo=None),
                int(record.timestamp_type),
                [(key, value) for key, value in record.headers],
            )
            for partition in store.partitions(topic)
            for record in store.partition(topic, partition).read(0, isolation=isolation)
        ]


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(
        (tuple([tuple(h) for h in v] if isinstance(v, list) else v for v in row) for row in frame.collect()),
        key=lambda row: (row[2], row[3], row[4]),
    )


# Rows


def test_every_field_of_every_record(spark: SparkSession, logs: str) -> None:
    frame = read(spark, logs, subscribe="orders", includeHeaders="true")
    found = rows(frame)
    assert found == stored(logs, "orders")
    assert len(found) == 2000
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert read(spark, logs).schema.names == frame.schema.names[:-1]


def test_every_topic_that_is_not_internal(spark: SparkSession, logs: str) -> None:
    counts = {row["topic"]: row["count"] for row in read(spark, logs).groupBy("topic").count().collect()}
    assert counts == {"orders": 2000, "state": len(stored(logs, "state")), "payments": 9}
    assert counts["state"] < 200


@pytest.mark.parametrize("split", ["1", "2k", "128m"])
def test_the_size_of_splits_changes_nothing(spark: SparkSession, logs: str, split: str) -> None:
    found = read(spark, logs, subscribe="orders", maxSplitBytes=split, columns="partition,offset").collect()
    assert sorted(map(tuple, found)) == [(partition, offset) for partition in range(2) for offset in range(1000)]


def test_at_least_this_many_partitions(spark: SparkSession, logs: str) -> None:
    assert read(spark, logs, subscribe="orders").rdd.getNumPartitions() == 1
    assert read(spark, logs, subscribe="orders", minPartitions="6").rdd.getNumPartitions() >= 6


def test_nothing_to_read(spark: SparkSession, logs: str) -> None:
    assert read(spark, logs, subscribe="quiet").count() == 0
    assert read(spark, logs, subscribePattern="no.*").collect() == []


@pytest.mark.parametrize(("isolation", "count"), [("read_uncommitted", 9), ("read_committed", 4)])
def test_isolation(spark: SparkSession, logs: str, isolation: str, count: int) -> None:
    frame = read(spark, logs, subscribe="payments", includeHeaders="true", **{"kafka.isolation.level": isolation})
    found = rows(frame)
    assert found == stored(logs, "payments", isolation)
    assert len(found) == count


def test_a_compacted_topic_is_counted_exactly(spark: SparkSession, logs: str) -> None:
    frame = read(spark, logs, subscribe="state", includeHeaders="true")
    assert rows(frame) == stored(logs, "state")
    assert frame.count() == len(stored(logs, "state"))


# Columns


def test_columns_are_chosen_by_an_option(spark: SparkSession, logs: str) -> None:
    frame = read(spark, logs, subscribe="orders", columns="Timestamp, OFFSET, headers")
    assert frame.schema.names == ["timestamp", "offset", "headers"]
    first = frame.orderBy("offset", "timestamp").first()
    assert first is not None
    assert first.asDict() == {"timestamp": datetime.datetime(2023, 11, 14, 22, 13, 20), "offset": 0, "headers": []}


def test_columns_are_chosen_by_a_schema(spark: SparkSession, logs: str) -> None:
    reader = spark.read.format("duralog").option("subscribe", "orders")
    frame = reader.schema("value binary, offset long not null, partition int").load(logs)
    whole = read(spark, logs, subscribe="orders").select("value", "offset", "partition")
    assert sorted(map(tuple, frame.collect()), key=lambda r: r[1:]) == sorted(
        map(tuple, whole.collect()), key=lambda r: r[1:]
    )


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("offse long", "there is no column offse; there are key, value, topic"),
        ("offset int", "column offset is of type bigint, not int: read it as it is and cast it afterwards"),
        ("value string", "column value is of type binary, not string"),
        ("key binary not null", "column key may be null"),
        ("offset long, _corrupt string", "there is no column _corrupt without mode=PERMISSIVE"),
    ],
)
def test_a_schema_that_does_not_fit(spark: SparkSession, logs: str, schema: str, told: str) -> None:
    with pytest.raises(AnalysisException, match=told):
        spark.read.format("duralog").schema(schema).load(logs).collect()


# Where to start and end


def spans(frame: DataFrame) -> dict[int, tuple[int, int]]:
    found = frame.groupBy("partition").agg({"offset": "min", "*": "count"}).collect()
    return {row["partition"]: (row["min(offset)"], row["min(offset)"] + row["count(1)"]) for row in found}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": '{"orders":{"0":990,"1":-2}}', "endingOffsets": '{"orders":{"0":-1,"1":3}}'},
            {0: (990, 1000), 1: (0, 3)},
        ),
        (
            {"startingTimestamp": str(START_MS + 500_000), "endingTimestamp": str(START_MS + 502_500)},
            {0: (500, 503), 1: (500, 503)},
        ),
        (
            {"startingOffsetsByTimestamp": f'{{"orders":{{"0":{START_MS + 998_001},"1":{START_MS + 999_000}}}}}'},
            {0: (999, 1000), 1: (999, 1000)},
        ),
        (
            {"startingTimestamp": str(START_MS * 2), "startingOffsetsByTimestampStrategy": "latest"},
            {},
        ),
    ],
)
def test_where_reading_starts_and_ends(
    spark: SparkSession, logs: str, options: dict[str, str], expected: dict[int, tuple[int, int]]
) -> None:
    assert spans(read(spark, logs, subscribe="orders", columns="partition,offset", **options)) == expected


def test_assigned_partitions(spark: SparkSession, logs: str) -> None:
    assert spans(read(spark, logs, assign='{"orders":[1]}')) == {1: (0, 1000)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "nope"}, "there is no topic nope in .*; there are orders, payments, quiet, state"),
        ({"assign": '{"orders":[7]}'}, "there is no partition 7 of orders"),
        (
            {"subscribe": "orders", "startingOffsets": '{"orders":{"0":5000,"1":0}}'},
            "orders-0: offset 5000 was asked for, but the log goes from 0 to 1000",
        ),
        (
            {"subscribe": "orders", "startingOffsets": '{"orders":{"0":5}}'},
            "option startingOffsets does not name orders-1: name every partition that is read; -2 stands for",
        ),
        (
            {"subscribe": "orders", "endingOffsets": '{"orders":{"0":5,"1":5,"2":5}}'},
            "option endingOffsets names orders-2, which is not read: orders-0, orders-1 are",
        ),
        ({"startingTimestamp": str(START_MS * 2)}, "no record has a timestamp of .* or later"),
        ({"subscribe": "orders", "startingOffsets": "latest"}, "startingOffsets is 'latest': give earliest"),
        ({"topic": "orders"}, "there is no option topic"),
        ({"fs.region": "x"}, "region"),
    ],
)
def test_what_cannot_be_read_is_reported_in_a_sentence(
    spark: SparkSession, logs: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(AnalysisException, match=told) as error:
        read(spark, logs, **options).collect()
    assert "Traceback" not in str(error.value)
    assert len(str(error.value).splitlines()[0]) > 50
    # A topic may come, options do not change by themselves.
    is_of_logs = told.startswith(("there is no topic", "there is no partition"))
    assert ("this was found when the frame was loaded" in str(error.value)) is is_of_logs


def test_an_offset_out_of_range_is_let_through_on_demand(spark: SparkSession, logs: str) -> None:
    options = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":5000,"1":998}}', "failOnDataLoss": "false"}
    assert spans(read(spark, logs, **options)) == {1: (998, 1000)}


def test_a_directory_that_is_no_log(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "readme").write_text("not a log")
    (tmp_path / "orders-0").mkdir()
    with pytest.raises(AnalysisException, match="no log files in here"):
        read(spark, str(tmp_path)).collect()
    (tmp_path / "orders-0" / f"{0:020}.log").touch()
    with pytest.raises(duralog.DuralogError, match="this is one partition: give the log directory that it is in"):
        explain(str(tmp_path / "orders-0"))
    duralog.open(tmp_path / "new").close()
    with pytest.raises(AnalysisException, match="there are no topics: no folder is a partition"):
        read(spark, str(tmp_path / "new")).collect()
    with pytest.raises(AnalysisException, match=r"nowhere: .*No such file or directory"):
        read(spark, str(tmp_path / "nowhere")).collect()
    with pytest.raises(AnalysisException, match="there is no option path"):
        spark.read.format("duralog").load()


# What is planned


def test_a_plan_lists_what_it_leaves_out(logs: str) -> None:
    whole = explain(logs, subscribe="orders")
    part = explain(
        logs,
        {"kafka.isolation.level": "read_committed"},
        subscribe="orders",
        startingTimestamp=str(START_MS + 500_000),
        endingTimestamp=str(START_MS + 501_000),
    )
    assert isinstance(whole, Plan)
    assert isinstance(part, Plan)
    assert whole.planned_bytes == whole.total_bytes > 0
    assert part.total_bytes == whole.total_bytes
    assert part.planned_bytes < whole.total_bytes / 5
    assert (part.segments_planned, part.segments_total) == (2, 8)


# How Spark comes to it


def test_spark_finds_the_format_by_itself(spark: SparkSession, logs: str) -> None:
    """A session of its own knows nothing of what `local_session` registered."""
    assert issubclass(pyspark_duralog.DefaultSource, DuralogDataSource)
    assert read(spark.newSession(), logs, subscribe="payments").count() == 9


def test_sql_can_name_the_format(spark: SparkSession, logs: str) -> None:
    spark.sql(f"create or replace temporary view v using duralog options (path '{logs}', subscribe 'orders')")
    assert spark.sql("select count(*) from v where partition = 0").first() == (1000,)


@pytest.mark.since_spark("4.1")
def test_spark_can_be_asked_what_was_planned(spark: SparkSession, logs: str, request: pytest.FixtureRequest) -> None:
    name = "spark.sql.pyspark.worker.logging.enabled"
    spark.conf.set(name, "true")
    request.addfinalizer(lambda: spark.conf.unset(name))
    read(spark, logs, subscribe="state").count()
    told = [row["msg"] for row in spark.sql("select msg from python_worker_logs()").collect()]
    assert [line for line in told if line.startswith(f"{logs}: ") and " of 2 segments of 1 partitions" in line]


def test_workers_come_from_the_daemon_that_has_all_loaded(spark: SparkSession) -> None:
    def worker(_: object) -> list[tuple[int, str]]:
        with open(f"/proc/{os.getppid()}/cmdline") as command:
            return [(gc.get_freeze_count(), command.read())]

    ((frozen, command),) = spark.sparkContext.parallelize([0], 1).mapPartitions(worker).collect()
    assert "duralog.spark.worker_daemon" in command
    assert frozen > 10_000
