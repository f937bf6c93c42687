"""`duralog.scan`: records of many partitions as a table, for Arrow, DuckDB, Polars and pandas.

    orders = duralog.scan("data", topic="orders", columns=["key", "value"], since="2026-01-01")
    orders.to_arrow_batch_reader()                      # bounded memory, all cores
    orders.to_polars().select("offset").head(10)        # lazy: columns and limits are pushed down
    duckdb.sql("select count(*) from orders")           # any number of queries
    orders.count()                                      # from the headers of batches, where these are exact

The same planning and reading as in Spark: segments are left out by time index, the rest is cut into slices, and threads
read these ahead of the consumer. Decoding releases Python's lock.

Several directories are those of one cluster: each partition is read from the copy that consumers were served, and what
is damaged in it from another (`duralog.scanning.cluster`).

Records come by topic, partition and offset. A task has one slice, or several small ones, of 8 MiB together. One task
more than there are threads is read at a time. Decoded records that the consumer has not taken are bounded in bytes
(`read_ahead`), so compressed records and a slow consumer do not fill the memory.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from duralog.columnar.schema import OFFSET, record_schema
from duralog.columnar.tables import to_pandas
from duralog.config.times import parse_time
from duralog.filters.parsing import parse
from duralog.notebook.html_tables import captioned
from duralog.scanning.cluster.directories import Paths
from duralog.scanning.cluster.healing import read_through_damage
from duralog.scanning.cluster.sources import ClusterPlan, HealedRange
from duralog.scanning.counting import count_records
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice
from duralog.scanning.tables.read_ahead import read_ahead
from duralog.scanning.tables.scan_frames import duckdb_table, polars_frame
from duralog.scanning.tables.scan_planning import OnHealed, ScanPlan, Wanted, WantedPart, narrowed_plan, plan_scan
from duralog.scanning.tables.wanted_rows import WantedRows
from duralog.scanning.time_range import ANY_TIME, TimeRange
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.decode_options import Decode, plan_decoding, read_catalogue, split_columns
from duralog.schemas.typed_columns import LeftOut, TypedColumns
from duralog.storage.disk.background import wall_clock_ms
from duralog.storage.log.isolation import Isolation

if TYPE_CHECKING:
    import duckdb
    import pandas  # type: ignore[import-untyped]
    import polars as pl

_MOST_THREADS = 8

Time = int | str | datetime

_logger = logging.getLogger(__name__)


def scan(  # Public: its keyword arguments are the interface.
    path: Paths,
    *,
    topic: str | None = None,
    topics: Sequence[str] | None = None,
    partition: int | None = None,
    columns: Sequence[str] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    where: str | None = None,
    decode: str | Mapping[str, Any] | None = None,
    isolation: str = Isolation.READ_UNCOMMITTED,
    storage_options: Mapping[str, str] | None = None,
    threads: int | None = None,
    to_end: bool = False,
    on_healed: OnHealed | None = None,
    not_before_ms: int | None = None,
    before_ms: int | None = None,
) -> Scan:
    """The records of topics as a table that is read when it is used, on threads; the log may be in use.

    `path` is a log directory or a URL (`s3://bucket/folder`, with `storage_options`). Without `topic` or `topics`, all
    but Kafka's internal ones are read, and with `decode` all but that of the schemas, too; `partition` picks one number
    of each. `columns` come in the order of the schema.

    A list of directories, a glob (`backup/broker-*/data*`) or a JSON manifest is a cluster: every partition is read
    from the copy that consumers were served, up to the high watermark, or with `to_end` to the end of the log. What is
    corrupt, cut or missing in that copy is read from another one: `on_healed` is called with each such range, in the
    thread that reads the stream; without it, they are logged.

    With `since` or `until` (a datetime, ISO 8601 in UTC, an age like "2h", or epoch ms), only records with such a
    timestamp are returned, from `since` on and before `until`; those without any are left out. Segments that are too
    early are not read. Segments that are too late are read, but for topics with
    `message.timestamp.type=LogAppendTime`: no index has the earliest timestamp of a segment. `not_before_ms` and
    `before_ms` are the same in epoch ms.

    `where` has conditions on key, value, headers and JSON in them, as the console's search: `key = "a" and $.amount >
    10`. With `decode`, it looks into the decoded keys and values, into all of their fields; decimals are numbers there.

    `decode` turns keys and values into typed columns by their schemas: "auto" finds out from a sample and the topic
    `_schemas`; or a mapping of `value.format`, `value.schema`, `key.format`, `schema.registry.url`, `mode` as in Spark.
    Fields are chosen with dots: `columns=["value.customer.id"]`. What does not decode is null, with bytes and reason in
    the column `_corrupt`.

    What to read is planned at the call, so that what does not exist is an error there. The first stream ends where the
    logs ended then; each further one is planned when it begins. Damage raises `CorruptRecord` after the records before
    it, and records that retention deletes during the scan raise `OffsetOutOfRange`.
    """
    count = min(os.cpu_count() or 1, _MOST_THREADS) if threads is None else threads
    if count < 1:
        raise ValueError(f"threads must be 1 or more, not {threads}")
    for name, names in (("topics", topics), ("columns", columns)):
        if isinstance(names, str):
            raise TypeError(f"{name} must be a list of names: give [{names!r}] instead of {names!r}")
    if topic is not None and topics is not None:
        raise ValueError("give topic or topics, not both")
    return Scan(
        Wanted(
            path=path,
            topics=[topic] if topic is not None else topics,
            partition=partition,
            columns=None if columns is None else tuple(columns),
            times=TimeRange(
                not_before_ms if since is None else _time_ms(since), before_ms if until is None else _time_ms(until)
            ),
            where=where,
            decode=Decode.of(decode),
            isolation=Isolation(isolation),
            storage_options=storage_options,
            threads=count,
            to_end=to_end,
            on_healed=on_healed or _log_healed,
        )
    )


class Scan:
    """Records of topics that are read when they are used. Any number of times: each use reads them again.

    It is a stream of Arrow, too: DuckDB, Polars, pandas and pyarrow take it as it is.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        condition = None if wanted.where is None else parse(wanted.where)
        if wanted.decode is None:
            record_schema(wanted.columns)
        self._planned: ScanPlan | None
        self._planned, topics = plan_scan(wanted)
        self._typed: TypedColumns | None = None
        if wanted.decode is not None:
            self._typed = plan_decoding(
                wanted.decode,
                topics,
                partial(_records_of, wanted),
                wanted.columns,
                later=partial(_schemas_of, replace(wanted, on_healed=_log_healed)),
            )
        self._rows = WantedRows.of(wanted.times, condition, self._typed)
        self.schema: pa.Schema = self._schema(wanted.columns)
        """Of the batches."""
        self._reader: pa.RecordBatchReader | None = None

    # Planning

    def _take_plan(self) -> ScanPlan:
        """The plan of the call for the first use, a new one for each later use."""
        planned, self._planned = self._planned, None
        return plan_scan(self._wanted)[0] if planned is None else planned

    def _schema(self, columns: Sequence[str] | None) -> pa.Schema:
        if self._typed is None:
            return record_schema(None if columns is None else tuple(columns))
        return self._typed.schema(split_columns(columns))

    # Reading

    def to_arrow_batch_reader(self, columns: Iterable[str] | None = None) -> pa.RecordBatchReader:
        """The records as a stream, read ahead by the threads; of all columns of the schema, or only of these.

        To stop early, drop the reader: `close` alone does not stop the threads.
        """
        return self._read_part(columns)

    def _read_part(self, columns: Iterable[str] | None, part: WantedPart | None = None) -> pa.RecordBatchReader:
        """The records of these columns, without some that are not of the part."""
        schema = self.schema
        if columns is not None:
            names = set(columns)
            schema = pa.schema([field for field in schema if field.name in names])
        planned = self._take_plan()
        return self._read(schema, planned if part is None else narrowed_plan(self._wanted, planned, part))

    def _read(self, schema: pa.Schema, planned: ScanPlan) -> pa.RecordBatchReader:
        left_out = LeftOut()
        if isinstance(planned, ClusterPlan):
            batches = self._read_cluster(planned, schema, left_out)
        else:
            read = partial(
                self._batches, schema, left_out, lambda slices, columns: read_slices(slices, columns=columns)
            )
            batches = read_ahead(planned.tasks, read, self._wanted.threads, _memory_of)
        return pa.RecordBatchReader.from_batches(schema, self._logging(batches, left_out))

    def _logging(self, batches: Iterator[pa.RecordBatch], left_out: LeftOut) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        finally:
            # Also if the stream is dropped before its end.
            left_out.log(self._wanted.path)

    def _read_cluster(self, planned: ClusterPlan, schema: pa.Schema, left_out: LeftOut) -> Iterator[pa.RecordBatch]:
        # Tasks add to it, and the reader of the stream takes from it: both are atomic.
        healed: deque[HealedRange] = deque(planned.healed)
        for each in planned.mixed:
            _logger.warning("%s", each)

        def read_task(slices: Sequence[Slice], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            return read_through_damage(slices, columns=columns, on_healed=healed.append)

        read = partial(self._batches, schema, left_out, read_task)
        tasks = read_ahead(planned.tasks, read, self._wanted.threads, _memory_of)
        for batch in chain(tasks, [None]):
            while healed:
                self._wanted.on_healed(healed.popleft())
            if batch is not None:
                yield batch

    def _batches(
        self,
        schema: pa.Schema,
        left_out: LeftOut,
        read: Callable[[Sequence[Slice], Sequence[str]], Iterator[pa.RecordBatch]],
        slices: Sequence[Slice],
    ) -> Iterator[pa.RecordBatch]:
        """The records of a task: only those that are wanted, with the columns of the schema."""
        needed = schema.names if self._typed is None else self._typed.needed(schema.names)
        rows = self._rows
        matcher = rows.matcher()
        for batch in read(slices, list(dict.fromkeys([*needed, *rows.needed]))):
            found = rows.select(batch, matcher)
            if found.num_rows == 0 and batch.num_rows:
                continue
            # Columns that only the condition needs are not decoded again.
            if found.schema.names != needed:
                found = found.select(needed)
            yield found if self._typed is None else self._typed.apply(found, schema, left_out)

    def to_arrow(self) -> pa.Table:
        """All records in memory."""
        return self.to_arrow_batch_reader().read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """All records in memory."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> pl.LazyFrame:
        """A lazy frame. Columns that the query does not use are not decoded, and a limit stops reading.

        Conditions on offset, timestamp, topic and partition leave out files and parts of them.
        """
        return polars_frame(self.schema, self._read_part)

    def to_duckdb(self, name: str, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
        """Make it a table of this name in the connection, or in a new one in memory, and return the connection.

        DuckDB says nothing of its conditions and columns to a stream of Arrow: name them in the scan.
        """
        return duckdb_table(self.to_arrow_batch_reader, name, connection)

    def count(self) -> int:
        """The number of records: from the headers of batches, if there are no times, conditions or several copies."""
        planned = self._take_plan()
        is_plain = not self._rows.needed and not isinstance(planned, ClusterPlan)
        if is_plain:
            return sum(read_ahead(planned.tasks, count_records, self._wanted.threads))
        return sum(batch.num_rows for batch in self._read(record_schema((OFFSET,)), planned))

    def explain(self) -> str:
        """A description of what a use would read: directories, topics, segments and bytes, formats, chosen copies."""
        self._planned = planned = self._take_plan()
        lines = [str(planned)]
        if self._typed is not None:
            lines += self._typed.findings
        return "\n".join(lines)

    # As a stream of Arrow

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)

    def read_all(self) -> pa.Table:
        """The same as `to_arrow`: it can be used like a `pyarrow.RecordBatchReader`."""
        return self.to_arrow() if self._reader is None else self._reader.read_all()

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch of one stream; raises `StopIteration` at its end."""
        if self._reader is None:
            self._reader = self.to_arrow_batch_reader()
        return self._reader.read_next_batch()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_arrow_batch_reader())

    def close(self) -> None:
        """End the stream of `read_next_batch`."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __repr__(self) -> str:
        return f"<Scan of {self._words}: {', '.join(self.schema.names)}>"

    def _repr_html_(self) -> str:
        rows = [[name, str(kind)] for name, kind in zip(self.schema.names, self.schema.types, strict=True)]
        where = "" if self._wanted.where is None else f", where {self._wanted.where}"
        return captioned("Scan", f"{self._words}{where}", ("column", "type"), rows)

    @property
    def _words(self) -> str:
        topics = "all topics" if self._wanted.topics is None else ", ".join(self._wanted.topics)
        return f"{topics} in {self._wanted.path}"


def _memory_of(batch: pa.RecordBatch) -> int:
    """Including the memory that the slice keeps."""
    return int(batch.get_total_buffer_size())


def _records_of(wanted: Wanted, topic: str, columns: Sequence[str]) -> Scan:
    """Undecoded records of a topic, for format detection. Also those of `_schemas`."""
    return Scan(
        replace(
            wanted,
            topics=[topic],
            partition=None,
            columns=tuple(columns),
            times=ANY_TIME,
            where=None,
            decode=None,
            threads=1,
        )
    )


def _schemas_of(wanted: Wanted) -> SchemaCatalogue:
    """All schemas as they are now."""
    assert wanted.decode is not None
    return read_catalogue(wanted.decode, partial(_records_of, wanted))


def _time_ms(given: Time) -> int:
    if isinstance(given, int):
        return given
    text = given.isoformat() if isinstance(given, datetime) else given
    return parse_time(text, now_ms=wall_clock_ms())


def _log_healed(found: HealedRange) -> None:
    _logger.warning("%s", found)
