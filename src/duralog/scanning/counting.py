"""How many records slices have, by the headers of their batches where these are exact.

The header of a batch in format v2 has the number of records that are in it, also after compaction. Control batches hold
no records. A piece at the edge of a slice, and messages of the older formats, are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch
from duralog.columnar.runs import Rows
from duralog.columnar.schema import OFFSET
from duralog.format.layout import CONTROL_BIT
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.part_reading import Convert
from duralog.scanning.slice_reading import read_slice_pieces
from duralog.scanning.slices import Slice
from duralog.storage.log.reading import piece_to_arrow


def count_records(slices: Iterable[Slice]) -> Iterator[int]:
    """The number of records of each piece of the slices. See `read_slices` for errors."""
    for found in slices:
        yield from read_slice_pieces(found, _counting(found))


def _counting(found: Slice) -> Convert[int]:
    partition = TopicPartition(found.topic, found.partition)

    def count(piece: Piece, rows: Rows | None, refuse: OnCorruptBatch) -> Iterator[int]:
        batches = piece.batches if rows is None else piece.batches[rows]
        is_whole = (
            len(batches) > 0
            and (batches["crc_ok"] == 1).all()
            and (batches["magic"] == 2).all()
            and batches["base_offset"].min() >= found.start_offset
            and batches["last_offset"].max() < found.end_offset
        )
        if is_whole:
            is_data = (batches["attributes"] & CONTROL_BIT) == 0
            yield int(batches["record_count"][is_data].sum(dtype=np.int64))
            return
        decoded = piece_to_arrow(
            piece,
            rows,
            found.start_offset,
            found.end_offset,
            partition=partition,
            columns=[OFFSET],
            on_corrupt=refuse,
        )
        yield sum(batch.num_rows for batch in decoded)

    return count
