"""The reading side of a log.

All methods work on a `LogView`, the log at the time of the call: they take no lock, and what they return stays readable
when the log changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duralog.errors import UnknownTopic, arrow_needed
from duralog.format.index_entries import AbortedTransaction
from duralog.format.record import Record
from duralog.format.topic_partition import TopicPartition
from duralog.notebook.notebook_tables import log_html
from duralog.storage.log.isolation import Isolation
from duralog.storage.log.leader_epochs import LeaderEpochs
from duralog.storage.log.reading import FetchedSlice, read_record_batches, read_records, read_slice
from duralog.storage.log.time_lookup import offset_for_timestamp
from duralog.storage.log.view import LogView, SegmentInfo
from duralog.storage.segment.lookup import TimestampedOffset

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

DEFAULT_SLICE_BYTES = 1 << 20

FindLog = Callable[[TopicPartition], "ReadableLog | None"]


def _alone(partition: TopicPartition) -> ReadableLog | None:
    raise UnknownTopic(f"{partition} is not known: the log was not opened by a store")


class ReadableLog(ABC):
    """One partition as its readers see it."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.find_log: FindLog = _alone
        """Another log of the same store, which may have the schemas. Raises `UnknownTopic`."""

    def __repr__(self) -> str:
        return f"<PartitionLog {self.topic}-{self.partition} from {self.start_offset} to {self.end_offset}>"

    def _repr_html_(self) -> str:
        return log_html(self)

    @property
    @abstractmethod
    def view(self) -> LogView:
        """An immutable view of the log as it is now."""

    @property
    @abstractmethod
    def leader_epochs(self) -> LeaderEpochs: ...

    @property
    def start_offset(self) -> int:
        return self.view.start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self.view.end_offset

    @property
    def high_watermark(self) -> int:
        return self.view.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Every transaction below this offset has ended."""
        return self.view.last_stable_offset

    @property
    def size_bytes(self) -> int:
        return self.view.segments.size_bytes

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Oldest first; the last one is active."""
        return self.view.infos()

    def read(
        self,
        offset: int,
        *,
        isolation: str = Isolation.READ_UNCOMMITTED,
        max_bytes: int | None = None,
        max_batch_bytes: int | None = None,
    ) -> Iterator[Record]:
        """The records from this offset, or the next existing one, to the current end of the log.

        They end when their batches reach `max_bytes`, but always include the first batch. Raises `OffsetOutOfRange` if
        the offset is not within the log, and `RecordTooLarge` at a batch larger than `max_batch_bytes`.
        """
        view = self.view
        view.check_offset(offset)
        return read_records(view, offset, Isolation(isolation), max_bytes=max_bytes, max_batch_bytes=max_batch_bytes)

    def read_arrow(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: str = Isolation.READ_UNCOMMITTED,
        columns: Sequence[str] | None = None,
        decode: str | Mapping[str, Any] | None = None,
    ) -> pa.Table:
        """The records from `start_offset` up to, not including, `end_offset` as a table of all or of these columns.

        By default, from the start of the log to its current end. `decode` turns keys and values into typed columns by
        their schemas, as in `duralog.scan`: "auto", a format of the values, or options. Fields are chosen with dots,
        `columns=["value.customer.id"]`, and what does not decode is in the column `_corrupt`.
        """
        # Not at the top: pyarrow takes long to load, and is only needed for tables.
        with arrow_needed():
            from duralog.columnar.tables import to_table

        view = self.view
        level = Isolation(isolation)
        start = view.start_offset if start_offset is None else start_offset
        view.check_offset(start)
        end = view.limit(level)
        if end_offset is not None:
            view.check_offset(end_offset)
            end = min(end, end_offset)
        partition = TopicPartition(self.topic, self.partition)

        def read(names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            return read_record_batches(view, start, end, level, partition=partition, columns=names)

        if decode is None:
            return to_table(read(columns), columns)
        with arrow_needed():
            from duralog.storage.log.typed_reading import read_typed

        def find_view(found: TopicPartition) -> LogView | None:
            log = self if found == partition else self.find_log(found)
            return None if log is None else log.view

        return read_typed(partition, find_view, level, read, decode=decode, columns=columns)

    def to_pandas(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: str = Isolation.READ_UNCOMMITTED,
        columns: Sequence[str] | None = None,
        decode: str | Mapping[str, Any] | None = None,
    ) -> pandas.DataFrame:
        """Like `read_arrow`, as a pandas data frame. Requires pandas."""
        with arrow_needed():
            from duralog.columnar.tables import to_pandas

        table = self.read_arrow(start_offset, end_offset, isolation=isolation, columns=columns, decode=decode)
        return to_pandas(table)

    def to_polars(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: str = Isolation.READ_UNCOMMITTED,
        columns: Sequence[str] | None = None,
        decode: str | Mapping[str, Any] | None = None,
    ) -> polars.DataFrame:
        """Like `read_arrow`, as a polars data frame. Requires polars."""
        with arrow_needed():
            from duralog.columnar.tables import to_polars

        table = self.read_arrow(start_offset, end_offset, isolation=isolation, columns=columns, decode=decode)
        return to_polars(table)

    def read_slice(
        self,
        offset: int,
        max_bytes: int = DEFAULT_SLICE_BYTES,
        isolation: str = Isolation.READ_UNCOMMITTED,
        *,
        min_one: bool = True,
        max_batch_bytes: int | None = None,
    ) -> FetchedSlice:
        """Bytes of a log file from the batch that holds the offset, to send without decoding."""
        return read_slice(
            self.view, offset, max_bytes, Isolation(isolation), min_one=min_one, max_batch_bytes=max_batch_bytes
        )

    def offset_for_timestamp(
        self, timestamp_ms: int, *, isolation: str = Isolation.READ_UNCOMMITTED
    ) -> TimestampedOffset | None:
        """The first record at this time or later; None if there is none. Accepts EARLIEST, LATEST, MAX_TIMESTAMP."""
        return offset_for_timestamp(self.view, timestamp_ms, Isolation(isolation), self.leader_epochs)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `start_offset` up to, not including, `end_offset`."""
        return self.view.aborted_transactions(start_offset, end_offset)
