"""Parquet files as a task writes them: one for each value of the column that the table is partitioned by.

File names have the origin of the records (`stem`), so a task that runs again writes over what it wrote before and
adds nothing. Memory is bounded: what waits to become a row group, how many files wait for one, and few files open at a
time. A value that comes up again after its file was closed gets another file, with a number after the stem.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duralog.columnar import schema as record_schema
from duralog.spark.connector_columns import TIMESTAMP_TYPE
from duralog.spark.lake.columns import DATE, name_of, table_schema
from duralog.spark.lake.targets import LakeTarget

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark and pyarrow call a folder of rows whose value is null."""
EXTENSION = ".parquet"

_ROW_GROUP_BYTES = 64 << 20
_MOST_WAITING_BYTES = 192 << 20
_MOST_OPEN_FILES = 32
_MOST_WAITING_FILES = 1024
"""Wrong times of a producer may be on any day."""

# A dictionary pays where values repeat. Keys and values are mostly long and different, and their statistics of no use,
# unless they are columns.
_DICTIONARY = (record_schema.TOPIC, record_schema.PARTITION, TIMESTAMP_TYPE, DATE)
_STATISTICS = (*_DICTIONARY, record_schema.OFFSET, record_schema.TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A Parquet file that was written, and what a table's log says of it."""

    path: str
    """Relative to the table."""
    value: str | None
    """Of the column that the table is partitioned by."""
    records: int
    size_bytes: int
    first_offset: int
    last_offset: int
    first_time_us: int | None
    last_time_us: int | None
    null_counts: dict[str, int]


class ParquetFiles:
    """The files that one task writes. Use as a context: leaving it with an error leaves no file behind.

    `folder` is put before every name; `column` is the one that the table is partitioned by.
    """

    def __init__(self, target: LakeTarget, schema: pa.Schema, *, column: str, stem: str, folder: str = "") -> None:
        self._target = target
        self._schema = schema
        self._column = column
        self._stem = stem
        self._folder = folder
        self._files: dict[str | None, _PartitionFile] = {}
        self._numbers: dict[str | None, int] = {}
        self._waiting_bytes = 0
        self._written: list[DataFile] = []

    def __enter__(self) -> ParquetFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for file in self._files.values():
                file.abandon(error)
            self._target.delete(file.path for file in self._written)

    def write(self, value: str | None, records: pa.RecordBatch) -> None:
        """Records with the columns of the schema, all with this value."""
        file = self._files.get(value)
        if file is None:
            if len(self._files) >= _MOST_WAITING_FILES:
                self._close(max(self._files, key=lambda value: self._files[value].waiting_bytes))
            file = self._files[value] = self._begin(value)
        self._waiting_bytes += file.add(records)
        if file.waiting_bytes >= _ROW_GROUP_BYTES:
            self._write_out(file)
        while self._waiting_bytes >= _MOST_WAITING_BYTES:
            self._write_out(max(self._files.values(), key=lambda file: file.waiting_bytes))

    def finish(self) -> list[DataFile]:
        """Complete all files. Returns what was written, in the order of the names."""
        for value in list(self._files):
            self._close(value)
        return sorted(self._written, key=lambda file: file.path)

    def _begin(self, value: str | None) -> _PartitionFile:
        number = self._numbers.get(value, 0)
        self._numbers[value] = number + 1
        stem = self._stem if number == 0 else f"{self._stem}-{number}"
        path = f"{self._folder}{self._column}={NULL_VALUE if value is None else value}/{stem}{EXTENSION}"
        return _PartitionFile(self._target, self._schema, value, path)

    def _write_out(self, file: _PartitionFile) -> None:
        if not file.is_open:
            opened = [value for value, other in self._files.items() if other.is_open]
            if len(opened) >= _MOST_OPEN_FILES:
                self._close(opened[0])
        self._waiting_bytes -= file.waiting_bytes
        file.write_out()

    def _close(self, value: str | None) -> None:
        file = self._files.pop(value)
        self._waiting_bytes -= file.waiting_bytes
        self._written.append(file.finish())


class _PartitionFile:
    def __init__(self, target: LakeTarget, schema: pa.Schema, value: str | None, path: str) -> None:
        self._target = target
        self._schema = schema
        self._value = value
        self._path = path
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self._stack = ExitStack()
        self._writer: Any = None
        self._sink: Any = None
        self._records = 0
        self._offsets = _Extent()
        self._times = _Extent()
        self._null_counts = dict.fromkeys(schema.names, 0)

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def add(self, records: pa.RecordBatch) -> int:
        """Returns how much more waits to be written."""
        self._waiting.append(records)
        size = int(records.nbytes)
        self.waiting_bytes += size
        self._records += records.num_rows
        self._offsets.add(records.column(name_of(self._schema, record_schema.OFFSET)))
        self._times.add(records.column(name_of(self._schema, record_schema.TIMESTAMP)).cast(pa.int64()))
        for name, column in zip(self._schema.names, records.columns, strict=True):
            self._null_counts[name] += column.null_count
        return size

    def write_out(self) -> None:
        """A row group of what waits: large ones compress better and read faster."""
        if self._writer is None:
            self._sink = self._stack.enter_context(self._target.create(self._path))
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                use_dictionary=_is_typed(self._schema) or [name for name in _DICTIONARY if name in self._schema.names],
                write_statistics=_is_typed(self._schema)
                or [name for name in _STATISTICS if name in self._schema.names],
            )
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting = []
            self.waiting_bytes = 0

    def finish(self) -> DataFile:
        with self._stack:
            self.write_out()
            self._writer.close()
            size_bytes = int(self._sink.tell())
        assert self._offsets.first is not None
        assert self._offsets.last is not None
        return DataFile(
            path=self._path,
            value=self._value,
            records=self._records,
            size_bytes=size_bytes,
            first_offset=self._offsets.first,
            last_offset=self._offsets.last,
            first_time_us=self._times.first,
            last_time_us=self._times.last,
            null_counts=self._null_counts,
        )

    def abandon(self, error: BaseException) -> None:
        if self._writer is not None:
            # A writer that is not closed would be closed by the garbage collector, with errors that cannot be caught.
            self._writer.close()
        self._stack.__exit__(type(error), error, error.__traceback__)


def _is_typed(schema: pa.Schema) -> bool:
    """Whether there is more in it than records as they are."""
    return not set(schema) <= set(table_schema(headers=True, date=True))


class _Extent:
    """The smallest and the largest of some numbers."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None

    def add(self, numbers: pa.Array) -> None:
        found = pc.min_max(numbers).as_py()
        if found["min"] is not None:
            self.first = found["min"] if self.first is None else min(self.first, found["min"])
            self.last = found["max"] if self.last is None else max(self.last, found["max"])
