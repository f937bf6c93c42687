"""What differs between versions of Spark: what an older one lacks is refused in a sentence, or done in another way.

`make test-oldest-spark` runs the tests of this folder that any version must pass with the oldest version. Here its ways
are tried with the newest: the reader of a stream is asked as Spark 4.0 and 4.1 ask it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession, functions

import duralog
from duralog import OffsetOutOfRange, Record, Store
from duralog.spark import spark_versions
from duralog.spark.data_source import DuralogDataSource
from duralog.spark.option_text import InvalidOption
from duralog.spark.source import batch_read, unlimited_stream
from duralog.spark.source.read_options import ReadOptions
from duralog.spark.source.spark_schema import schema_of
from duralog.spark.source.unlimited_stream import UnlimitedStreamReader, stream_reader_of
from duralog.spark.spark_versions import repartition_by_hash_of_id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with duralog.open(tmp_path / "logs", config={"log.segment.delete.delay.ms": 0}) as opened:
        opened.create_topic("a", partitions=2)
        yield opened


def fill(store: Store, partition: int, count: int) -> None:
    store.partition("a", partition).append([Record(value=b"v") for _ in range(count)])


def options(store: Store, **given: str) -> ReadOptions:
    return ReadOptions.of({"path": store.path, **given}, streaming=True)


def reader(store: Store, **given: str) -> UnlimitedStreamReader:
    parsed = options(store, **given)
    return UnlimitedStreamReader(schema_of(parsed), parsed)


def rows(of: UnlimitedStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    batches = [batch for task in of.partitions(start, end) for batch in of.read(task)]
    return sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())


# A stream on Spark 4.0 and 4.1: the end comes first, then where a new query starts, then the tasks


def test_a_new_query_from_the_earliest_record(store: Store) -> None:
    fill(store, 0, 2)
    query = reader(store, startingOffsets="earliest")
    end = query.latestOffset()
    assert end == {"a": {"0": 2, "1": 0}}
    assert rows(query, query.initialOffset(), end) == [(0, 0), (0, 1)]
    fill(store, 1, 1)
    later = query.latestOffset()
    assert rows(query, end, later) == [(1, 0)]


def test_a_new_query_from_the_end_loses_nothing_in_between(store: Store) -> None:
    fill(store, 0, 2)
    query = reader(store)
    first_end = query.latestOffset()
    fill(store, 0, 1)  # Before Spark asks where the query starts.
    start = query.initialOffset()
    assert rows(query, start, first_end) == []
    assert rows(query, first_end, query.latestOffset()) == [(0, 2)]


def test_a_driver_that_died_before_the_first_batch(store: Store) -> None:
    fill(store, 0, 2)
    first_end = reader(store).latestOffset()
    fill(store, 0, 1)
    again = reader(store)
    assert rows(again, again.initialOffset(), first_end) == []
    assert rows(again, first_end, again.latestOffset()) == [(0, 2)]


def test_a_query_takes_up_its_checkpoint(store: Store) -> None:
    fill(store, 0, 5)
    query = reader(store, startingOffsets="earliest")
    end = query.latestOffset()
    assert rows(query, {"a": {"0": 3, "1": 0}}, end) == [(0, 3), (0, 4)]


def test_a_new_partition_is_read_from_its_beginning(store: Store) -> None:
    fill(store, 0, 1)
    query = reader(store)
    end = query.latestOffset()
    assert rows(query, query.initialOffset(), end) == []
    store.add_partitions("a", 3)
    fill(store, 2, 2)
    assert rows(query, end, query.latestOffset()) == [(2, 0), (2, 1)]


def test_a_log_that_ends_before_the_query_is_data_loss(store: Store) -> None:
    fill(store, 0, 2)
    query = reader(store)
    end = query.latestOffset()
    with pytest.raises(OffsetOutOfRange, match=r"a-0 ends at offset 2, but the query was at 9"):
        query.partitions({"a": {"0": 9, "1": 0}}, end)
    tolerant = reader(store, failOnDataLoss="false")
    assert rows(tolerant, {"a": {"0": 9, "1": 0}}, tolerant.latestOffset()) == []


def test_a_place_where_the_query_stood_is_checked_even_if_it_is_where_it_started(store: Store) -> None:
    fill(store, 0, 2)
    query = reader(store)
    first_end = query.latestOffset()
    start = query.initialOffset()
    assert start == first_end
    assert rows(query, start, first_end) == []
    with pytest.raises(OffsetOutOfRange, match="a-0 ends at offset 1"):
        query.partitions(start, {"a": {"0": 1, "1": 0}})


def test_a_partition_that_is_gone_is_data_loss(store: Store) -> None:
    fill(store, 0, 2)
    query = reader(store)
    end = query.latestOffset()
    query.partitions(query.initialOffset(), end)
    store.delete_topic("a")
    later = query.latestOffset()
    with pytest.raises(OffsetOutOfRange, match="a-0 is gone"):
        query.partitions(end, later)


def test_a_topic_that_was_created_again_is_data_loss(store: Store) -> None:
    fill(store, 0, 2)
    query = reader(store)
    query.latestOffset()
    store.delete_topic("a")
    store.create_topic("a", partitions=2)
    fill(store, 0, 2)
    with pytest.raises(OffsetOutOfRange, match="the topic a was deleted and created again"):
        query.latestOffset()


# A shuffle by the number of a partition on Spark 4.0


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_rows_go_to_the_partition_that_they_name(spark: SparkSession, partitions: int) -> None:
    frame = spark.range(0, 200, 1, 3).selectExpr("cast(id as int) as target")
    shuffled = repartition_by_hash_of_id(frame, partitions, "target")
    rows = shuffled.select("target", functions.spark_partition_id().alias("found")).collect()
    assert sorted(row.target for row in rows) == list(range(200))
    assert [row for row in rows if row.found != row.target % partitions] == []


# What is refused


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"])
def test_limits_need_a_spark_that_knows_them(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(unlimited_stream, "HAS_READ_LIMITS", False)
    parsed = options(store, **{name: "5"})
    sentence = (
        f"option {name} needs Spark 4.2 or newer: Spark {pyspark.__version__} does not report the position of a query"
    )
    with pytest.raises(InvalidOption, match=sentence):
        stream_reader_of(schema_of(parsed), parsed)
    source = DuralogDataSource({"path": store.path, name: "5"})
    refused = source.streamReader(source.schema())
    with pytest.raises(InvalidOption, match=sentence):
        refused.latestOffset()  # type: ignore[call-arg]


def test_without_limits_the_reader_of_an_older_spark_is_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unlimited_stream, "HAS_READ_LIMITS", False)
    parsed = options(store)
    assert type(stream_reader_of(schema_of(parsed), parsed)) is UnlimitedStreamReader


def test_pruning_needs_a_spark_that_gives_filters(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_read, "HAS_FILTERS", False)
    source = DuralogDataSource({"path": store.path, "pruneByFilters": "true"})
    sentence = f"option pruneByFilters needs Spark 4.1 or newer: Spark {pyspark.__version__} gives a source none"
    with pytest.raises(InvalidOption, match=sentence):
        source.reader(source.schema())


def test_a_spark_without_python_sources_is_refused() -> None:
    pretend = """
import sys, pyspark
pyspark.__version__ = "3.5.6"
sys.modules["pyspark.sql.datasource"] = None
from duralog.errors import DuralogError
try:
    import duralog.spark.session
except DuralogError as error:
    assert isinstance(error, ImportError)
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", pretend], capture_output=True, text=True, check=True)
    assert done.stdout == ("duralog needs PySpark 4.0 or newer, this is 3.5.6: it has no Data Source API for Python\n")


@pytest.mark.parametrize(
    ("version", "warned"), [("4.0.5", 0), ("4.3.9", 0), ("4.4.0", 1), ("5.0.0.dev1", 1), ("vendor", 0)]
)
def test_an_untested_version_is_named_and_used(version: str, warned: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        spark_versions.warn_if_untested(version)
    expected = f"Spark {version} is newer than 4.3, the newest that duralog is tested with"
    assert [record.getMessage() for record in caplog.records] == [expected] * warned
