"""The records of slices, of one directory or of a cluster's copies, as Arrow batches.

Slices of a cluster are read through damage: what the chosen copy does not have comes from another one, and is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from duralog.scanning.cluster.healing import read_copies
from duralog.scanning.cluster.sources import HealedRange
from duralog.scanning.logs import LogSet
from duralog.scanning.offset_ranges import OnDataLoss
from duralog.scanning.part_reading import OnCorruptBytes
from duralog.scanning.slice_reading import read_slices
from duralog.scanning.slices import Slice

_logger = logging.getLogger(__name__)


def read_records(
    logs: LogSet,
    slices: Sequence[Slice],
    *,
    columns: Sequence[str],
    on_corrupt: OnCorruptBytes | None = None,
    on_data_loss: OnDataLoss | None = None,
) -> Iterator[tuple[Slice | None, pa.RecordBatch]]:
    """In order; those of a cluster with the slice that they come from: its location is the copy."""
    if not logs.is_cluster:
        for records in read_slices(slices, columns=columns, on_corrupt=on_corrupt, on_data_loss=on_data_loss):
            yield None, records
        return
    yield from read_copies(
        slices, columns=columns, on_healed=_log_healed, on_corrupt=on_corrupt, on_data_loss=on_data_loss
    )


def _log_healed(found: HealedRange) -> None:
    _logger.warning("%s", found)
