"""One frame, one view and one cached frame in many queries: each returns the rows that were written.

Spark 4.3 keeps one planned read for a `load()` and shares it among all queries, so a query must never see what another
one has asked for. The truth is the list of rows that the writer had, filtered in Python with SQL's rules for nulls.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import reduce
from typing import NamedTuple

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import duralog
from duralog import Record

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ZONE = "spark.sql.session.timeZone"
START_MS = 1_700_000_000_000
"""2023-11-14 22:13:20 UTC."""
YEAR_10000_MS = 253_402_300_800_000
HOUR_MS = 3_600_000
PARTITIONS = {"a": 2, "b": 1}
BATCHES, BATCH_ROWS = 12, 25
ID = ("topic", "partition", "offset")


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def _row(topic: str, partition: int, offset: int) -> Row:
    number = offset * 3 + partition
    key = None if offset % 5 == 0 else b"k%d" % (offset % 7)
    value = None if number % 11 == 0 else b"v%d" % number
    # Not in order: a filter on times must find a record that is older than its neighbours.
    return Row(topic, partition, offset, key, value, START_MS + offset * 1000 + (7_500 if offset % 2 else 0))


TRUTH = [
    _row(topic, partition, offset)
    for topic, count in PARTITIONS.items()
    for partition in range(count)
    for offset in range(BATCHES * BATCH_ROWS)
]
FAR_MS = (0, 1, START_MS, YEAR_10000_MS - 1, YEAR_10000_MS, YEAR_10000_MS + 2 * HOUR_MS, YEAR_10000_MS + 9 * HOUR_MS)
"""The timestamps of the topic far, by offset."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Partitions of several segments."""
    path = str(tmp_path_factory.mktemp("frames") / "logs")
    with duralog.open(path, config={"log.index.interval.bytes": 256, "log.cleaner.enable": False}) as store:
        for topic, count in PARTITIONS.items():
            store.create_topic(topic, partitions=count)
        for number, row in enumerate(TRUTH):
            if row.offset % BATCH_ROWS == 0:
                log = store.partition(row.topic, row.partition)
                rows = TRUTH[number : number + BATCH_ROWS]
                log.append([Record(key=r.key, value=r.value, timestamp_ms=r.timestamp_ms) for r in rows], codec="lz4")
                if row.offset // BATCH_ROWS % 4 == 3:
                    log.roll()
    return path


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A segment for each record, with the earliest and the latest times that are of use."""
    path = str(tmp_path_factory.mktemp("far") / "logs")
    with duralog.open(path) as store:
        config = {"message.timestamp.after.max.ms": 2**63 - 1, "message.timestamp.before.max.ms": 2**63 - 1}
        store.create_topic("far", partitions=1, config=config)
        log = store.partition("far", 0)
        for timestamp_ms in FAR_MS:
            log.append([Record(value=b"x", timestamp_ms=timestamp_ms)])
            log.roll()
    return path


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets a setting of the session for one test."""
    before: dict[str, str] = {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name) or "")
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(params=["true", "false"], ids=["push-down on", "push-down off"])
def pushdown(request: pytest.FixtureRequest, conf: Callable[[str, str], None]) -> str:
    enabled: str = request.param
    conf(PUSHDOWN, enabled)
    return enabled


def read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("duralog").options(**options).load(path)


Wanted = Callable[[Row], bool | None]
FILTERS: dict[str, Wanted] = {
    "topic = 'a'": lambda r: r.topic == "a",
    "topic <> 'a'": lambda r: r.topic != "a",
    "topic like 'b%'": lambda r: r.topic == "b",
    "topic like '%c'": lambda _: False,
    "topic not like '%a%'": lambda r: r.topic == "b",
    "topic is null": lambda _: False,
    "topic in ('b', 'c', null)": lambda r: r.topic == "b",
    "partition = 1": lambda r: r.partition == 1,
    "partition not in (1, 2)": lambda r: r.partition == 0,
    "partition <=> 0 and topic > 'a'": lambda r: r.topic == "b",
    "partition is not null and offset < 3": lambda r: r.offset < 3,
    "offset = 77": lambda r: r.offset == 77,
    "offset <> 77": lambda r: r.offset != 77,
    "offset between 99 and 101": lambda r: 99 <= r.offset <= 101,
    "offset in (3, 298, 5000) and partition = 0": lambda r: r.offset in (3, 298) and r.partition == 0,
    "offset >= 9223372036854775807": lambda _: False,
    "offset > -9223372036854775808 and topic = 'b'": lambda r: r.topic == "b",
    "not (offset > 10 or partition = 1)": lambda r: r.offset <= 10 and r.partition != 1,
    "topic = 'a' or offset = 3": lambda r: r.topic == "a" or r.offset == 3,
    "(topic = 'a' and offset < 5) or (topic = 'b' and offset > 290)": lambda r: (
        r.offset < 5 if r.topic == "a" else r.offset > 290
    ),
    "timestamp >= '2023-11-14 22:18:00'": lambda r: r.timestamp_ms >= START_MS + 280_000,
    "timestamp < '2023-11-14 22:13:30'": lambda r: r.timestamp_ms < START_MS + 10_000,
    "timestamp = '2023-11-14 22:13:40'": lambda r: r.timestamp_ms == START_MS + 20_000,
    "timestamp in ('2023-11-14 22:13:40', '2023-11-14 22:18:00')": lambda r: (
        r.timestamp_ms - START_MS in (20_000, 280_000)
    ),
    "timestamp is null": lambda _: False,
    "key is null": lambda r: r.key is None,
    "key = 'k3'": lambda r: r.key == b"k3",
    "key > X'6B35' and topic = 'b'": lambda r: r.key is not None and r.key > b"k5" and r.topic == "b",
    "key not in ('k1', 'k2') and offset < 50": lambda r: (
        r.key is not None and r.key not in (b"k1", b"k2") and r.offset < 50
    ),
    "value is not null and offset >= 295": lambda r: r.value is not None and r.offset >= 295,
    "cast(value as string) like 'v1%' and partition = 1": lambda r: (
        r.value is not None and r.value.startswith(b"v1") and r.partition == 1
    ),
    "value is null or key is null": lambda r: r.value is None or r.key is None,
    "true": lambda _: True,
}


def expected(wanted: Wanted) -> list[tuple[str, int, int]]:
    return sorted((r.topic, r.partition, r.offset) for r in TRUTH if wanted(r))


def found(frame: DataFrame) -> list[tuple[str, int, int]]:
    return sorted(tuple(row) for row in frame.select(*ID).collect())


def assert_each_found(filters: dict[str, Wanted], frames: dict[str, DataFrame]) -> None:
    """One query, with each filter on its frame."""
    parts = [frames[condition].where(condition).selectExpr(f"{n} as n", *ID) for n, condition in enumerate(filters)]
    rows: list[list[tuple[str, int, int]]] = [[] for _ in filters]
    for row in reduce(DataFrame.unionAll, parts).collect():
        rows[row["n"]].append((row["topic"], row["partition"], row["offset"]))
    for (condition, wanted), of_filter in zip(filters.items(), rows, strict=True):
        assert sorted(of_filter) == expected(wanted), condition


def shown_plan(frame: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as out:
        frame.explain("formatted")
    return out.getvalue()


# A frame, a view and a cached frame


def test_one_frame_in_many_queries(spark: SparkSession, logs: str, pushdown: str) -> None:
    frame = read(spark, logs)
    # Without push-down the filters are Spark's alone.
    filters = list(FILTERS.items())[:: 2 if pushdown == "true" else 6]
    for number, (condition, wanted) in enumerate(filters):
        assert found(frame.where(condition)) == expected(wanted), condition
        if number % 6 == 0:
            assert frame.count() == len(TRUTH), condition
    rows = [(r.topic, r.partition, r.offset, r.key, r.value) for r in TRUTH]
    assert sorted(map(tuple, frame.select(*ID, "key", "value").collect())) == sorted(rows)


@pytest.mark.usefixtures("pushdown")
def test_one_frame_many_times_in_one_query(spark: SparkSession, logs: str) -> None:
    frame = read(spark, logs)
    filters = dict(list(FILTERS.items())[::4])
    assert_each_found(filters, dict.fromkeys(filters, frame))
    few, other = frame.where("topic = 'a' and offset < 3").alias("few"), frame.where("offset >= 1").alias("other")
    joined = few.join(other, ["topic", "partition", "offset"])
    assert found(joined) == expected(lambda r: r.topic == "a" and r.offset in (1, 2))
    assert found(frame.where("offset < 9").exceptAll(frame.where("topic = 'b'"))) == expected(
        lambda r: r.topic == "a" and r.offset < 9
    )


@pytest.mark.usefixtures("pushdown")
def test_one_view_in_many_queries(spark: SparkSession, logs: str) -> None:
    spark.sql(f"create or replace temporary view frames using duralog options (path '{logs}')")

    def rows(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in spark.sql(query).collect()]

    total, of_a, of_b = len(TRUTH), 2 * BATCHES * BATCH_ROWS, BATCHES * BATCH_ROWS
    assert rows("select count(*) from frames where topic = 'a'") == [(of_a,)]
    assert rows("select count(*) from frames") == [(total,)]
    assert rows(
        "select (select count(*) from frames where topic = 'a'), (select count(*) from frames where topic = 'b'),"
        " (select count(*) from frames where offset < 10)"
    ) == [(of_a, of_b, 30)]
    assert rows(
        "select count(*) from frames where topic = 'a'"
        " and (partition, offset) in (select partition, offset from frames where topic = 'b')"
    ) == [(of_b,)]
    assert rows(
        "with few as (select * from frames where offset < 3), b as (select * from frames where topic = 'b')"
        " select (select count(*) from few), (select count(*) from b), (select count(*) from few join b using (offset))"
    ) == [(9, of_b, 9)]
    assert rows("select topic, count(*) from frames where offset > 10 group by topic having count(*) > 300") == [
        ("a", of_a - 22)
    ]
    assert rows("select count(*) from frames where exists (select 1 from frames f where f.topic = 'c')") == [(0,)]
    for condition, wanted in list(FILTERS.items())[2::8]:
        assert rows(f"select count(*) from frames where {condition}") == [(len(expected(wanted)),)], condition
    assert found(spark.table("frames")) == expected(lambda _: True)


def test_one_cached_frame_in_many_queries(
    spark: SparkSession, logs: str, conf: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    conf(PUSHDOWN, "true")
    frame = read(spark, logs)
    assert frame.where("topic = 'a' and offset < 5").count() == 10
    frame.cache()
    request.addfinalizer(frame.unpersist)
    assert frame.where("topic = 'b' and offset < 5").count() == 5
    assert frame.count() == len(TRUTH)
    for condition, wanted in list(FILTERS.items())[1::6]:
        assert found(frame.where(condition)) == expected(wanted), condition


def random_filter(chance: random.Random, depth: int = 2) -> tuple[str, Wanted]:
    """Filters joined by `and` and `or`. Not by `not`: these count a null as false, which would come out as true."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(list(FILTERS.items()))
    (left, is_left), (right, is_right) = random_filter(chance, depth - 1), random_filter(chance, depth - 1)
    if chance.random() < 0.5:
        return f"({left}) and ({right})", lambda r: is_left(r) and is_right(r)
    return f"({left}) or ({right})", lambda r: is_left(r) or is_right(r)


def test_random_filters_of_a_frame_a_view_and_a_cached_frame(
    spark: SparkSession, logs: str, conf: Callable[[str, str], None], request: pytest.FixtureRequest, randomised: int
) -> None:
    """In any order, with and without push-down: no query leaves a trace in another."""
    spark.sql(f"create or replace temporary view random_frames using duralog options (path '{logs}')")
    cached = read(spark, logs).cache()
    request.addfinalizer(cached.unpersist)
    frames = [read(spark, logs), spark.table("random_frames"), cached]
    chance = random.Random(randomised)
    for _ in range(8 * randomised):
        conf(PUSHDOWN, chance.choice(["true", "false"]))
        condition, wanted = random_filter(chance)
        assert found(chance.choice(frames).where(condition)) == expected(wanted), condition


@pytest.mark.usefixtures("pushdown")
def test_a_plan_that_is_shown_changes_nothing(spark: SparkSession, logs: str) -> None:
    frame = read(spark, logs)
    shown_plan(frame.where("offset < 3"))
    assert frame.count() == len(TRUTH)
    few = frame.where("offset < 3")
    shown_plan(frame.where("topic = 'a'"))
    assert (few.count(), few.count(), frame.count()) == (9, 9, len(TRUTH))


def test_a_frame_outlives_a_change_of_the_setting(
    spark: SparkSession, logs: str, conf: Callable[[str, str], None]
) -> None:
    frame = read(spark, logs)
    for enabled in ("true", "false", "true"):
        conf(PUSHDOWN, enabled)
        assert frame.where("topic = 'b' and offset < 7").count() == 7
        assert frame.count() == len(TRUTH)


def test_a_schema_of_the_user_is_as_good(spark: SparkSession, logs: str, conf: Callable[[str, str], None]) -> None:
    conf(PUSHDOWN, "true")
    frame = spark.read.format("duralog").schema("topic string, offset long, partition int").load(logs)
    assert frame.where("topic = 'a' and offset < 3").count() == 6
    assert frame.count() == len(TRUTH)


# pruneByFilters


@pytest.mark.since_spark("4.1")
def test_a_load_for_one_query_may_be_pruned(spark: SparkSession, logs: str, conf: Callable[[str, str], None]) -> None:
    conf(PUSHDOWN, "true")
    assert_each_found(FILTERS, {condition: read(spark, logs, pruneByFilters="true") for condition in FILTERS})


@pytest.mark.since_spark("4.1")
def test_pruning_leaves_files_alone(spark: SparkSession, logs: str, conf: Callable[[str, str], None]) -> None:
    """Each slice is a task here, so the number of tasks is what was planned."""
    conf(PUSHDOWN, "true")

    def tasks(condition: str, prune: str = "true") -> int:
        frame = read(spark, logs, maxSplitBytes="1", pruneByFilters=prune)
        return frame.where(condition).rdd.getNumPartitions()

    every = tasks("true")
    assert every > 20
    assert tasks("topic = 'b' and offset between 10 and 20") <= 4
    assert tasks("timestamp >= '2023-11-14 22:18:00'") <= every / 2
    assert tasks("topic = 'c'") == 1
    assert tasks("topic = 'b' and offset between 10 and 20", prune="false") == every


@pytest.mark.since_spark("4.1")
def test_what_prunes_is_applied_by_spark_as_well(
    spark: SparkSession, logs: str, conf: Callable[[str, str], None]
) -> None:
    """So that a load which is used twice after all may miss rows, but never has wrong ones."""
    conf(PUSHDOWN, "true")
    plan = shown_plan(read(spark, logs, pruneByFilters="true").where("topic = 'a' and offset > 5"))
    assert "PushedFilters" not in plan
    assert re.search(r"Condition : .*topic#\d+ = a.*offset#\d+L > 5", plan)


@pytest.mark.since_spark("4.1")
def test_pruning_needs_the_setting(spark: SparkSession, logs: str, conf: Callable[[str, str], None]) -> None:
    conf(PUSHDOWN, "false")
    frame = read(spark, logs, pruneByFilters="true")
    with pytest.raises(AnalysisException, match=PUSHDOWN) as error:
        frame.where("topic = 'a'").count()
    assert "Traceback" not in str(error.value)
    conf(PUSHDOWN, "true")
    assert frame.where("topic = 'a' and offset < 4").count() == 8


@pytest.mark.since_spark("4.1")
def test_spark_shares_one_plan_among_queries(spark: SparkSession, logs: str, conf: Callable[[str, str], None]) -> None:
    """The reason why filters prune only on demand. If this fails, Spark has changed: they may prune by default then."""
    conf(PUSHDOWN, "true")
    frame = read(spark, logs, pruneByFilters="true")
    assert frame.where("topic = 'b' and offset < 5").count() == 5
    assert frame.count() == 5
    twice = frame.where("offset < 3").unionAll(frame.where("offset > 290"))
    assert {row["offset"] for row in twice.collect()} == set(range(291, 300))


def test_the_session_of_duralog_leaves_the_setting_alone(spark: SparkSession) -> None:
    assert spark.conf.get(PUSHDOWN) == "false"


# Times at the ends of the calendar


SENTINELS: dict[str, dict[str, int]] = {
    "America/New_York": {
        "timestamp < '9999-12-31 23:59:59.999'": 6,
        "timestamp > '9999-12-31 23:59:59.999'": 1,
        "timestamp <= '9999-12-31 18:59:59.999' and timestamp > '2023-01-01'": 2,
        "timestamp in ('9999-12-31 21:00:00', '1970-01-01')": 1,
    },
    "Asia/Tokyo": {
        "timestamp > '0001-01-01'": 7,
        "timestamp < '0001-01-01'": 0,
        "timestamp >= '0001-01-01 00:00:00' and timestamp < '9999-12-31 23:59:59.999'": 3,
    },
    "UTC": {
        "timestamp < '9999-12-31 23:59:59.999'": 3,
        "timestamp between '0001-01-01' and '9999-12-31 23:59:59.999999'": 4,
        "timestamp > '+10000-01-01 01:00:00'": 2,
        "timestamp < '+200000-01-01' and timestamp > '-200000-01-01'": 7,
        "cast(timestamp as date) <= date '9999-12-31'": 4,
        "timestamp <> '+10000-01-01 02:00:00'": 6,
    },
    "Pacific/Kiritimati": {"timestamp > '0001-01-01' and timestamp < '9999-12-31'": 3},
}


@pytest.mark.parametrize("zone", SENTINELS)
@pytest.mark.parametrize("prune", [pytest.param("true", marks=pytest.mark.since_spark("4.1")), "false"])
def test_sentinel_dates(spark: SparkSession, far: str, conf: Callable[[str, str], None], zone: str, prune: str) -> None:
    conf(PUSHDOWN, "true")
    conf(ZONE, zone)
    for condition, count in SENTINELS[zone].items():
        assert read(spark, far, pruneByFilters=prune).where(condition).count() == count, condition


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingTimestamp": "0"}, range(7)),
        ({"endingTimestamp": "0"}, range(0)),
        ({"endingTimestamp": str(2**63 - 1)}, range(7)),
        ({"startingTimestamp": str(YEAR_10000_MS), "endingTimestamp": str(YEAR_10000_MS + HOUR_MS)}, range(4, 5)),
        ({"startingTimestamp": str(2**63 - 1), "startingOffsetsByTimestampStrategy": "latest"}, range(0)),
        ({"startingOffsetsByTimestamp": '{"far":{"0":253402300800001}}'}, range(5, 7)),
        ({"endingOffsetsByTimestamp": '{"far":{"0":9223372036854775807}}'}, range(7)),
    ],
)
def test_times_of_options_at_their_ends(spark: SparkSession, far: str, options: dict[str, str], offsets: range) -> None:
    assert sorted(row["offset"] for row in read(spark, far, columns="offset", **options).collect()) == list(offsets)
