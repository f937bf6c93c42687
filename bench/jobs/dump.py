from __future__ import annotations

import sys
from collections.abc import Callable

from bench.job import MEGABYTES, Contender, Job, Run, Setting, Target

# What Kafka's own start script gives its tools.
_JVM_OPTIONS = (
    "-Xmx256M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


def _duralog(*options: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        segment = setting.segment("none")
        command = [sys.executable, "-m", "duralog", "dump", *options, str(segment.path)]
        return Run(command=command, amount=segment.size_bytes)

    return prepare


def _kafka(*options: str) -> Callable[[Setting], Run]:
    def prepare(setting: Setting) -> Run:
        segment = setting.segment("none")
        tool = "org.apache.kafka.tools.DumpLogSegments"
        command = [
            "java",
            *_JVM_OPTIONS,
            "-cp",
            setting.kafka_class_path(),
            tool,
            *options,
            "--files",
            str(segment.path),
        ]
        return Run(command=command, amount=segment.size_bytes)

    return prepare


JOBS = (
    Job(
        name="dump",
        title="Dump every record to a file",
        unit=MEGABYTES,
        about=(
            "The whole command, start-up included, with its output in a file. Bytes are those of the log. "
            "duralog: `duralog dump --records --json`. Kafka: `DumpLogSegments --print-data-log`, with the JVM options "
            "of Kafka's own start script."
        ),
        contenders=(
            Contender("duralog", _duralog("--records", "--json")),
            Contender("Kafka", _kafka("--print-data-log"), is_peer=True),
        ),
        compare_with="Kafka",
        targets=(Target("duralog", 5.0, than="Kafka"),),
        rounds=3,
    ),
    Job(
        name="dump-batches",
        title="Dump the batch headers to a file",
        unit=MEGABYTES,
        about=(
            "As `dump`, without the records: `duralog dump` as text and as JSON, and `DumpLogSegments`. Both check "
            "every CRC."
        ),
        contenders=(
            Contender("duralog", _duralog()),
            Contender("duralog --json", _duralog("--json")),
            Contender("Kafka", _kafka(), is_peer=True),
        ),
        compare_with="Kafka",
    ),
)
