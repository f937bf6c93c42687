"""Kafka's loading of a directory when a broker starts: DIRECTORY PARTITIONS BYTES CLASS_PATH.

The time is the one that Kafka's log manager tells ("Loaded 2 logs in 67ms"): the JVM, the controller and the metadata
are up by then and not counted. The CPU seconds are those of the whole broker. It is killed afterwards: the directory
was a copy.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.workers.passes import tell
from oracle.kafka_server import free_ports, node_id_of, server_settings, write_properties

# What Kafka's own start script gives a broker.
_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = stdout
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %m%n
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = stdout
logger.manager.name = kafka.log.LogManager
logger.manager.level = info
"""


def main(directory: Path, partitions: int, size_bytes: int, class_path: str) -> None:
    with tempfile.TemporaryDirectory(prefix="duralog-bench-") as work:
        properties, logging = Path(work) / "server.properties", Path(work) / "log4j2.properties"
        write_properties(properties, server_settings(directory, node_id_of(directory), *free_ports(2)))
        logging.write_text(_LOGGING)
        process = subprocess.Popen(
            [
                "java",
                *_JVM_OPTIONS,
                f"-Dlog4j2.configurationFile={logging}",
                "-cp",
                class_path,
                "kafka.Kafka",
                str(properties),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=work,
        )
        assert process.stdout is not None
        loaded = None
        said: list[str] = []
        for line in process.stdout:
            said.append(line.strip())
            loaded = re.search(r"Loaded (\d+) logs in (\d+)ms", line)
            if loaded is not None:
                break
        process.kill()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
    if loaded is None or int(loaded[1]) != partitions:
        raise SystemExit(f"Kafka did not load {partitions} logs: {said[-1:]}")
    tell(int(loaded[2]) / 1000, usage.ru_utime + usage.ru_stime, size_bytes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
