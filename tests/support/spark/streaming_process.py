"""A process that streams a log into a folder of JSON files until somebody kills it. Arguments: log, output, checkpoint.

`test_stream_killed` runs it, and starts the same query again afterwards.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

OFFSETS_PER_TRIGGER = 20


def start_query(
    spark: SparkSession, log: str, output: str, checkpoint: str, *, limit: int, available_now: bool = False
) -> StreamingQuery:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(limit)}
    frame = spark.readStream.format("duralog").options(**options).load(log)
    writer = frame.selectExpr("partition", "offset", "cast(value as string) as value").writeStream.format("json")
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", checkpoint).start(output)


if __name__ == "__main__":
    from duralog.spark.session import local_session
    from tests.support.spark.patient_starts import start_queries_patiently

    start_queries_patiently()
    session = local_session("local[1]", "killed", {"spark.driver.memory": "512m"})
    start_query(session, *sys.argv[1:4], limit=OFFSETS_PER_TRIGGER).awaitTermination()
