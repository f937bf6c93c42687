"""Kafka's dump tool, run over every file of a log directory, and what it finds wrong there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from oracle.kafka_process import KafkaProcess

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
_FIRST_OFFSET = re.compile(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n(?!  )")
"""What the tool says of every log that does not start at offset 0."""
_DUMPED = (LOG, INDEX, TIME_INDEX, ".txnindex", ".snapshot")


def dump_complaints(kafka: KafkaProcess, directory: Path) -> list[str]:
    """What the tool says against the files of all partitions: logs record by record, indexes against their logs.

    REQUIRES: the directory is closed. An index that is still as large as it may become cannot be told from a wrong one.
    """
    return [complaint for folder in partition_folders(directory) for complaint in _complaints(kafka, folder)]


def partition_folders(directory: Path) -> list[Path]:
    """All but those of deleted topics, which wait to be removed."""
    folders = (folder for folder in directory.iterdir() if folder.is_dir() and not folder.name.endswith("-delete"))
    return sorted(folder for folder in folders if list(folder.glob(f"*{LOG}")))


def _complaints(kafka: KafkaProcess, folder: Path) -> Iterator[str]:
    files = [path for suffix in _DUMPED for path in sorted(folder.glob(f"*{suffix}"))]
    stdout, stderr = kafka.dump("--deep-iteration", "--files", ",".join(map(str, files)))
    yield from (f"{folder.name}: {line}" for line in _FIRST_OFFSET.sub("", stderr).splitlines())
    for path in files:
        if f"Dumping {path}" not in stdout:
            yield f"{folder.name}/{path.name}: was not dumped"
    for line in stdout.splitlines():
        if re.search(r"isvalid: false|invalid bytes", line):
            yield f"{folder.name}: {line}"
    # The tool has nothing to check, and says so, where there is no entry.
    indexes = [path for path in files if path.suffix in (INDEX, TIME_INDEX) and path.stat().st_size]
    if indexes:
        stdout, stderr = kafka.dump("--index-sanity-check", "--files", ",".join(map(str, indexes)))
        yield from (f"{folder.name}: {line}" for line in stderr.splitlines())
        for path in indexes:
            if f"{path} passed sanity check." not in stdout:
                yield f"{folder.name}/{path.name}: did not pass the sanity check"
