"""The parsed command line of `duralog dump`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from duralog.cli.voice.option_values import OffsetRange
from duralog.format.filenames import PartitionFolder

if TYPE_CHECKING:
    from duralog.schemas.decode_options import Decode


class Mode(Enum):
    BATCHES = auto()
    """A line for each batch of a log, and everything in the small files."""
    RECORDS = auto()
    EXPORT = auto()
    SUMMARY = auto()
    VERIFY = auto()

    @property
    def shows_small_files(self) -> bool:
        return self is Mode.BATCHES


class Quota:
    """How many batches or records may still be shown: `--limit` counts over all logs."""

    def __init__(self, limit: int | None) -> None:
        self._limit = self._left = limit

    @property
    def is_limited(self) -> bool:
        return self._left is not None

    @property
    def is_used_up(self) -> bool:
        return self._left is not None and self._left <= 0

    def fresh(self) -> Quota:
        """A new quota with the whole limit, for a file with its own entries."""
        return Quota(self._limit)

    def take(self, wanted: int) -> int:
        """How many of `wanted` may be shown."""
        if self._left is None:
            return wanted
        granted = min(wanted, self._left)
        self._left -= granted
        return granted


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRequest:
    mode: Mode
    quota: Quota
    offsets: OffsetRange
    since_ms: int | None
    until_ms: int | None
    key: bytes | None
    raw: bool
    """Show the records of Kafka's internal topics as bytes."""
    max_decompressed_bytes: int
    max_field_bytes: int | None
    """The most bytes of a key or value on a line of text."""
    index_interval_bytes: int | None
    """Of the topic, if the user gives it."""
    to: str | None
    """The file that records are exported to."""
    topic: str | None = None
    """Only the folders of its partitions."""
    partition: int | None = None
    decode: Decode | None = None
    """How keys and values are decoded; None if they stay bytes."""

    @property
    def is_limited(self) -> bool:
        return self.quota.is_limited

    def concerns_folder(self, partition: PartitionFolder | None) -> bool:
        """Whether files of that partition, or of none, may be shown."""
        if self.topic is None and self.partition is None:
            return True
        if partition is None:
            return False
        return self.topic in (None, partition.topic) and self.partition in (None, partition.partition)

    @property
    def is_narrowed(self) -> bool:
        return not self.offsets.is_everything or self.since_ms is not None or self.until_ms is not None
