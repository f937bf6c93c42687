"""A broker under test, duralog's or Kafka's, in a process of its own on a new directory."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.data import FOLDER
from bench.workers.broker_guard import add_user, guarded_settings, make_certificate
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
from oracle.server_process import ServerProcess

DURALOG, KAFKA = "duralog", "kafka"
_ASKED_EVERY_SECONDS = 0.005
_QUIET = """status = error
appender.console.type = Console
appender.console.name = stdout
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = stdout
"""


class BrokerUnderTest(ServerProcess):
    """A running broker. The end of the block stops it, and its directory stays."""

    def __init__(self, name: str, folder: Path, *, is_guarded: bool = False) -> None:
        """`folder` is the bench's own: the directory is `store` in it, made at the first start.

        With `is_guarded`, there are listeners with TLS and with SASL beside the plain one.
        """
        super().__init__(name)
        self.name = name
        self._directory = folder.absolute() / "store"
        if not self._directory.exists() and name == KAFKA:
            shutil.copytree(_formatted(), self._directory)
        port, *guarded = free_ports(3)
        self.address = ("127.0.0.1", port)
        self.bootstrap = f"127.0.0.1:{port}"
        self.ports = {"PLAINTEXT": port}
        if is_guarded:
            self.ports |= dict(zip(("SSL", "SASL_SSL"), guarded, strict=True))
            self.certificate = make_certificate(self.folder)
            add_user(self._directory)
        command = self._duralog() if name == DURALOG else self._kafka()
        start = time.perf_counter()
        self.start(command)
        self.wait_for(self._has_answered, every_seconds=_ASKED_EVERY_SECONDS)
        self.seconds_to_first_answer = time.perf_counter() - start

    def connect(self) -> Connection:
        return Connection(self.address)

    def _duralog(self) -> Sequence[str]:
        settings: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
        where = ["--data", str(self._directory)]
        if len(self.ports) > 1:
            settings |= guarded_settings(self.certificate, self.ports)
        else:
            where += ["--listen", self.bootstrap]
        overrides = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
        return [sys.executable, "-m", "duralog", "serve", *where, *overrides]

    def _kafka(self) -> Sequence[str]:
        properties, logging = self.folder / "server.properties", self.folder / "log4j2.properties"
        (controller_port,) = free_ports(1)
        settings = server_settings(self._directory, node_id_of(self._directory), self.address[1], controller_port)
        if len(self.ports) > 1:
            settings |= guarded_settings(self.certificate, {**self.ports, "CONTROLLER": controller_port})
        write_properties(properties, settings)
        logging.write_text(_QUIET)
        options = ["-cp", class_path(), f"-Dlog4j2.configurationFile={logging}"]
        return [*AS_KAFKA_STARTS, *options, "kafka.Kafka", str(properties)]

    def _has_answered(self) -> bool | None:
        try:
            with self.connect() as connection:
                connection.api_versions()
        except OSError:
            return None
        return True


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
