"""A Spark session in which `format("duralog")` is known, with the settings that the pipeline is measured with.

Everything here is a default: what the caller's `config` says, or an interpreter named by `PYSPARK_PYTHON`, wins. A
session that runs already is taken as it is, apart from what Spark allows to be set while it runs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from duralog.spark.source import DuralogDataSource

ARROW_BATCH_ROWS = 65_536
"""Rows of an Arrow batch between the JVM and Python. Fewer cost calls, more fall out of the CPU's cache."""

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
}
_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")


def local_session(
    master: str = "local[*]",
    app_name: str = "duralog",
    config: Mapping[str, str] | None = None,
    *,
    log_level: str = "ERROR",
) -> SparkSession:
    """The session of this process, started if there is none; `master` may also be that of a cluster."""
    # The JVM inherits the environment, and starts Python for planning by these: they must be there before it is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    settings = {"spark.log.level": log_level, **_DEFAULTS, **_of_one_machine(master), **(config or {})}
    builder = SparkSession.Builder().master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DuralogDataSource)
    return spark


def active_session() -> SparkSession | None:
    """The session that runs in this process, if there is one."""
    spark = SparkSession.getActiveSession()
    return None if spark is None or spark.sparkContext._jsc.sc().isStopped() else spark


def _of_one_machine(master: str) -> dict[str, str]:
    """For a local master: only this machine connects, and a shuffle has as many parts as there are cores."""
    match = _LOCAL_MASTER.fullmatch(master)
    if match is None:
        return {}
    cores = os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(max(cores, 2)),
    }
