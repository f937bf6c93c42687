"""An archive of the classes that Spark loads in tests: a JVM that maps it starts in half the time.

    python -m tests.support.spark.class_archive

makes it in `build`, by a session that does a bit of everything, if there is none for this Java and this PySpark yet.
Without it, as where Java is missing, JVMs load their classes from the jars. The collector is part of what is archived.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.places import ROOT

# JVMs of tests live for minutes: the compiler that makes the fastest code would take a third of their CPU time.
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def java_options() -> str:
    """For every JVM of Spark's that a test starts."""
    archive = _archive()
    if archive is None or not archive.exists():
        return QUICK_TO_START
    return f"{QUICK_TO_START} -XX:SharedArchiveFile={archive}"


def make() -> None:
    archive = _archive()
    if archive is None or archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_TO_START} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        _use_spark(Path(folder) / "logs", Path(folder) / "table")
        made.rename(archive)


def _archive() -> Path | None:
    """Where it is: its name is that of this Java and this PySpark. None if one of them is missing."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=None if home is None else os.path.join(home, "bin"))
    pyspark = importlib.util.find_spec("pyspark")
    if java is None or pyspark is None or pyspark.origin is None:
        return None
    digest = hashlib.sha256()
    for path in (Path(java).resolve(), Path(pyspark.origin)):
        digest.update(f"{path}\0{path.stat().st_mtime_ns}\0".encode())
    return ROOT / "build" / f"spark-classes-{digest.hexdigest()[:16]}.jsa"


def _use_spark(logs: Path, table: Path) -> None:
    """A session that writes, reads, streams and runs a job. Its JVM writes the archive when it ends."""
    from pyspark import SparkContext

    from duralog.spark.jobs import verify
    from duralog.spark.session import local_session

    spark = local_session("local[2]", "class-archive")
    numbers = spark.range(100).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    numbers.write.format("duralog").options(topic="t", partitions="2").mode("append").save(str(logs))
    rows = spark.read.format("duralog").load(str(logs))
    rows.groupBy("partition").count().orderBy("partition").write.parquet(str(table))
    spark.read.parquet(str(table)).collect()
    stream = spark.readStream.format("duralog").option("startingOffsets", "earliest").load(str(logs))
    writer = stream.selectExpr("cast(value as string)").writeStream.format("json").trigger(availableNow=True)
    writer.option("checkpointLocation", str(table / "checkpoint")).start(str(table / "streamed")).awaitTermination()
    verify(spark, str(logs))
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    make()
