"""Which batches and records a dump shows. Whole columns are compared at once: no Python runs for each record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.cli.dump.request import DumpRequest
from duralog.cli.voice.option_values import ALL_OFFSETS, OffsetRange
from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.format.layout import LOG_APPEND_TIME_BIT, NO_TIMESTAMP
from duralog.storage.checks.findings import OnFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Offsets and times include their start and exclude their end. Records without a timestamp match no times."""

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
        """The batches that may hold selected records, by their headers.

        A compressed v0 or v1 message is always included: its header does not have its first offset.
        """
        maybe = np.ones(len(batches), bool)
        if not self.offsets.is_everything:
            maybe &= batches["last_offset"] >= self.offsets.start
            maybe &= batches["base_offset"] < self.offsets.end
        if self.since_ms is not None:
            maybe &= batches["max_timestamp"] >= self.since_ms
        if self.until_ms is not None:
            # The header only has the largest timestamp; with log append time all records have it.
            append_time = (batches["magic"] > 0) & (batches["attributes"] & LOG_APPEND_TIME_BIT != 0)
            maybe &= ~append_time | (batches["max_timestamp"] < self.until_ms)
            maybe &= batches["max_timestamp"] != NO_TIMESTAMP
        return np.flatnonzero(maybe)

    def is_past(self, batches: NDArray[Any]) -> bool:
        """Whether everything after these batches is past the selected offsets."""
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


def selected_records(
    piece: Piece, rows: NDArray[np.intp], request: DumpRequest, report: OnFinding
) -> Iterator[DecodedRecords]:
    """The selected records of these batches, within the quota of the request. Corrupt batches are reported."""
    selection = Selection.of(request)
    for decoded in piece.decode(
        rows,
        max_decompressed_bytes=request.max_decompressed_bytes,
        on_corrupt=lambda error, _: report(error),
    ):
        chosen = selection.records(decoded)
        granted = request.quota.take(len(chosen))
        if granted < len(chosen):
            chosen = chosen.take(slice(0, granted))
        if len(chosen):
            yield chosen
        if request.quota.is_used_up:
            return
