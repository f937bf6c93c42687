"""duralog's compaction of a directory with one partition: DIRECTORY SMALL_DIRECTORY WORKERS. The amount is in bytes.

The small directory is compacted first, which loads the kernels. Opening, which here means recovery, and closing are not
timed.
"""

from __future__ import annotations

import sys
import time

import duralog
from bench.compaction_data import TOPIC
from bench.workers.passes import tell

_CONFIG = {"log.cleanup.policy": "compact", "log.cleaner.enable": False, "log.retention.ms": -1}


def compact(directory: str, workers: int) -> None:
    with duralog.open(directory, _CONFIG) as store:
        store.partition(TOPIC, 0).roll()
        cpu, start = time.process_time(), time.perf_counter()
        report = store.compact(TOPIC, 0, workers=workers)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    if report.rounds != 1 or not report.records_after < report.records_before:
        raise SystemExit(f"{report.records_before} records became {report.records_after} in {report.rounds} rounds")
    tell(seconds, cpu_seconds, report.bytes_before)


if __name__ == "__main__":
    for directory in (sys.argv[2], sys.argv[1]):
        compact(directory, int(sys.argv[3]))
