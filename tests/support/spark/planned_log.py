"""A topic in a directory of the real disk that a test plans and reads, and what its slices hold together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import duralog
from duralog.columnar.tables import to_table
from duralog.format.record import Record
from duralog.scanning.offset_ranges import resolve, select_partitions
from duralog.scanning.planning import Plan, plan
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store

NOW_MS = 1_700_000_000_000
CONFIG = {"log.index.interval.bytes": 500, "log.retention.ms": -1, "log.cleaner.enable": False}
ROLLED_AFTER = 200
"""Records."""


def open_for_writing(path: Path, **configs: object) -> Store:
    return duralog.open(path, {**CONFIG, **configs})


def fill(log: PartitionLog, first: int, end: int, *, batch: int = 10, codec: str | None = None) -> None:
    """Records whose values are their numbers, a millisecond apart, in several segments."""
    for begin in range(first, end, batch):
        if begin and begin % ROLLED_AFTER == 0:
            log.roll()
        numbers = range(begin, min(begin + batch, end))
        log.append([record(number) for number in numbers], codec=codec)


def record(number: int) -> Record:
    return Record(key=b"%d" % (number % 50), value=b"%d" % number * 10, timestamp_ms=NOW_MS + number)


def plan_all(store: Store, isolation: Isolation = Isolation.READ_UNCOMMITTED, **options: Any) -> Plan:
    ranges = resolve(store, select_partitions(store, topics=store.topics()), isolation=isolation)
    return plan(store, ranges, isolation=isolation, **options)


def read(slices: Iterable[Slice], **options: Any) -> pa.Table:
    return to_table(read_slices(slices, **options), options.get("columns"))


def offsets(table: pa.Table) -> list[int]:
    found: list[int] = table.column("offset").to_pylist()
    return found
