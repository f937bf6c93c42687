"""A driver that copies a log into every sink at once until it is killed: LOG TARGETS.

Two streams, to Parquet files and to another log, run beside three threads that repeat `job export`, to Parquet, Delta
and Iceberg. So one kill interrupts each of them somewhere. `finish` does the rest of all that in a session of its own.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Thread

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from duralog.spark.jobs import export
from duralog.spark.spark_versions import HAS_READ_LIMITS
from tests.support.spark.lake_directory import FORMATS

TOPIC = "t"
STREAMS = ("files", "log")
OFFSETS_PER_TRIGGER = 500


def checkpoint_of(targets: Path, stream: str) -> Path:
    return targets / f"{stream}-checkpoint"


def has_started(targets: Path, process: int) -> bool:
    """Whether this driver has started its streams."""
    return (targets / f"started-{process}").exists()


def exporting(targets: Path, process: int, table_format: str) -> Path:
    """A file that is there while this driver exports to the table."""
    return targets / f"exporting-{process}-{table_format}"


def _writer(name: str, frame: DataFrame, targets: Path) -> DataStreamWriter:
    if name == "files":
        writer = frame.selectExpr("partition", "offset", "cast(value as string) as value").writeStream.format("parquet")
    else:
        writer = frame.select("key", "value", "partition").writeStream.format("duralog")
        writer = writer.options(topic=TOPIC, partitions="2")
    return writer.option("checkpointLocation", str(checkpoint_of(targets, name)))


def _start(spark: SparkSession, log: Path, targets: Path, limit: int, *, available_now: bool) -> list[StreamingQuery]:
    options = {"startingOffsets": "earliest"}
    if HAS_READ_LIMITS:
        options["maxOffsetsPerTrigger"] = str(limit)
    queries = []
    for name in STREAMS:
        writer = _writer(name, spark.readStream.format("duralog").options(**options).load(str(log)), targets)
        if available_now:
            writer = writer.trigger(availableNow=True)
        queries.append(writer.start(str(targets / name)))
    return queries


def _export(spark: SparkSession, log: Path, targets: Path, table_format: str) -> None:
    export(spark, str(log), str(targets / table_format), format=table_format, max_slice_bytes=16 << 10)


def finish(spark: SparkSession, log: Path, targets: Path) -> pa.Table:
    """Copy what is left to every sink. Returns what Spark reads of the streamed files: its list of them counts."""
    # Without limits, Spark makes one micro-batch of it: the interrupted one first, and in the next run all the rest.
    for _ in range(1 if HAS_READ_LIMITS else 2):
        for query in _start(spark, log, targets, limit=1 << 40, available_now=True):
            query.awaitTermination()
    for table_format in FORMATS:
        _export(spark, log, targets, table_format)
    return spark.read.parquet(str(targets / "files")).toArrow()


def main(log: Path, targets: Path) -> None:
    from duralog.spark.session import local_session
    from tests.support.spark.patient_starts import start_queries_patiently

    start_queries_patiently()
    spark = local_session("local[2]", "killed", {"spark.driver.memory": "512m"})
    queries = _start(spark, log, targets, OFFSETS_PER_TRIGGER, available_now=False)

    def keep_exporting(table_format: str) -> None:
        marker = exporting(targets, os.getpid(), table_format)
        while True:
            marker.touch()
            _export(spark, log, targets, table_format)
            marker.unlink()

    threads = [Thread(target=keep_exporting, args=[table_format], daemon=True) for table_format in FORMATS]
    for thread in threads:
        thread.start()
    (targets / f"started-{os.getpid()}").touch()
    while all(query.isActive for query in queries) and all(thread.is_alive() for thread in threads):
        time.sleep(0.1)
    raise SystemExit("a query or an export ended by itself")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
