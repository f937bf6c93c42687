"""A Spark session in which `format("duralog")` is known, with the settings that the pipeline is measured with.

Everything here is a default: the caller's `config`, or an interpreter named by `PYSPARK_PYTHON`, wins. A running
session is used as it is, apart from settings that Spark allows to change at run time. `register` is for a session that
was made in another way.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext, java_gateway
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from duralog.errors import DuralogError
from duralog.spark.data_source import DuralogDataSource
from duralog.spark.spark_versions import warn_if_untested
from duralog.spark.thread_sessions import let_every_thread_write
from duralog.spark.worker_python import use_installed_pyspark

ARROW_BATCH_ROWS = 65_536
"""Rows of an Arrow batch between the JVM and Python. Fewer cost calls, more do not fit into the CPU's cache."""

_UNCHECKED_ARROW = "-Darrow.enable_unsafe_memory_access=true"
"""Spark takes every value out of an Arrow batch by itself. Without Arrow's checks of each access, within a batch that
has been loaded, that takes an eighth less time. Only for the JVM of a session on this machine: executors of a cluster
have options that their site has set, and other users' data."""
_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Added to the command that starts Java, before the options of `spark-defaults.conf`, which stay. A setting
`spark.driver.extraJavaOptions` would replace them."""
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": "duralog.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": "true",
    # As in the workers of SQL. Those of jobs would otherwise have another environment, and so another daemon that loads
    # everything once more.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
    # As the job `export` writes them. Spark's own default, INT96, takes a dictionary of objects, and nothing is found
    # by its statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER_MASTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_LOOPBACK = "127.0.0.1"
_QUIET_START = Path(__file__).with_name("log4j2.properties")


def local_session(
    master: str = "local[*]",
    app_name: str = "duralog",
    config: Mapping[str, str] | None = None,
    *,
    log_level: str = "ERROR",
) -> SparkSession:
    """The session of this process, started if there is none; `master` may also be that of a cluster."""
    spark = job_session(master, app_name, config, log_level=log_level)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `format("duralog")` known to a session of your own, also one of Spark Connect.

    Spark finds the format by itself if its Python workers have duralog. They run the `python3` of the PATH unless
    `PYSPARK_PYTHON` names another one, and that may not be the Python that runs this. On this machine they then get
    this Python. On a cluster, install duralog where the workers run.

    Spark also does not find it when a thread writes that did not make the session. Since this was called, every
    thread may write.
    """
    warn_if_untested()
    let_every_thread_write()
    context = _context_of(spark)
    if context is not None and _cores_of_this_machine(context.master or "") is not None:
        chosen = os.environ.get("PYSPARK_PYTHON", sys.executable)
        if chosen == sys.executable:
            context.pythonExec = chosen
            use_installed_pyspark(context)
        elif not context._python_includes:
            _check_has_duralog(chosen)
    try:
        spark.dataSource.register(DuralogDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to register what it has found by itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def job_session(
    master: str = "local[*]",
    app_name: str = "duralog",
    config: Mapping[str, str] | None = None,
    *,
    log_level: str = "ERROR",
) -> SparkSession:
    """The same for jobs, which read and write logs in tasks and need no `format("duralog")`.

    When a source is registered, Spark searches all installed ones, in a Python process. That takes a second, and the
    process writes to standard error when Spark closes the connection.
    """
    # The JVM inherits the environment, and starts Python for planning by these: they must be there before it is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    java = [f"-Dlog4j2.configurationFile={_QUIET_START.as_uri()}"]
    settings = dict(_DEFAULTS)
    cores = _cores_of_this_machine(master)
    if cores is not None:
        java.append(_UNCHECKED_ARROW)
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
        settings["spark.sql.shuffle.partitions"] = str(max(cores, 2))
    builder = SparkSession.Builder().master(master).appName(app_name)
    for name, value in {**settings, **(config or {})}.items():
        builder = builder.config(name, value)
    is_new = SparkContext._active_spark_context is None
    with _java_started_with(java), _java_ended_if_interrupted():
        spark = builder.getOrCreate()
    if is_new and cores is not None:
        use_installed_pyspark(spark.sparkContext)
    spark.sparkContext.setLogLevel(log_level)
    return spark


def _check_has_duralog(python: str) -> None:
    look = "import sys, importlib.util as found; sys.exit(found.find_spec('duralog') is None)"
    try:
        is_there = subprocess.run([python, "-c", look], check=False).returncode == 0
    except OSError:
        is_there = False
    if not is_there:
        raise DuralogError(
            f"Spark runs its Python workers with {python}, which has no duralog: install it there,"
            f" or set PYSPARK_PYTHON to {sys.executable} before the session starts"
        )


@contextmanager
def _java_started_with(options: list[str]) -> Iterator[None]:
    """Start Java with these options and the user's own, which come later and so win."""
    before = os.environ.get(_JAVA_OPTIONS)
    os.environ[_JAVA_OPTIONS] = " ".join([*options, before or ""]).strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JAVA_OPTIONS]
        else:
            os.environ[_JAVA_OPTIONS] = before


@contextmanager
def _java_ended_if_interrupted() -> Iterator[None]:
    """End the Java process that PySpark has just started if an interrupt comes before they are connected.

    PySpark then forgets the process, and removes the folder in which Java would write its port. Java fails to write it,
    and never ends.
    """
    begun: list[subprocess.Popen[bytes]] = []

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(*arguments, **options))
        return begun[-1]

    java_gateway.Popen = popen  # type: ignore[assignment, attr-defined]
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:
            for process in begun:
                process.terminate()
        raise
    finally:
        java_gateway.Popen = subprocess.Popen  # type: ignore[attr-defined]


def active_session() -> SparkSession | None:
    """The session that runs in this process, if there is one."""
    spark = SparkSession.getActiveSession()
    return None if spark is None or spark.sparkContext._jsc.sc().isStopped() else spark


def _context_of(spark: SparkSession) -> SparkContext | None:
    """None for Spark Connect, and where a platform keeps it from users."""
    try:
        return spark.sparkContext
    except Exception:
        return None


def _cores_of_this_machine(master: str) -> int | None:
    """How many cores Spark uses, if it runs on this machine alone: then it listens on loopback only."""
    if match := _LOCAL_MASTER.fullmatch(master):
        return os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)
    if match := _LOCAL_CLUSTER_MASTER.fullmatch(master):
        return int(match[1]) * int(match[2])
    return None
