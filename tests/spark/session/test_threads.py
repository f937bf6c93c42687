"""Writes from threads of Python, one topic each, as a job that fans out makes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

import duralog

pytestmark = pytest.mark.spark

ROWS = 10


def values(path: Path, topic: str) -> list[bytes | None]:
    with duralog.open(path, read_only=True) as store:
        return sorted(record.value for record in store.partition(topic, 0).read(0))  # type: ignore[type-var]


def numbered(spark: SparkSession, topic: str, path: Path) -> None:
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("duralog").option("topic", topic).mode("append").save(str(path))


@pytest.mark.parametrize("kind", [Thread, InheritableThread])
def test_a_write_from_another_thread(spark: SparkSession, tmp_path: Path, kind: Callable[..., Thread]) -> None:
    thread = kind(target=numbered, args=(spark, "t", tmp_path))
    thread.start()
    thread.join()
    assert values(tmp_path, "t") == [b"%d" % row for row in range(ROWS)]


def test_writes_from_a_pool_of_threads(spark: SparkSession, tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(4)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda topic: numbered(spark, topic, tmp_path), topics))
    for topic in topics:
        assert len(values(tmp_path, topic)) == ROWS


def test_a_stream_that_is_started_in_another_thread(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    numbered(spark, "from", log)

    def copy() -> None:
        stream = spark.readStream.format("duralog").options(subscribe="from", startingOffsets="earliest").load(str(log))
        writer = stream.select("value").writeStream.format("duralog").option("topic", "to")
        query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start(str(log))
        query.awaitTermination()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy).result()
    assert values(log, "to") == values(log, "from")


def test_a_write_of_each_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Spark calls such a function in a thread of its own."""
    log = tmp_path / "log"
    numbered(spark, "from", log)

    def write(batch: DataFrame, number: int) -> None:
        batch.select("value").write.format("duralog").option("topic", "to").mode("append").save(str(log))

    stream = spark.readStream.format("duralog").options(subscribe="from", startingOffsets="earliest").load(str(log))
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    writer.foreachBatch(write).start().awaitTermination()
    assert values(log, "to") == values(log, "from")


def test_a_write_runs_with_the_session_of_its_frame(spark: SparkSession, tmp_path: Path) -> None:
    """And leaves the session of the thread alone."""
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")

    def write() -> SparkSession | None:
        numbered(other, "t", tmp_path)
        return SparkSession.getActiveSession()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write).result() is None
    spark.createDataFrame([(1,)], "id int")  # This makes it the session of this thread.
    numbered(other, "t", tmp_path)
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active.conf.get("spark.sql.session.timeZone") == "UTC"
    assert len(values(tmp_path, "t")) == 2 * ROWS
