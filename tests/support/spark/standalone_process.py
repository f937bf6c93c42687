"""A driver on a stand-alone cluster of two workers: reads, streams, writes, runs a job. Prints what it found as JSON.

`test_standalone_cluster` runs it. Arguments: the log directory, and a folder for checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from duralog.spark.jobs import verify
from duralog.spark.session import local_session
from tests.support.spark.patient_starts import start_queries_patiently
from tests.support.spark.standalone_cluster import StandaloneCluster

WAIT_SECONDS = 300


def executor_process(_: object) -> list[int]:
    """The executor that started the daemon that forked this worker."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return [int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:")]


def wait_for_both_executors(spark: SparkSession) -> None:
    """Or the first one might do all of what comes."""
    until = time.monotonic() + WAIT_SECONDS
    # The driver is counted, too.
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
        assert time.monotonic() < until
        time.sleep(0.05)


def totals(spark: SparkSession, path: str, topic: str) -> list[int]:
    frame = spark.read.format("duralog").option("subscribe", topic).option("maxSplitBytes", "1").load(path)
    found = frame.selectExpr("count(*)", "sum(offset)", "count(distinct partition)").first()
    assert found is not None
    return list(found)


def copy_by_stream(spark: SparkSession, path: str, checkpoint: str) -> None:
    """From the topic t to the topic streamed, in a query that starts with an old checkpoint when it is called again."""
    stream = spark.readStream.format("duralog").options(subscribe="t", startingOffsets="earliest").load(path)
    query = (
        stream.select("key", "value", "partition")
        .writeStream.format("duralog")
        .options(topic="streamed", partitions="2", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start(path)
    )
    query.awaitTermination()


def main(path: str, checkpoint: str) -> None:
    start_queries_patiently()
    with StandaloneCluster(workers=2) as cluster:
        spark = local_session(cluster.master, "standalone", cluster.config)
        wait_for_both_executors(spark)
        found: dict[str, object] = {"master": cluster.master, "rows": totals(spark, path, "t")}
        executors = spark.sparkContext.parallelize(range(8), 8).mapPartitions(executor_process).distinct().collect()
        found["executors"] = len(executors)
        source = spark.read.format("duralog").option("subscribe", "t").load(path)
        options = {"topic": "written", "partitions": "2"}
        source.select("key", "value", "partition").repartition(4).write.format("duralog").options(**options).mode(
            "append"
        ).save(path)
        found["written"] = totals(spark, path, "written")
        for _ in range(2):
            copy_by_stream(spark, path, checkpoint)
        found["streamed"] = totals(spark, path, "streamed")
        found["verified"] = verify(spark, path).to_dict()
        spark.stop()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
