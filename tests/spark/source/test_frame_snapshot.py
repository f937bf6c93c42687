"""A frame has the records that were there when it was loaded, whenever the first query is and whatever it filters."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import duralog
from duralog import Record, Store
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.logs import DirectoryLogs
from duralog.scanning.offset_ranges import OffsetRange
from duralog.spark.data_source import DuralogDataSource
from duralog.spark.source.frame_snapshot import FrameSnapshot

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
START_MS = 1_700_000_000_000
CONFIG = {"log.cleaner.enable": False, "log.retention.ms": -1}


@pytest.fixture(autouse=True)
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """On: then Spark plans again for every query with filters."""
    before = spark.conf.get(PUSHDOWN)
    assert before is not None
    spark.conf.set(PUSHDOWN, getattr(request, "param", "true"))
    yield
    spark.conf.set(PUSHDOWN, before)


on_and_off = pytest.mark.parametrize("pushdown", ["true", "false"], indirect=True)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A directory with ten records in a-0: six in its first segment, four in the next one."""
    path = str(tmp_path / "logs")
    with open_store(path) as store:
        store.create_topic("a", partitions=1)
        append(store, 6)
        store.partition("a", 0).roll()
        append(store, 4)
    return path


def open_store(path: str) -> Store:
    return duralog.open(path, config=CONFIG)


def append(store: Store, count: int, topic: str = "a") -> None:
    log = store.partition(topic, 0)
    first = log.end_offset
    offsets = range(first, first + count)
    log.append([Record(key=b"k%d" % (n % 3), value=b"%d" % n, timestamp_ms=START_MS + n) for n in offsets])


def append_to(path: str, count: int, topic: str = "a") -> None:
    with open_store(path) as store:
        if topic not in store.topics():
            store.create_topic(topic, partitions=1)
        append(store, count, topic)


def read(spark: SparkSession, path: str, **options: str) -> DataFrame:
    return spark.read.format("duralog").options(**options).load(path)


def counts(frame: DataFrame) -> tuple[int, int, int]:
    """With a filter that can be pushed, with one that cannot, and with none."""
    return (
        frame.where("offset >= 5").count(),
        frame.where("offset >= 5 or topic = 'none'").count(),
        frame.count(),
    )


# Records that come


@on_and_off
def test_a_frame_has_what_was_there_when_it_was_loaded(spark: SparkSession, path: str) -> None:
    frame = read(spark, path)
    append_to(path, 5)
    append_to(path, 3, topic="b")
    assert counts(frame) == (5, 5, 10)
    append_to(path, 5)
    assert counts(frame) == (5, 5, 10)
    assert counts(read(spark, path)) == (15, 15, 23)


@on_and_off
def test_a_view_has_what_was_there_when_it_was_made(spark: SparkSession, path: str) -> None:
    def view(replacing: str = "") -> None:
        spark.sql(f"create {replacing} temporary view pinned using duralog options (path '{path}')")

    view("or replace")
    append_to(path, 5)
    assert counts(spark.table("pinned")) == (5, 5, 10)
    spark.sql("refresh table pinned")
    assert counts(spark.table("pinned")) == (5, 5, 10)
    view("or replace")
    assert counts(spark.table("pinned")) == (10, 10, 15)
    read(spark, path).createOrReplaceTempView("pinned")
    append_to(path, 5)
    assert spark.sql("select count(*) from pinned where offset >= 5").first() == (10,)


@on_and_off
def test_with_a_schema_of_the_user_the_first_query_counts(spark: SparkSession, path: str) -> None:
    """Spark does not call the source at load() then."""
    frame = spark.read.format("duralog").schema("topic string, offset long").load(path)
    append_to(path, 5)
    assert frame.where("offset >= 5").count() == 10
    append_to(path, 5)
    assert counts(frame) == (10, 10, 15)


def test_a_cached_frame_stays_too(spark: SparkSession, path: str, request: pytest.FixtureRequest) -> None:
    frame = read(spark, path).cache()
    request.addfinalizer(frame.unpersist)
    append_to(path, 5)
    assert counts(frame) == (5, 5, 10)
    assert read(spark, path).count() == 15


def test_times_and_offsets_are_found_at_load(spark: SparkSession, path: str) -> None:
    since = read(spark, path, startingTimestamp=str(START_MS + 4))
    until = read(spark, path, endingTimestamp=str(START_MS + 20))
    assigned = read(spark, path, assign='{"a":[0]}', endingOffsets='{"a":{"0":-1}}')
    append_to(path, 30)
    assert (since.count(), until.count(), assigned.count()) == (6, 10, 10)


def test_transactions_that_end_later_are_not_in_a_frame(spark: SparkSession, path: str) -> None:
    def in_transaction(log: duralog.PartitionLog, sequence: int) -> None:
        log.append(
            [Record(value=b"t", timestamp_ms=START_MS)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    with open_store(path) as store:
        log = store.partition("a", 0)
        in_transaction(log, 0)
        committed = read(spark, path, **{"kafka.isolation.level": "read_committed"})
        uncommitted = read(spark, path)
        in_transaction(log, 1)
        log.end_transaction(7, 0, commit=True)
    assert (committed.count(), uncommitted.count()) == (10, 11)
    assert read(spark, path, **{"kafka.isolation.level": "read_committed"}).count() == 12


def test_sql_without_a_view_cannot_read(spark: SparkSession, path: str, request: pytest.FixtureRequest) -> None:
    """Spark 4.3 gives a Python source of a table none of its options."""
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql(f"select * from duralog.`{path}`")
    with pytest.raises(AnalysisException, match=r"a catalog table cannot be read.*CREATE TEMPORARY VIEW"):
        spark.sql(f"create table refused using duralog options (path '{path}')")
    spark.sql(f"create table useless (offset long) using duralog options (path '{path}')")
    request.addfinalizer(lambda: spark.sql("drop table useless"))
    with pytest.raises(AnalysisException, match=r"there is no option path.* a catalog table cannot be read"):
        spark.table("useless").count()


# Records that go


def losing_start(path: str) -> None:
    with open_store(path) as store:
        store.partition("a", 0).delete_records(6)
        store.apply_retention()


def losing_topic(path: str) -> None:
    with open_store(path) as store:
        store.delete_topic("a")


def replacing_topic(path: str) -> None:
    losing_topic(path)
    append_to(path, 20)


@pytest.mark.parametrize(
    ("lose", "message", "left"),
    [
        (losing_start, r"a-0: offsets 0 to (6|10) were asked for, but the log goes from 6 to 10", 4),
        (losing_topic, r"a-0: offsets 0 to (6|10) were asked for, but the partition is gone", 0),
        (replacing_topic, r"a-0: offsets . to (6|10) were asked for, but the topic was deleted and created again", 0),
    ],
)
@pytest.mark.parametrize("is_planned", [False, True], ids=["before the first query", "after a query"])
def test_what_is_gone_is_data_loss(
    spark: SparkSession, path: str, lose: Callable[[str], None], message: str, left: int, is_planned: bool
) -> None:
    strict, lenient = read(spark, path), read(spark, path, failOnDataLoss="false")
    if is_planned:
        assert (strict.count(), lenient.count()) == (10, 10)
    lose(path)
    with pytest.raises(PySparkException, match=message) as error:
        strict.count()
    assert "load it again" in str(error.value)
    assert "Traceback" not in str(error.value)
    assert lenient.count() == left


def test_what_compaction_took_away_is_no_loss(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "compacted")
    with open_store(path) as store:
        store.create_topic("a", partitions=1, config={"cleanup.policy": "compact"})
        append(store, 10)
        store.partition("a", 0).roll()
        planned, new = read(spark, path), read(spark, path)
        assert planned.count() == 10
        store.compact("a", 0)
    for frame in (planned, new):
        assert sorted(row["offset"] for row in frame.select("offset").collect()) == [7, 8, 9]


def test_an_empty_partition_loses_nothing(spark: SparkSession, path: str) -> None:
    append_to(path, 1, topic="b")
    with open_store(path) as store:
        store.partition("b", 0).delete_records(1)
    frame = read(spark, path)
    with open_store(path) as store:
        store.delete_topic("b")
    assert frame.count() == 10


# Loads that fail


def test_a_load_that_failed_says_so_until_it_is_repeated(spark: SparkSession, path: str) -> None:
    frame = read(spark, path, subscribe="b")
    append_to(path, 3, topic="b")
    for _ in range(2):
        with pytest.raises(AnalysisException, match=r"there is no topic b in .*; this was found when .*: load again"):
            frame.count()
    assert read(spark, path, subscribe="b").count() == 3


def test_a_stream_does_not_mind_what_a_batch_read_would_refuse(spark: SparkSession, path: str) -> None:
    streams = [
        spark.readStream.format("duralog").option("startingOffsets", "latest").load(path),
        spark.readStream.format("duralog").option("subscribe", "later").load(path),
    ]
    assert all(stream.isStreaming for stream in streams)


# What travels


def test_the_snapshot_travels_to_the_planner_and_not_into_tasks(path: str) -> None:
    source = pickle.loads(pickle.dumps(DuralogDataSource({"path": path})))
    append_to(path, 5)
    again: DuralogDataSource = pickle.loads(pickle.dumps(source))
    reader = again.reader(again.schema())
    (task,) = reader.partitions()
    assert [(found.start_offset, found.end_offset) for found in task.slices] == [(0, 6), (6, 10)]  # type: ignore[attr-defined]
    for travelling in (again, reader):
        assert b"frame_snapshot" not in pickle.dumps(travelling)


def test_a_snapshot_without_topic_ids(path: str) -> None:
    """Of old directories: the offsets alone count."""
    ranges = {TopicPartition("a", 0): OffsetRange(0, 10)}
    shutil.rmtree(Path(path) / "__cluster_metadata-0")
    (Path(path) / "a-0" / "partition.metadata").unlink()
    with duralog.open(path, read_only=True) as store:
        logs = DirectoryLogs(store)
        assert FrameSnapshot.of(logs, ranges) == FrameSnapshot(ranges, {})
        assert FrameSnapshot(ranges, {}).ranges_left(logs, None) == ranges
