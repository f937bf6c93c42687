"""`duralog.scan` as a stream of record batches and as a table of DuckDB: WORK DIRECTORY TOPIC PASSES.

Two threads read, whatever the machine has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import duralog
from bench.workers.passes import timed

_THREADS = 2


def batches(directory: str, topic: str, columns: Sequence[str] | None = None) -> Callable[[], int]:
    """Each record batch is dropped as soon as it is there."""

    def work() -> int:
        found: Any = duralog.scan(directory, topic=topic, columns=columns, threads=_THREADS)
        return sum(batch.num_rows for batch in found.to_arrow_batch_reader())

    return work


def offsets(directory: str, topic: str) -> Callable[[], int]:
    return batches(directory, topic, ["offset", "timestamp"])


def duckdb(directory: str, topic: str, columns: Sequence[str] | None = None) -> Callable[[], int]:
    def work() -> int:
        connection = duralog.scan(directory, topic=topic, columns=columns, threads=_THREADS).to_duckdb("records")
        connection.execute("set threads = 2")
        row = connection.execute("select count(*), sum(octet_length(value)), max(timestamp) from records").fetchone()
        if row is None or not row[0]:
            raise SystemExit("nothing was read")
        return int(row[0])

    return work


def duckdb_two_columns(directory: str, topic: str) -> Callable[[], int]:
    return duckdb(directory, topic, ["value", "timestamp"])


WORKS = {work.__name__: work for work in (batches, offsets, duckdb, duckdb_two_columns)}

if __name__ == "__main__":
    name, directory, topic, passes = sys.argv[1:]
    timed(WORKS[name](directory, topic), int(passes))
