"""The reading interface of searches, downloads and format detection: records of a partition as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duralog.console.facts.records import ShownRecord
from duralog.console.facts.topic_records import PlacedRecord, WantedRecords
from duralog.console.sources.shown_batches import Cut

FOUND = Cut(field_bytes=4 << 10, headers=16)
"""Of a match, as it is kept: a row of the list. The record that is opened is read again."""

T = TypeVar("T")
Offsets = NDArray[np.int64]
Show = Callable[[Offsets], list[ShownRecord]]
"""The records at these offsets as they are shown."""
Visit = Callable[[pa.RecordBatch, Show], T]


class Extent(NamedTuple):
    begin: int
    end: int
    size_bytes: int | None


class Stretch(NamedTuple):
    """The result of one reading step of a partition."""

    reached: int
    """All from where it began, up to or down to this offset."""
    read_bytes: int
    records: int
    time_ms: int
    """Of the last record, in the direction of reading; `NO_TIMESTAMP` if there was none."""
    notes: tuple[str, ...] = ()


class TopicReader(Protocol):
    """Records of a source as Arrow batches. Any thread may ask."""

    def extent(self, wanted: WantedRecords, partition: int) -> Extent:
        """The offsets to read, by the wanted offsets and the earliest wanted time."""

    def undecided(
        self, wanted: WantedRecords, partition: int, begin: int, end: int, last: PlacedRecord
    ) -> tuple[int, int] | None:
        """Of these offsets, those that may have records which belong before `last` in the wanted order.

        None if that is only known for records that were read.
        """

    def read(
        self, topic: str, partition: int, begin: int, end: int, *, backwards: bool, max_bytes: int, visit: Visit[T]
    ) -> tuple[Stretch, list[T]]:
        """From `begin` up, or from `end` down, about this many bytes; what `visit` returned for each batch.

        Batches have the columns of `RECORD_SCHEMA`, and no control records. `visit` may be called again for the same
        records, if files vanish meanwhile.
        """
