"""A broker under test, duralog's or Kafka's, in a process of its own on a new directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from bench.data import FOLDER
from bench.workers.broker_wire import Connection
from oracle.kafka_jars import KAFKA_VERSION, class_path
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import (
    AS_KAFKA_STARTS,
    format_directory,
    free_ports,
    node_id_of,
    server_settings,
    write_properties,
)

DURALOG, KAFKA = "duralog", "kafka"
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
_QUIET = """status = error
appender.console.type = Console
appender.console.name = stdout
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = stdout
"""


class BrokerUnderTest:
    """A running broker. The end of the block stops it, and its directory stays."""

    def __init__(self, name: str, folder: Path) -> None:
        """`folder` is the bench's own: the directory is `store` in it, made at the first start."""
        self.name = name
        self._folder = folder
        self._directory = folder / "store"
        if not self._directory.exists() and name == KAFKA:
            shutil.copytree(_formatted(), self._directory)
        (port,) = free_ports(1)
        self.address = ("127.0.0.1", port)
        self.bootstrap = f"127.0.0.1:{port}"
        command = self._duralog() if name == DURALOG else self._kafka()
        self._log = folder / "server.log"
        with self._log.open("ab") as log:
            start = time.perf_counter()
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
        self._wait_for_an_answer(start)
        self.seconds_to_first_answer = time.perf_counter() - start

    def __enter__(self) -> BrokerUnderTest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL if error is not None else signal.SIGTERM)
            self._process.wait(_STOP_SECONDS)

    def connect(self) -> Connection:
        return Connection(self.address)

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def memory_bytes(self) -> int:
        """What it has in memory now."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the broker has ended")

    def _duralog(self) -> Sequence[str]:
        where = ["--data", str(self._directory), "--listen", self.bootstrap]
        return [sys.executable, "-m", "duralog", "serve", *where, "--override", "group.initial.rebalance.delay.ms=0"]

    def _kafka(self) -> Sequence[str]:
        properties, logging = self._folder / "server.properties", self._folder / "log4j2.properties"
        (controller_port,) = free_ports(1)
        settings = server_settings(self._directory, node_id_of(self._directory), self.address[1], controller_port)
        write_properties(properties, settings)
        logging.write_text(_QUIET)
        options = ["-cp", class_path(), f"-Dlog4j2.configurationFile={logging}"]
        return [*AS_KAFKA_STARTS, *options, "kafka.Kafka", str(properties)]

    def _wait_for_an_answer(self, start: float) -> None:
        while time.perf_counter() - start < _START_SECONDS:
            if self._process.poll() is not None:
                break
            try:
                with self.connect() as connection:
                    connection.api_versions()
                    return
            except OSError:
                time.sleep(0.005)
        self._process.kill()
        self._process.wait()
        raise RuntimeError(f"the broker does not answer: {self._log.read_text(errors='replace')[-300:]}")


def _formatted() -> Path:
    """A directory that Kafka's own tool has formatted, made once."""
    folder = FOLDER / f"kafka-{KAFKA_VERSION}-formatted"
    if not folder.exists():
        unfinished = folder.with_suffix(f".unfinished-{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with KafkaProcess(class_path()) as kafka:
            format_directory(kafka, unfinished)
        unfinished.rename(folder)
    return folder
