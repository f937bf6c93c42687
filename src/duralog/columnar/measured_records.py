"""Decoded records, and how many bytes their batches take when nothing is compressed.

An uncompressed batch counts with its size, a compressed one with its header and the decompressed records, and a
compressed message of format v0 or v1 with the messages inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.decoded import DecodedRecords
from duralog.columnar.pieces import Piece
from duralog.columnar.refusals import OnCorruptBatch, Refusals
from duralog.columnar.runs import Rows, RunDecoder, Span
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.format.layout import BATCH_V2


def decode_measured(
    piece: Piece,
    rows: Rows | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    on_corrupt: OnCorruptBatch | None = None,
) -> tuple[NDArray[np.int64], Iterator[DecodedRecords]]:
    """The unpacked size of each of the piece's batches, and the records as `Piece.decode` gives them.

    The sizes of compressed batches are right after all records were read; a corrupt batch keeps its stored size.
    """
    sizes = piece.batches["size"].astype(np.int64)
    decoder = _MeasuringDecoder(
        data=piece.data,
        batches=piece.batches,
        begins=piece.batches["position"] - piece.position,
        max_decompressed_bytes=max_decompressed_bytes,
        refusals=Refusals(piece.name, piece.batches, on_corrupt),
        sizes=sizes,
    )
    wanted = np.arange(len(piece.batches), dtype=np.intp) if rows is None else np.ascontiguousarray(rows, np.intp)
    return sizes, cast("Iterator[DecodedRecords]", decoder.decode(wanted))


@dataclass(frozen=True, slots=True)
class _MeasuringDecoder(RunDecoder):
    sizes: NDArray[np.int64]

    def _unpack(self, rows: NDArray[Any], begins: NDArray[Any], ends: NDArray[Any]) -> Iterator[Span]:
        for span in RunDecoder._unpack(self, rows, begins, ends):
            header_bytes = np.where(self.batches["magic"][span.rows] < 2, 0, BATCH_V2.size)
            self.sizes[span.rows] = header_bytes + (span.ends - span.begins)
            yield span
