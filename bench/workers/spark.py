"""Work on Spark, timed: WORK READER MASTER DIRECTORY SCRATCH PASSES.

READER is `duralog`, which reads the directory's files, or `kafka`: Spark's own connector, with a broker on the
directory. The session and the broker are warm when a pass begins: one pass more is made, and told first.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.store_data import TOPIC, copied
from bench.workers.avro import schema
from bench.workers.passes import tell
from bench.workers.process_tree import Stopwatch, cpu_seconds, peak_bytes
from duralog.spark import jobs
from duralog.spark.session import local_session
from oracle.kafka_jars import class_path, spark_connector_jars
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import AS_KAFKA_STARTS, KafkaServer

ONE_CORE = "local[1]"
BATCH_ROWS = 100_000
_CONFIG = {"spark.driver.memory": "3g"}
_BROKER = {"num.partitions": 4, "log.retention.ms": -1}
_ROWS = 5_000_000
"""Written by `write`, which cost Spark little to make and are not compressed."""
_KEY_BYTES = 10
_VALUE_BYTES = 90


class Bench(NamedTuple):
    spark: SparkSession
    directory: Path
    scratch: Path
    options: dict[str, str]
    """Of the reader and the writer, `format` among them."""

    def read(self, **options: str) -> DataFrame:
        chosen = {"subscribe": TOPIC, **self.options, **options}
        return self.spark.read.format(chosen.pop("format")).options(**chosen).load()

    def new_folder(self, name: str) -> str:
        """Where nothing is: what a pass before has left there goes first."""
        shutil.rmtree(self.scratch / name, ignore_errors=True)
        return str(self.scratch / name)


def aggregate(bench: Bench) -> int:
    frame = bench.read()
    row = frame.agg(f.count("*"), f.sum(f.length("value")), f.max("timestamp")).first()
    return _checked(row)


def aggregate_values(bench: Bench) -> int:
    """The same, and duralog is asked for the columns of the query only."""
    row = bench.read(columns="value,timestamp").agg(f.count("*"), f.sum(f.length("value")), f.max("timestamp")).first()
    return _checked(row)


def first_query(bench: Bench) -> int:
    """After a query that needs no Python, so that the start of Spark's own machinery is not counted."""
    bench.spark.range(10).count()
    with Stopwatch() as watch:
        watch.amount = aggregate(bench)
    return 0


def micro_batches(bench: Bench) -> int:
    """A stream without a sink: a pass is a micro-batch, from the trigger to its entry in the checkpoint."""
    chosen = {"subscribe": TOPIC, "startingOffsets": "earliest", **bench.options}
    stream = bench.spark.readStream.format(chosen.pop("format")).options(**chosen)
    writer = stream.option("maxOffsetsPerTrigger", BATCH_ROWS).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", bench.new_folder("checkpoint")).trigger(availableNow=True).start()
    cpu = cpu_seconds()
    query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch.numInputRows == BATCH_ROWS]
    cpu = (cpu_seconds() - cpu) / len(batches)
    for batch in batches:
        tell(batch.durationMs["triggerExecution"] / 1000, cpu, BATCH_ROWS, peak_bytes=peak_bytes())
    return 0


def aggregate_offsets(bench: Bench) -> int:
    """Of two columns only: the connector has no way to ask for less than all, and prunes after decoding."""
    frame = bench.read(**({"columns": "offset,timestamp"} if bench.options["format"] == "duralog" else {}))
    row = frame.agg(f.count("*"), f.sum("offset"), f.max("timestamp")).first()
    return _checked(row)


def avro_fields(bench: Bench) -> int:
    """Of two fields of an Avro value. `substring` takes magic byte and id off, as a user of `from_avro` must."""
    if bench.options["format"] == "duralog":
        frame = bench.read(**{"value.format": "avro", "columns": "value.quantity_4,value.price_5"})
    else:
        from pyspark.sql.avro.functions import from_avro

        payload = f.expr("substring(value, 6, length(value) - 5)")
        frame = bench.read().select(from_avro(payload, json.dumps(schema(10))).alias("value"))
    row = frame.agg(f.count("value"), f.sum("value.quantity_4"), f.max("value.price_5")).first()
    return _checked(row)


def parquet(bench: Bench) -> int:
    target = bench.new_folder("parquet")
    bench.read().write.option("compression", "zstd").parquet(target)
    return _rows_of(target)


def export(bench: Bench) -> int:
    target = bench.new_folder("export")
    jobs.export(bench.spark, str(bench.directory), target, topics=[TOPIC])
    return _rows_of(target)


def debezium(bench: Bench) -> int:
    """A full snapshot of change events, to Delta. The amount is the records of the log."""
    target = bench.new_folder("debezium")
    report = jobs.snapshot(bench.spark, str(bench.directory), target, topics=[TOPIC], format="delta", unwrap="debezium")
    [table] = report.tables
    if not table.live_keys or table.bad_records:
        raise SystemExit(f"{table.live_keys} rows, {table.bad_records} of them bad")
    return table.records_read


def write(bench: Bench) -> int:
    # Pads as long as what they fill: Spark copies a shorter one letter by letter, which took half of its time.
    number = f.lpad(f.col("id").cast("string"), _KEY_BYTES, "0" * _KEY_BYTES)
    rows = bench.spark.range(_ROWS, numPartitions=4).select(
        number.cast("binary").alias("key"),
        f.concat(number, f.lit("x" * (_VALUE_BYTES - _KEY_BYTES))).cast("binary").alias("value"),
    )
    chosen = {"topic": "written", **bench.options}
    if chosen["format"] == "duralog":
        chosen |= {"path": bench.new_folder("written"), "partitions": "4"}
    rows.write.format(chosen.pop("format")).options(**chosen).mode("append").save()
    return _ROWS


def compact(bench: Bench) -> int:
    """The amount is the bytes that were there before. The copy is on disk before the clock runs."""
    directory = bench.new_folder("compacted")
    copied(bench.directory, Path(directory))
    size = sum(path.stat().st_size for path in Path(directory).glob(f"{TOPIC}-*/*.log"))
    with Stopwatch() as watch:
        jobs.compact(bench.spark, directory, topics=[TOPIC])
        watch.amount = size
    return 0


WORKS: dict[str, Callable[[Bench], int]] = {
    work.__name__: work
    for work in (
        aggregate,
        aggregate_values,
        aggregate_offsets,
        avro_fields,
        first_query,
        micro_batches,
        parquet,
        export,
        debezium,
        write,
        compact,
    )
}
_TIMES_ITSELF = (compact, first_query, micro_batches)


def _rows_of(target: str) -> int:
    """By what the files say at their ends, so that it takes no time to speak of."""
    return int(pyarrow.dataset.dataset(target, format="parquet").count_rows())


def _checked(row: object) -> int:
    if not isinstance(row, tuple) or not row[0]:
        raise SystemExit("nothing was read")
    return int(row[0])


@contextmanager
def _bench(reader: str, master: str, directory: Path, scratch: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        if reader == "kafka":
            kafka = stack.enter_context(KafkaProcess(class_path()))
            server = stack.enter_context(KafkaServer(kafka, directory, configs=_BROKER, java=AS_KAFKA_STARTS))
            server.topics()
            config = {**_CONFIG, "spark.jars": ",".join(map(str, spark_connector_jars()))}
            options = {"format": "kafka", "kafka.bootstrap.servers": server.bootstrap}
        else:
            config = _CONFIG
            options = {"format": "duralog", "path": str(directory)}
        spark = local_session(master, "bench", config)
        stack.callback(spark.stop)
        yield Bench(spark, directory, scratch, options)


def main(name: str, reader: str, master: str, directory: str, scratch: str, passes: int) -> None:
    work = WORKS[name]
    if work is compact and master == ONE_CORE:
        # The JVM's own threads would take the other one.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with _bench(reader, master, Path(directory), Path(scratch)) as bench:
        for _ in range(1 + passes):
            if work in _TIMES_ITSELF:
                work(bench)
                continue
            with Stopwatch() as watch:
                watch.amount = work(bench)


if __name__ == "__main__":
    name, reader, master, directory, scratch, passes = sys.argv[1:]
    main(name, reader, master, directory, scratch, int(passes))
