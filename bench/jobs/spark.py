"""The pipeline on Spark, against Spark's own Kafka connector with a broker on the same directory."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import store_data
from bench.job import MEGABYTES, MILLION_RECORDS, PERCENT_OF_BYTES, SECONDS, Contender, Job, Run, Setting, Target

_BOTH_CORES = "local[2]"
_WEEK_FOR_RECORDS = 11 / 9
"""11 million events, 2 GB, where a segment of the other jobs has 9 million records."""
_COMPACTED_PARTITIONS = 8
_COMPACTED_FOR_RECORDS = 2
"""18 million events, 3.3 GB, or a compaction on two cores would be over in a second."""
_PLANNED_SEGMENTS = 100_000
_CONNECTOR = "Spark's Kafka connector"


def _on_week(work: str, reader: str, *, master: str = _BOTH_CORES, passes: int = 2) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_week(round(setting.records * _WEEK_FOR_RECORDS))
        if reader == "kafka":
            # The broker makes it its own. duralog only reads.
            directory = store_data.copied(directory, setting.scratch / "log")
        return _run(work, reader, master, str(directory), setting, passes)

    return prepare


def _compaction(master: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        directory = store_data.of_keyed(setting.records * _COMPACTED_FOR_RECORDS, _COMPACTED_PARTITIONS)
        return _run("compact", "duralog", master, str(directory), setting, 1)

    return prepare


def _run(work: str, reader: str, master: str, directory: str, setting: Setting, passes: int) -> Run:
    arguments = [work, reader, master, directory, str(setting.scratch), str(passes)]
    return Run(command=[sys.executable, "-m", "bench.workers.spark", *arguments], warm_up=1)


def _plan_segments(setting: Setting) -> Run:
    count = _PLANNED_SEGMENTS if setting.records >= 1_000_000 else 1_000
    directory = store_data.of_many_partitions(count // store_data.SEGMENTS_EACH)
    return Run(command=[sys.executable, "-m", "bench.workers.spark_plan", "segments", str(directory), "1"])


def _plan_hour(setting: Setting) -> Run:
    directory = store_data.of_week(round(setting.records * _WEEK_FOR_RECORDS))
    return Run(command=[sys.executable, "-m", "bench.workers.spark_plan", "hour", str(directory), "1"])


_WEEK = (
    "The events of a week, 11 million in a full run (2 GB, four partitions, uncompressed), on Spark with both cores "
    "(`local[2]`). duralog reads the files; the connector reads from Apache Kafka, a broker that runs on a copy of the "
    "same directory with the memory and the collector of its own start script. From the page cache. The session and "
    "the broker are warm: each has done the same once before. CPU and memory are those of all processes together. "
)

JOBS = (
    Job(
        name="spark-read",
        title="Spark: an aggregate over all rows",
        unit=MILLION_RECORDS,
        about=_WEEK + "`count(*)`, `sum(length(value))` and `max(timestamp)`.",
        contenders=(
            Contender("duralog", _on_week("aggregate", "duralog")),
            Contender(_CONNECTOR, _on_week("aggregate", "kafka")),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 3.0, than=_CONNECTOR),),
        rounds=2,
    ),
    Job(
        name="spark-read-offsets",
        title="Spark: an aggregate over offsets and timestamps",
        unit=MILLION_RECORDS,
        about=_WEEK + "`count(*)`, `sum(offset)` and `max(timestamp)`; duralog is asked for these two columns only.",
        contenders=(
            Contender("duralog", _on_week("aggregate_offsets", "duralog")),
            Contender(_CONNECTOR, _on_week("aggregate_offsets", "kafka")),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 6.0, than=_CONNECTOR),),
        rounds=2,
    ),
    Job(
        name="spark-parquet",
        title="Spark: all rows to Parquet",
        unit=MILLION_RECORDS,
        about=_WEEK + "To Parquet with zstd: through `DataFrame.write`, and by the job `export`, whose tasks write it.",
        contenders=(
            Contender("duralog, write", _on_week("parquet", "duralog", passes=1)),
            Contender("duralog, job export", _on_week("export", "duralog", passes=1)),
            Contender(f"{_CONNECTOR}, write", _on_week("parquet", "kafka", passes=1)),
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
        title="Spark: an hour out of a week",
        unit=PERCENT_OF_BYTES,
        about="What a read with `startingTimestamp` and `endingTimestamp` an hour apart plans to read of a week.",
        contenders=(Contender("duralog", _plan_hour),),
        targets=(Target("duralog", 2.0),),
        rounds=1,
    ),
    Job(
        name="spark-plan",
        title="Spark: planning of 100,000 segments",
        unit=SECONDS,
        about="10,000 partitions of ten segments, planned from the start of the work to the list of slices.",
        contenders=(Contender("duralog", _plan_segments),),
        targets=(Target("duralog", 20.0),),
        rounds=2,
    ),
    Job(
        name="spark-write",
        title="Spark: rows written as segments",
        unit=MILLION_RECORDS,
        about=(
            "5 million rows of 100 bytes (a key of 10, a value of 90), made by Spark, into a new topic of four "
            "partitions, on both cores: encoded and staged by the tasks, committed and synced by the driver. The "
            "connector sends them to a broker of Apache Kafka, which does not sync."
        ),
        contenders=(
            Contender("duralog", _on_week("write", "duralog")),
            Contender(_CONNECTOR, _on_week("write", "kafka")),
        ),
        compare_with=_CONNECTOR,
        targets=(Target("duralog", 1.0),),
        rounds=2,
    ),
    Job(
        name="spark-compact",
        title="Spark: compaction of eight partitions",
        unit=MEGABYTES,
        about=(
            "The job `compact` on a copy of a directory of eight partitions (18 million events, 3.3 GB in a full run), "
            "in each a record in nine has the last value of its key, on one core and on two: `local[1]` with all its "
            "processes bound to one core, and `local[2]`. What Spark takes to begin a job and its tasks is in it, and "
            "so is what the JVM compiles meanwhile: about half a second of CPU, however large the data."
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
        title="Spark: the same work on one core, on two, and on two worker processes",
        unit=MILLION_RECORDS,
        about=(
            _WEEK + "The aggregate over all rows. The last runs Spark's `local-cluster`: two workers of one core, each "
            "a JVM of its own."
        ),
        contenders=(
            Contender("duralog, local[1]", _on_week("aggregate", "duralog", master="local[1]")),
            Contender("duralog, local[2]", _on_week("aggregate", "duralog")),
            Contender("duralog, local-cluster", _on_week("aggregate", "duralog", master="local-cluster[2,1,1536]")),
        ),
        compare_with="duralog, local[1]",
        rounds=2,
    ),
)
