"""What the tests of tables share: jobs without Spark, logs with a history, and readers of the three formats."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import duralog
from duralog.scanning.executor import OnProgress, ignore_progress
from duralog.spark.lake.parquet_files import NULL_VALUE
from duralog.spark.lake.targets import LakeTarget

FORMATS = ("parquet", "delta", "iceberg")
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000 // DAY_MS * DAY_MS


class LocalExecutor:
    """An executor in this process. What travels is pickled, as on the way to an executor of Spark."""

    parallelism = 2

    def __init__(self, spark: Any, on_progress: OnProgress | None = None) -> None:
        self.spark = spark
        self.on_progress = on_progress

    def run(self, items: Sequence[Any], function: Callable[..., Any], **_: Any) -> list[Any]:
        run: Callable[..., Any] = pickle.loads(pickle.dumps(function))
        return [pickle.loads(pickle.dumps(run(pickle.loads(pickle.dumps(item)), ignore_progress))) for item in items]


def run_here(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let these jobs do their tasks in this process."""
    for module in modules:
        monkeypatch.setattr(module, "SparkExecutor", LocalExecutor)


def rows_of(table_format: str, path: str | Path) -> list[dict[str, Any]]:
    """All rows of a table as a reader of the format sees them, in the order of partitions and offsets."""
    rows: list[dict[str, Any]] = table_of(table_format, path).to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def table_of(table_format: str, path: str | Path) -> pa.Table:
    if table_format == "delta":
        from deltalake import DeltaTable

        return DeltaTable(str(path)).to_pyarrow_table()
    if table_format == "iceberg":
        return iceberg_table(path).scan().to_arrow()
    column = (
        pa.field("partition", pa.int32()) if Path(path).name.startswith("snapshot-") else pa.field("date", pa.date32())
    )
    hive = ds.HivePartitioning(pa.schema([column]), null_fallback=NULL_VALUE)
    return ds.dataset(str(path), format="parquet", partitioning=hive).to_table()


def iceberg_table(path: str | Path) -> Any:
    from pyiceberg.catalog import load_catalog

    folder, topic = Path(path).parent, Path(path).name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_catalog("duralog", type="sql", uri=f"sqlite:///{folder}/iceberg-catalog.db").load_table(
            ("duralog", topic)
        )


def fill_days(path: Path, *, partitions: int = 2, records: int = 20) -> None:
    """A topic `events` with records of three days, one of which has no timestamp, and one an impossible one."""
    with duralog.open(str(path)) as store:
        store.create_topic("events", partitions=partitions, config={"index.interval.bytes": "100"})
        for number in range(partitions):
            append_days(store.partition("events", number), records)


def append_days(log: duralog.PartitionLog, records: int, first: int = 0) -> None:
    for place in range(first, first + records):
        time_ms = START_MS + place * DAY_MS // 8
        log.append(
            [
                duralog.Record(
                    key=b"k%d" % (place % 7), value=b"v%d" % place, timestamp_ms=time_ms, headers=[("h", b"%d" % place)]
                )
            ]
        )


class Killed(Exception):
    """As if the process had ended here."""


class Death:
    """Ends a run at its nth file that comes into place, before or after that, and lets nothing be cleaned up then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, *, after: bool) -> None:
        self.left = step
        self.is_dead = False
        self._after = after
        self._replace, self._delete, self._unlink = os.replace, LakeTarget.delete, os.unlink
        monkeypatch.setattr(os, "replace", self.replace)
        monkeypatch.setattr(os, "unlink", lambda *names: None if self.is_dead else self._unlink(*names))
        monkeypatch.setattr(LakeTarget, "delete", lambda *names: 0 if self.is_dead else self._delete(*names))

    def replace(self, source: str, target: str) -> None:
        self.left -= 1
        if self.left == 0:
            if self._after:
                self._replace(source, target)
            self.is_dead = True
            raise Killed
        self._replace(source, target)
