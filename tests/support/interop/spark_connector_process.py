"""A Spark application of its own: Spark's Kafka connector through the broker, and `format("duralog")` beside it.

Arguments: the broker's address, its directory, a folder for checkpoints. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from duralog.spark.session import local_session
from oracle.kafka_jars import spark_connector_jars
from tests.support.spark.patient_starts import start_queries_patiently

ROWS = 1000
WAIT_SECONDS = 60


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("concat('key ', id % 20) AS key", "concat('value ', id) AS value")


def by_connector(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def batch(spark: SparkSession, bootstrap: str) -> dict[str, Any]:
    rows = numbers(spark, ROWS)
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "connector-batch").save()
    found = by_connector(spark, bootstrap, "connector-batch").selectExpr("CAST(value AS STRING)", "offset")
    ends = json.dumps({"connector-batch": {"0": 10}})
    part = by_connector(spark, bootstrap, "connector-batch", endingOffsets=ends)
    return {
        "written and read": sorted(row.value for row in found.collect()) == sorted(f"value {n}" for n in range(ROWS)),
        "up to an offset": part.count(),
    }


def stream(spark: SparkSession, bootstrap: str, directory: str, checkpoint: str) -> dict[str, Any]:
    """From the broker's files into another of its topics. The connector's own source does not run on this Spark."""
    source = spark.readStream.format("duralog").option("path", directory).option("subscribe", "connector-batch")
    rows = source.option("startingOffsets", "earliest").load()
    copied = rows.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    for _ in range(2):
        sink = copied.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        sink = sink.option("topic", "connector-stream").option("checkpointLocation", checkpoint)
        assert sink.trigger(availableNow=True).start().awaitTermination(5 * WAIT_SECONDS)
    found = by_connector(spark, bootstrap, "connector-stream").selectExpr("CAST(value AS STRING)")
    return {"streamed": sorted(row.value for row in found.collect()) == sorted(f"VALUE {n}" for n in range(ROWS))}


def beside_the_broker(spark: SparkSession, bootstrap: str, directory: str) -> dict[str, Any]:
    """Reads of the files while the broker writes them: always whole, never less than was acknowledged before."""
    acknowledged = [0]
    enough = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        number = 0
        while not enough.is_set():
            for _ in range(200):
                producer.produce("live", f"value {number}", f"key {number}")
                number += 1
            if producer.flush(WAIT_SECONDS) == 0:
                acknowledged[0] = number
            enough.wait(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    reads: list[dict[str, int]] = []
    try:
        for _ in range(3):
            while acknowledged[0] <= (reads[-1]["read"] if reads else 0) and writer.is_alive():
                enough.wait(0.01)
            before = acknowledged[0]
            rows = spark.read.format("duralog").option("path", directory).option("subscribe", "live").load()
            found = [row.offset for row in rows.select("offset").orderBy("offset").collect()]
            reads.append({"acknowledged": before, "read": len(found), "gaps": int(found != list(range(len(found))))})
    finally:
        enough.set()
        writer.join()
    rows = spark.read.format("duralog").option("path", directory).option("subscribe", "live").load()
    return {"live": reads, "all": rows.count() == acknowledged[0]}


def main(bootstrap: str, directory: str, checkpoint: str) -> None:
    config = {"spark.driver.memory": "1g", "spark.jars": ",".join(map(str, spark_connector_jars()))}
    start_queries_patiently()
    spark = local_session("local[2]", "duralog-connector", config)
    try:
        found = batch(spark, bootstrap) | stream(spark, bootstrap, directory, checkpoint)
        print(json.dumps(found | beside_the_broker(spark, bootstrap, directory)))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
