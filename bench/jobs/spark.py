"""The pipeline on Spark, against Spark's own Kafka connector with a broker on the same directory."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import (
    MEGABYTES,
    MILLION_RECORDS,
    PEAK_MEGABYTES,
    PERCENT_OF_BYTES,
    SECONDS,
    Contender,
    Job,
    Run,
    Setting,
    Target,
)
from bench.workers.passes import WARM_UP

_BOTH_CORES = "local[2]"
_WEEK_FOR_RECORDS = 11 / 9
"""11 million events, 2 GB, where a segment of the other jobs has 9 million records."""
_ORDERS_FOR_RECORDS = 10 / 9
_CHANGES_FOR_RECORDS = 5 / 9
"""5 million changes."""
_CHANGED_PARTITIONS = 2
_COMPACTED_PARTITIONS = 8
_COMPACTED_FOR_RECORDS = 2
"""18 million events, 3.3 GB, or a compaction on two cores would be over in a second."""
_PLANNED_SEGMENTS = 100_000
_FIRST_QUERY_RECORDS = 100_000
_STREAMED_RECORDS = 2_000_000
_WARM_UP_BATCHES = 5
_MANY_PARTITIONS = 2000
_FEW_PARTITIONS = 10
_CONNECTOR = "Spark's Kafka connector"
_WARM_UP_PASSES = {"aggregate": 2, "aggregate_values": 2, "aggregate_offsets": 2}
"""Of work for which the JVM compiles until it has seen some 20 million rows. One pass of all others."""


def _on_week(work: str, reader: str, *, master: str = _BOTH_CORES, passes: int = 2) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_week(round(setting.records * _WEEK_FOR_RECORDS))
        if reader == "kafka":
            # The broker makes it its own. duralog only reads.
            directory = store_data.copied(directory, setting.scratch / "log")
        return _run(work, reader, master, str(directory), setting, passes)

    return prepare


def _scanned(work: str) -> Callable[[Setting], Run]:
    """The events of a week without Spark."""

    def prepare(setting: Setting) -> Run:
        directory = store_data.of_week(round(setting.records * _WEEK_FOR_RECORDS))
        command = [sys.executable, "-m", "bench.workers.scan_table", work, str(directory), store_data.TOPIC]
        return Run(command=[*command, str(setting.passes)], warm_up=WARM_UP)

    return prepare


def _on_orders(work: str, reader: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_orders(round(setting.records * _ORDERS_FOR_RECORDS))
        if reader == "kafka":
            directory = store_data.copied(directory, setting.scratch / "log")
        return _run(work, reader, _BOTH_CORES, str(directory), setting, 2)

    return prepare


def _on_changes(share: float, passes: int) -> Callable[[Setting], Run]:
    """Change events, this many times the records of a segment."""

    def prepare(setting: Setting) -> Run:
        directory = store_data.of_changes(round(setting.records * share), _CHANGED_PARTITIONS)
        return _run("debezium", "duralog", _BOTH_CORES, str(directory), setting, passes)

    return prepare


def _on_events(work: str, reader: str, records: int, *, warm_up: int) -> Callable[[Setting], Run]:
    """Work that is done once, on a directory of its own size."""

    def prepare(setting: Setting) -> Run:
        directory = store_data.of_week(min(records, setting.records))
        if reader == "kafka":
            directory = store_data.copied(directory, setting.scratch / "log")
        run = _run(work, reader, _BOTH_CORES, str(directory), setting, 0)
        return Run(command=run.command, warm_up=warm_up)

    return prepare


def _compaction(master: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_keyed(setting.records * _COMPACTED_FOR_RECORDS, _COMPACTED_PARTITIONS)
        return _run("compact", "duralog", master, str(directory), setting, 1)

    return prepare


def _run(work: str, reader: str, master: str, directory: str, setting: Setting, passes: int) -> Run:
    warm_up = _WARM_UP_PASSES.get(work, 1)
    # The worker makes one pass more by itself.
    arguments = [work, reader, master, directory, str(setting.scratch), str(passes + warm_up - 1)]
    return Run(command=[sys.executable, "-m", "bench.workers.spark", *arguments], warm_up=warm_up)


def _plan_segments(setting: Setting) -> Run:
    count = _PLANNED_SEGMENTS if setting.records >= 1_000_000 else 1_000
    directory = store_data.of_many_partitions(count // store_data.SEGMENTS_EACH)
    return Run(command=[sys.executable, "-m", "bench.workers.spark_plan", "segments", str(directory), "1"])


def _plan_hour(setting: Setting) -> Run:
    directory = store_data.of_week(round(setting.records * _WEEK_FOR_RECORDS))
    return Run(command=[sys.executable, "-m", "bench.workers.spark_plan", "hour", str(directory), "1"])


def _small_write(partitions: int) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        arguments = [str(setting.scratch / "log"), str(partitions), "5"]
        return Run(command=[sys.executable, "-m", "bench.workers.spark_small_write", *arguments], warm_up=1)

    return prepare


_WEEK = (
    "The events of a week, 11 million in a full run (2 GB, four partitions, uncompressed), on Spark with both cores "
    "(`local[2]`), from the page cache. duralog reads the files. The connector reads from an Apache Kafka broker that "
    "runs on a copy of the same directory with the JVM options of its own start script. The session and the broker "
    "are warm: each has done the same work before, once or twice. CPU and memory are those of all processes together. "
)

JOBS = (
    Job(
        name="spark-read",
        title="Spark: aggregate over all rows",
        unit=MILLION_RECORDS,
        about=_WEEK
        + "`count(*)`, `sum(length(value))` and `max(timestamp)`. *two columns*: duralog is asked for `value` and "
        "`timestamp` with the option `columns`, since Spark does not tell a source in Python what a query needs.",
        contenders=(
            Contender("duralog", _on_week("aggregate", "duralog")),
            Contender("duralog, two columns", _on_week("aggregate_values", "duralog")),
            Contender(_CONNECTOR, _on_week("aggregate", "kafka"), is_peer=True),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 4.0, than=_CONNECTOR),),
        rounds=2,
    ),
    Job(
        name="scan-duckdb",
        title="DuckDB over a scan: aggregate over all rows",
        unit=MILLION_RECORDS,
        about="The query of `spark-read` on the same events: count, sum of the lengths of the values, newest time. "
        "duralog: `duralog.scan(...).to_duckdb()`, on both cores, no Spark and no broker. *two columns*: the scan has "
        "the columns `value` and `timestamp` alone, since DuckDB does not tell a stream what a query needs.",
        contenders=(
            Contender("duralog", _scanned("duckdb")),
            Contender("duralog, two columns", _scanned("duckdb_two_columns")),
            Contender(_CONNECTOR, _on_week("aggregate", "kafka"), is_peer=True),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 8.0, than=_CONNECTOR), Target("duralog, two columns", 8.0, than=_CONNECTOR)),
        rounds=2,
    ),
    Job(
        name="spark-first",
        title="Spark: the first query of a session",
        unit=SECONDS,
        about=(
            f"The aggregate over all rows of {_FIRST_QUERY_RECORDS:,} events in a new session on both cores, after "
            "`range(10).count()`. Python's part: Spark starts one process to create the source, one to plan, and one "
            "that forks the workers, one after the other."
        ),
        contenders=(
            Contender("duralog", _on_events("first_query", "duralog", _FIRST_QUERY_RECORDS, warm_up=0)),
            Contender(_CONNECTOR, _on_events("first_query", "kafka", _FIRST_QUERY_RECORDS, warm_up=0), is_peer=True),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 4.0),),
        rounds=3,
    ),
    Job(
        name="spark-micro-batch",
        title="Spark: a micro-batch of 100,000 records",
        unit=SECONDS,
        about=(
            "A stream over the events of four partitions with `maxOffsetsPerTrigger` 100,000, to the sink `noop`, on "
            "both cores: from the trigger to the entry in the checkpoint, as Spark reports it. The median of the "
            f"batches after the first {_WARM_UP_BATCHES}."
        ),
        contenders=(
            Contender("duralog", _on_events("micro_batches", "duralog", _STREAMED_RECORDS, warm_up=_WARM_UP_BATCHES)),
            Contender(
                _CONNECTOR,
                _on_events("micro_batches", "kafka", _STREAMED_RECORDS, warm_up=_WARM_UP_BATCHES),
                is_peer=True,
            ),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 0.4),),
        rounds=2,
    ),
    Job(
        name="spark-read-offsets",
        title="Spark: aggregate over offsets and timestamps",
        unit=MILLION_RECORDS,
        about=_WEEK + "`count(*)`, `sum(offset)` and `max(timestamp)`; duralog is asked for these two columns only.",
        contenders=(
            Contender("duralog", _on_week("aggregate_offsets", "duralog")),
            Contender(_CONNECTOR, _on_week("aggregate_offsets", "kafka"), is_peer=True),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 6.0, than=_CONNECTOR),),
        rounds=2,
    ),
    Job(
        name="spark-avro",
        title="Spark: aggregate over two fields of Avro values",
        unit=MILLION_RECORDS,
        about="10 million orders in a full run, Avro values of ten fields and about 90 bytes with the ids of a schema "
        "registry, in four partitions, uncompressed. `count(value)`, `sum(value.quantity)` and `max(value.price)`, on "
        "both cores (`local[2]`), from the page cache. duralog decodes the two fields (`value.format`, `columns`) by "
        "the schema in `_schemas`. Spark: `from_avro` of its own library on what its Kafka connector reads, the first "
        "five bytes cut off by `substring`, the schema given as text; Spark hands it only the two fields, too. Session "
        "and broker are warm. CPU and memory are those of all processes together.",
        contenders=(
            Contender("duralog", _on_orders("avro_fields", "duralog")),
            Contender(_CONNECTOR, _on_orders("avro_fields", "kafka"), is_peer=True),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 2.0, than=_CONNECTOR),),
        rounds=2,
    ),
    Job(
        name="spark-debezium",
        title="Spark: Debezium's changes to a Delta table",
        unit=MILLION_RECORDS,
        about="`job snapshot --unwrap debezium`, a full one, to Delta: 5 million changes in a full run, of a table "
        "with 400,000 rows. They are JSON of about 420 bytes without schemas, in two partitions; one in fifty "
        "is a delete, followed by a tombstone. On both cores (`local[2]`), from the page cache; the session is warm. "
        "Keys are read first; only the last event of each key is decoded.",
        contenders=(Contender("duralog", _on_changes(_CHANGES_FOR_RECORDS, 2)),),
        targets=(Target("duralog", 1.0),),
        rounds=2,
    ),
    Job(
        name="spark-debezium-memory",
        title="Spark: memory of a table of 1 and of 20 million changes",
        unit=PEAK_MEGABYTES,
        about="The work of `spark-debezium` on 1 and on 20 million changes of the same 400,000 rows: all processes "
        "together, the JVM included. What a snapshot needs depends on the keys, not on the changes.",
        contenders=(
            Contender("duralog, 1 M changes", _on_changes(_CHANGES_FOR_RECORDS / 5, 1)),
            Contender("duralog, 20 M changes", _on_changes(_CHANGES_FOR_RECORDS * 4, 1)),
        ),
        compare_with="duralog, 1 M changes",
        targets=(Target("duralog, 20 M changes", 0.8, than="duralog, 1 M changes"),),
        rounds=1,
    ),
    Job(
        name="spark-parquet",
        title="Spark: all rows to Parquet",
        unit=MILLION_RECORDS,
        about=_WEEK + "To Parquet with zstd: through `DataFrame.write`, and by the job `export`, whose tasks write it.",
        contenders=(
            Contender("duralog, write", _on_week("parquet", "duralog", passes=1)),
            Contender("duralog, job export", _on_week("export", "duralog", passes=1)),
            Contender(f"{_CONNECTOR}, write", _on_week("parquet", "kafka", passes=1), is_peer=True),
        ),
        compare_with=f"{_CONNECTOR}, write",
        targets=(
            Target("duralog, write", 1.5, than=f"{_CONNECTOR}, write"),
            Target("duralog, job export", 5.0, than=f"{_CONNECTOR}, write"),
        ),
        rounds=2,
    ),
    Job(
        name="spark-hour",
        title="Spark: read one hour of a week",
        unit=PERCENT_OF_BYTES,
        about=(
            "The share of a week's bytes that a read with `startingTimestamp` and `endingTimestamp` an hour apart "
            "plans to read."
        ),
        contenders=(Contender("duralog", _plan_hour),),
        targets=(Target("duralog", 2.0),),
        rounds=1,
    ),
    Job(
        name="spark-plan",
        title="Spark: plan 100,000 segments",
        unit=SECONDS,
        about="10,000 partitions of ten segments: the time until the list of slices is ready.",
        contenders=(Contender("duralog", _plan_segments),),
        targets=(Target("duralog", 20.0),),
        rounds=2,
    ),
    Job(
        name="spark-write",
        title="Spark: write rows as segments",
        unit=MILLION_RECORDS,
        about=(
            "5 million rows of 100 bytes (key 10, value 90), made by Spark, into a new topic of four partitions, on "
            "both cores. Tasks encode and stage them, the driver commits and syncs. The connector sends them to an "
            "Apache Kafka broker, which does not sync."
        ),
        contenders=(
            Contender("duralog", _on_week("write", "duralog")),
            Contender(_CONNECTOR, _on_week("write", "kafka"), is_peer=True),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 1.0),),
        rounds=2,
    ),
    Job(
        name="spark-commit",
        title="Spark: write ten rows into a directory of 2,000 partitions",
        unit=SECONDS,
        about=(
            "What duralog does in a small `save()`, without the rest of Spark: ten rows for ten partitions. The clock "
            "runs while the driver looks up the topic, a task stages the rows, and the driver appends and syncs them "
            f"and closes the directory of {_MANY_PARTITIONS:,} partitions cleanly. Only ten partitions are "
            f"loaded. The same into a directory of {_FEW_PARTITIONS}. CPU seconds say more than the time, which is "
            "that of the disk's syncs."
        ),
        contenders=(
            Contender("duralog", _small_write(_MANY_PARTITIONS)),
            Contender(f"duralog, {_FEW_PARTITIONS} partitions", _small_write(_FEW_PARTITIONS)),
        ),
        compare_with=f"duralog, {_FEW_PARTITIONS} partitions",
        targets=(Target("duralog", 0.3),),
        rounds=2,
    ),
    Job(
        name="spark-compact",
        title="Spark: compact eight partitions",
        unit=MEGABYTES,
        about=(
            "The job `compact` on a copy of a directory of eight partitions (18 million events, 3.3 GB in a full run); "
            "one record in nine is the last of its key. On one core (`local[1]` with all its processes bound to it) "
            "and on two (`local[2]`). The time that Spark needs to start a job and its tasks, and the JVM to compile, "
            "is counted: about half a second of CPU, whatever the data size."
        ),
        contenders=(
            Contender("duralog, 1 core", _compaction("local[1]")),
            Contender("duralog, 2 cores", _compaction(_BOTH_CORES)),
        ),
        compare_with="duralog, 1 core",
        targets=(Target("duralog, 2 cores", 1.7, than="duralog, 1 core"),),
        rounds=2,
    ),
    Job(
        name="spark-scaling",
        title="Spark: aggregate on one core, two cores, two workers",
        unit=MILLION_RECORDS,
        about=_WEEK + "The aggregate over all rows. `local-cluster`: two workers with one core each, in two JVMs.",
        contenders=(
            Contender("duralog, local[1]", _on_week("aggregate", "duralog", master="local[1]")),
            Contender("duralog, local[2]", _on_week("aggregate", "duralog")),
            Contender("duralog, local-cluster", _on_week("aggregate", "duralog", master="local-cluster[2,1,1536]")),
        ),
        compare_with="duralog, local[1]",
        rounds=2,
    ),
)
