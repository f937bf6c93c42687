"""Spark's stand-alone cluster on this machine, from PySpark's own jars: a master and its workers, on loopback only.

    with StandaloneCluster(workers=2) as cluster:
        local_session(cluster.master, config=cluster.config)

Its processes end with the process that has started them, however that ends: Linux kills them.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import pyspark

from tests.support.spark.class_archive import java_options

WAIT_SECONDS = 120
_LOOPBACK = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_SETTINGS = f"-Dspark.master.rest.enabled=false {java_options()}"


class StandaloneCluster:
    """Workers of one core each."""

    def __init__(self, workers: int) -> None:
        self._folder = TemporaryDirectory(prefix="standalone-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""
        self.config = {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": java_options(),
            "spark.sql.shuffle.partitions": str(workers),
        }
        self._workers = workers

    def __enter__(self) -> StandaloneCluster:
        try:
            log = self._start("master", "master.Master", "--port", "0")
            found = _wait_for(_STARTED, log)
            self.master = found[1]
            logs = [
                self._start(f"worker{number}", "worker.Worker", "--cores", "1", "--memory", "1g", self.master)
                for number in range(self._workers)
            ]
            for log in logs:
                _wait_for(re.compile(_REGISTERED), log)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()
        self._folder.cleanup()

    def _start(self, name: str, main: str, *arguments: str) -> Path:
        """Start one process; its log has what it says."""
        spark_home = Path(pyspark.__file__).parent
        folder = Path(self._folder.name) / name
        folder.mkdir()
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home),
            "SPARK_LOCAL_IP": _LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SETTINGS,
            "SPARK_WORKER_DIR": str(folder),
        }
        command = [str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
        log = folder / "log"
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--host", _LOOPBACK, "--webui-port", "0", *arguments],
                    env=environment,
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    preexec_fn=_end_with_parent,
                )
            )
        return log


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for(expected: re.Pattern[str], log: Path) -> re.Match[str]:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        found = expected.search(log.read_text(errors="replace"))
        if found is not None:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{expected.pattern!r} is not in {log}: {log.read_text(errors='replace')[-3000:]}")
