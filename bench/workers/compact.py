"""duralog's compaction of the partitions of a directory, one after the other: WORKERS DIRECTORY. Amounts are bytes.

Opening, which here means recovery, is not timed.
"""

from __future__ import annotations

import sys
import time

import duralog
from bench.compaction_data import TOPIC
from bench.workers.passes import tell

_CONFIG = {"log.cleanup.policy": "compact", "log.cleaner.enable": False, "log.retention.ms": -1}


def main(workers: int, directory: str) -> None:
    with duralog.open(directory, _CONFIG) as store:
        for number in store.partitions(TOPIC):
            store.partition(TOPIC, number).roll()
        for number in store.partitions(TOPIC):
            cpu, start = time.process_time(), time.perf_counter()
            report = store.compact(TOPIC, number, workers=workers)
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
            if report.rounds != 1 or not report.records_after < report.records_before:
                raise SystemExit(
                    f"{report.records_before} records became {report.records_after}, {report.rounds} rounds"
                )
            tell(seconds, cpu_seconds, report.bytes_before)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
