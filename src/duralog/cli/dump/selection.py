"""Which batches and records a dump shows. Whole columns are compared at once: no Python runs for each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.cli.common.option_values import ALL_OFFSETS, OffsetRange
from duralog.cli.dump.request import DumpRequest
from duralog.columnar.decoded import DecodedRecords
from duralog.format.layout import LOG_APPEND_TIME_BIT, NO_TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offsets and times include their start and exclude their end. What has no timestamp is at no time."""

    offsets: OffsetRange = ALL_OFFSETS
    since_ms: int | None = None
    until_ms: int | None = None
    key: bytes | None = None

    @classmethod
    def of(cls, request: DumpRequest) -> Selection:
        return cls(offsets=request.offsets, since_ms=request.since_ms, until_ms=request.until_ms, key=request.key)

    @property
    def is_everything(self) -> bool:
        return self.offsets.is_everything and self.since_ms is None and self.until_ms is None and self.key is None

    def batch_rows(self, batches: NDArray[Any]) -> NDArray[np.intp]:
        """The batches that may hold selected records, told from their headers.

        A compressed v0 or v1 message does not tell its first offset: it counts as one that may.
        """
        maybe = np.ones(len(batches), bool)
        if not self.offsets.is_everything:
            maybe &= batches["last_offset"] >= self.offsets.start
            maybe &= batches["base_offset"] < self.offsets.end
        if self.since_ms is not None:
            maybe &= batches["max_timestamp"] >= self.since_ms
        if self.until_ms is not None:
            # The header tells the largest timestamp only, which is every record's with log append time.
            append_time = (batches["magic"] > 0) & (batches["attributes"] & LOG_APPEND_TIME_BIT != 0)
            maybe &= ~append_time | (batches["max_timestamp"] < self.until_ms)
            maybe &= batches["max_timestamp"] != NO_TIMESTAMP
        return np.flatnonzero(maybe)

    def is_past(self, batches: NDArray[Any]) -> bool:
        """Whether everything after these batches lies behind the selected offsets."""
        trusted = batches["last_offset"][batches["crc_ok"] != 0]
        return len(trusted) > 0 and bool(trusted[-1] >= self.offsets.end - 1)

    def records(self, decoded: DecodedRecords) -> DecodedRecords:
        """The selected ones of these records."""
        if self.is_everything:
            return decoded
        columns = decoded.columns
        chosen = np.ones(len(columns), bool)
        if not self.offsets.is_everything:
            chosen &= (columns.offset >= self.offsets.start) & (columns.offset < self.offsets.end)
        if self.since_ms is not None:
            chosen &= columns.timestamp >= self.since_ms
        if self.until_ms is not None:
            chosen &= (columns.timestamp < self.until_ms) & (columns.timestamp != NO_TIMESTAMP)
        rows = np.flatnonzero(chosen)
        if self.key is not None:
            rows = decoded.with_key(self.key, rows)
        return decoded.take(rows)
