"""Writes decoded records to a Parquet, Arrow IPC or CSV file.

The file appears under its own name only when it is complete: until then it is `<name>.part`, which is removed after an
error. An existing file is replaced.

CSV has no bytes. A key, a value or a header value there is text when it is UTF-8, otherwise `0x` and its hexadecimal
digits; text that itself begins with `0x` is written in hexadecimal too, so that every cell reads back to its bytes.
An empty cell without quotes is null. Headers are a JSON list of [key, value] pairs. Decoded keys and values that have
fields are JSON, as in `duralog consume`; other ones are numbers, or text.
"""

from __future__ import annotations

import io
import json
import os
from types import TracebackType
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from duralog.columnar.plain_json import json_text, plain_json
from duralog.columnar.python_values import python_values
from duralog.columnar.schema import HEADERS, RECORD_SCHEMA, TIMESTAMP
from duralog.errors import DuralogError

EXTENSIONS = (".parquet", ".arrow", ".feather", ".csv")

_ROW_GROUP_BYTES = 64 << 20
_YEAR_1_MS = -62_135_596_800_000
_YEAR_9999_END_MS = 253_402_300_799_999


class _TableWriter(Protocol):
    def write_table(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class Export:
    """A file of records being written. Use it as a context manager: leaving it without an error puts the file into
    place.
    """

    def __init__(self, path: str, schema: pa.Schema = RECORD_SCHEMA) -> None:
        """`schema` is that of the records: keys and values may be decoded, and there may be more columns."""
        self.path = path
        self.rows = 0
        self._part = f"{path}.part"
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._file = _PartFile(self._part)
        try:
            self._writer = _open_writer(self._file, path, schema)
        except BaseException:
            self._file.abandon()
            self._file.close()
            raise

    def write(self, records: pa.RecordBatch) -> None:
        """Records with the columns of the schema."""
        self.rows += records.num_rows
        self._waiting.append(records)
        self._waiting_bytes += records.nbytes
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write_waiting()

    def _write_waiting(self) -> None:
        """Small batches become large row groups, which compress better and read faster."""
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []
            self._waiting_bytes = 0

    def __enter__(self) -> Export:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._abandon()
            return
        try:
            self._write_waiting()
            self._writer.close()
            self._file.close()
            os.replace(self._part, self.path)
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        self._file.abandon()
        # A writer that is not closed closes itself at garbage collection, and raises where nothing can catch it.
        self._writer.close()
        self._file.close()


class _PartFile(io.FileIO):
    """An incomplete file. After it is abandoned, it discards all writes, so that writers can finish."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "wb")
        self._is_abandoned = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._is_abandoned:
            return len(view)
        # A system call may write only a part.
        written = 0
        while written < len(view):
            written += super().write(view[written:]) or 0
        return written

    def abandon(self) -> None:
        self._is_abandoned = True
        os.unlink(self.name)


def _open_writer(file: Any, path: str, schema: pa.Schema) -> _TableWriter:
    extension = os.path.splitext(path)[1].lower()
    if extension == ".parquet":
        import pyarrow.parquet as pq

        # A dictionary pays for topic and partition; keys and values are rarely repeated enough.
        repeated = ["topic", "partition", "timestamp_type"]
        return cast("_TableWriter", pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=repeated))
    if extension in (".arrow", ".feather"):
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        return cast("_TableWriter", pa.ipc.new_file(file, schema, options=options))
    if extension == ".csv":
        return _CsvWriter(file, schema)
    raise DuralogError(f"{path}: the name must end in {', '.join(EXTENSIONS)}")


class _CsvWriter:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        import pyarrow.csv as csv

        self._schema = pa.schema([field.with_type(_csv_type(field)) for field in schema])
        self._writer = csv.CSVWriter(file, self._schema, write_options=csv.WriteOptions(quoting_style="needed"))

    def write_table(self, table: pa.Table) -> None:
        for records in table.to_batches():
            columns = [_csv_column(field, records.column(field.name)) for field in table.schema]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _csv_type(field: pa.Field) -> pa.DataType:
    is_plain = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_boolean(field.type)
    return field.type if is_plain else pa.string()


def _csv_column(field: pa.Field, column: pa.Array) -> pa.Array:
    if field.name == TIMESTAMP:
        return times_as_text(column)
    if field.name == HEADERS:
        return _headers_as_text(column)
    if pa.types.is_binary(field.type):
        return _as_text(column)
    if column.type in (_csv_type(field), pa.string()):
        return column
    return pa.array([_cell(value) for value in python_values(column)], pa.string())


def _cell(value: Any) -> str | None:
    """The cell of a decoded key or value: text unchanged, values with fields as JSON."""
    if value is None:
        return None
    plain = plain_json(value)
    return plain if isinstance(plain, str) else json_text(plain)


def _as_text(column: pa.Array) -> pa.Array:
    """Whole columns at once if all cells are plain text, which is the usual case."""
    try:
        text = column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_of(value) for value in column.to_pylist()], pa.string())
    if pc.any(pc.starts_with(text, "0x")).as_py():
        return pa.array([_text_of(value) for value in column.to_pylist()], pa.string())
    return text


def _text_of(data: bytes | None) -> str | None:
    if data is None:
        return None
    if not data.startswith(b"0x"):
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            pass
    return f"0x{data.hex()}"


def times_as_text(column: pa.Array) -> pa.Array:
    """ISO 8601; beyond the calendar, the bare number of milliseconds."""
    milliseconds = column.cast(pa.int64())
    outside = pc.or_(pc.less(milliseconds, _YEAR_1_MS), pc.greater(milliseconds, _YEAR_9999_END_MS))
    within = pc.if_else(outside, 0, milliseconds)
    # Without a zone, Arrow writes times fifteen times as fast; all of them are UTC.
    text = pc.binary_replace_slice(within.cast(pa.timestamp("ms")).cast(pa.string()), 10, 11, "T")
    return pc.if_else(outside, milliseconds.cast(pa.string()), pc.binary_join_element_wise(text, "Z", ""))


def _headers_as_text(column: pa.Array) -> pa.Array:
    if not len(column.flatten()):
        return pa.repeat(pa.scalar("[]", pa.string()), len(column))
    return pa.array(
        [
            json.dumps([[header["key"], _text_of(header["value"])] for header in headers], ensure_ascii=False)
            for headers in column.to_pylist()
        ],
        pa.string(),
    )
