"""A session on Spark's local cluster, with executors in processes of their own. Prints what it found as JSON.

`test_local_cluster` runs it. Argument: the log directory.
"""

from __future__ import annotations

import json
import os
import sys
import time

from pyspark.sql import SparkSession

from duralog.spark.jobs import verify
from duralog.spark.session import local_session

WAIT_SECONDS = 300


def daemon_process(_: object) -> list[int]:
    return [os.getppid()]


def wait_for_both_executors(spark: SparkSession) -> None:
    """Or the first one might do all of what comes."""
    until = time.monotonic() + WAIT_SECONDS
    # The driver is counted, too.
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:
        assert time.monotonic() < until
        time.sleep(0.05)


def main(path: str) -> None:
    settings = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = local_session("local-cluster[2,1,1024]", "local-cluster", settings)
    frame = spark.read.format("duralog").option("maxSplitBytes", "1").load(path)
    total = frame.selectExpr("count(*)", "sum(offset)", "count(distinct partition)").first()
    assert total is not None
    report = verify(spark, path)
    wait_for_both_executors(spark)
    daemons = spark.sparkContext.parallelize(range(8), 8).mapPartitions(daemon_process).distinct().collect()
    host = spark.sparkContext.getConf().get("spark.driver.host")
    found = {"rows": list(total), "verified": report.to_dict(), "daemons": len(daemons), "host": host}
    spark.stop()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
