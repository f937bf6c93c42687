"""A client of Spark Connect, and a server on loopback. Prints what it found as JSON.

`test_connect` runs it. Arguments: the log directory, and a folder for checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

import duralog
from duralog.errors import DuralogError
from duralog.spark import register
from duralog.spark.jobs import verify


def append(path: str, count: int) -> None:
    with duralog.open(path) as store:
        store.partition("t", 0).append([duralog.Record(value=b"later")] * count)


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def session() -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.Builder().remote("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress", "spark.connect.grpc.binding.address"):
        builder = builder.config(name, "127.0.0.1")
    return builder.getOrCreate()


def main(path: str, checkpoint: str) -> None:
    spark = session()
    found: dict[str, object] = {}
    for _ in range(2):
        register(spark)
    frame = spark.read.format("duralog").option("subscribe", "t").load(path)
    frame.createOrReplaceTempView("of_frame")
    spark.sql(f"CREATE TEMPORARY VIEW of_sql USING duralog OPTIONS (path '{path}', subscribe 't')")
    found["rows"] = [frame.count(), frame.where("offset >= 2").count(), frame.count()]
    append(path, 5)
    # As for a frame that the server has forgotten.
    spark.conf.set("spark.connect.session.planCache.enabled", "false")
    found["views"] = [
        rows
        for view in ("of_frame", "of_sql")
        for rows in (spark.table(view).count(), spark.table(view).where("offset >= 2").count())
    ]
    found["loaded again"] = frame.count()

    target = frame.select("value").write.format("duralog").option("topic", "written")
    target.mode("append").save(path)
    found["written"] = spark.read.format("duralog").option("subscribe", "written").load(path).count()
    stream = spark.readStream.format("duralog").options(subscribe="t", startingOffsets="earliest").load(path)
    for _ in range(2):
        query = (
            stream.select("value")
            .writeStream.format("duralog")
            .options(topic="streamed", checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start(path)
        )
        query.awaitTermination()
    found["streamed"] = spark.read.format("duralog").option("subscribe", "streamed").load(path).count()
    try:
        verify(spark, path)
    except DuralogError as error:
        found["job"] = str(error)
    found["error"] = error_of(spark.read.format("duralog").load(f"{path}/nowhere").count)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
