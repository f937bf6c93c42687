"""What the producer state needs to know of a batch with a producer id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from duralog.columnar.pieces import Piece
from duralog.errors import CorruptRecord
from duralog.format import record_batch
from duralog.format.control_records import ControlType, EndTransactionMarker, decode
from duralog.format.layout import CONTROL_BIT, DELETE_HORIZON_BIT, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_BIT
from duralog.format.varint import Bytes

ReadBytes = Callable[[int, int], Bytes]
"""Returns the bytes at a position, of a given size."""

REMEMBERED_BATCHES = 5
"""Batches of a producer that are remembered: as many as it may have in flight, and so may send again."""

EMPTIED_MARKER = EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=-1)
"""Stands for a marker that compaction has removed from its batch, after all records of the transaction were gone.

The empty batch stays because it has the producer's epoch. Kafka ignores it: then a transaction that is open in a
snapshot stays open for ever, and the epoch is forgotten.
"""

_LARGEST_CONTROL_BYTES = 1 << 20
"""Control records have a few bytes, and Kafka never compresses them. A larger one is not a control record."""

_SEQUENCES = 2**31
_COLUMNS = [
    *("producer_id", "producer_epoch", "base_sequence", "base_offset", "last_offset", "max_timestamp"),
    *("attributes", "record_count", "position", "size"),
]
"""The first fields of a `ProducerBatch`, and the columns that the other fields are made from."""


class ProducerBatch(NamedTuple):
    """A batch of an idempotent or transactional producer, or a marker that ends its transaction."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    is_transactional: bool
    marker: EndTransactionMarker | None = None
    has_delete_horizon: bool = False
    """Compaction has set a delete horizon: after that time the tombstones or the marker in it may be removed."""

    @property
    def last_sequence(self) -> int:
        """Sequence numbers count records, and wrap to 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES


def reader_of(piece: Piece) -> ReadBytes:
    """A function that returns bytes of a piece by their position in its file."""
    view = piece.data.data

    def read(position: int, size: int) -> memoryview:
        begin = position - piece.position
        return view[begin : begin + size]

    return read


def decode_marker(batch: Bytes) -> EndTransactionMarker | None:
    """The marker in a control batch; None for other control records, or if the batch is empty."""
    header = record_batch.decode_header(batch, 0)
    records = record_batch.decode_records(batch, header, max_decompressed_bytes=_LARGEST_CONTROL_BYTES)
    if not records:
        return None
    control = decode(records[0].key, records[0].value)
    return control if isinstance(control, EndTransactionMarker) else None


def producer_batches(rows: NDArray[Any], read: ReadBytes, *, only_lasting: bool = False) -> Iterator[ProducerBatch]:
    """The batches of these rows (`BATCH_DTYPE`) with a producer id, in order.

    `read` returns bytes by position, and is called for control batches only. A control batch without a readable marker
    is left out. With `only_lasting`, so are the batches that do not affect the state after the last row, which are
    nearly all of them.
    """
    chosen = np.flatnonzero(rows["producer_id"] > NO_PRODUCER_ID)
    if not len(chosen):
        return
    if only_lasting:
        chosen = chosen[_is_lasting(rows[chosen])]
    for *fields, attributes, record_count, position, size in rows[_COLUMNS][chosen].tolist():
        marker = None
        if attributes & CONTROL_BIT:
            if record_count == 0:
                marker = EMPTIED_MARKER
            else:
                # A damaged marker has ended no transaction for any reader either.
                with suppress(CorruptRecord):
                    marker = decode_marker(read(position, size))
            if marker is None:
                continue
        is_transactional, has_horizon = bool(attributes & TRANSACTIONAL_BIT), bool(attributes & DELETE_HORIZON_BIT)
        yield ProducerBatch._make((*fields, is_transactional, marker, has_horizon))


def _is_lasting(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a batch may affect the producer state after all of these rows, which all have a producer id.

    These are all control batches, the last data batches of each producer, as many as are remembered, and the first
    data batch that may open a transaction.
    """
    by_producer = np.argsort(rows["producer_id"], kind="stable")
    producer = rows["producer_id"][by_producer]
    attributes = rows["attributes"][by_producer]
    is_control = attributes & CONTROL_BIT != 0
    is_data = ~is_control
    in_transaction = is_data & (attributes & TRANSACTIONAL_BIT != 0)

    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = producer[1:] != producer[:-1]
    opens = in_transaction.copy()
    opens[1:] &= is_first[1:] | ~in_transaction[:-1]

    # The number of data batches from here on, this one included.
    after = np.cumsum(is_data[::-1])[::-1]
    last_of_producer = np.append(np.flatnonzero(is_first)[1:], len(rows)) - 1
    group = np.cumsum(is_first) - 1
    behind = np.append(after, 0)[last_of_producer + 1][group]
    is_recent = is_data & (after - behind <= REMEMBERED_BATCHES)

    lasting = np.empty(len(rows), np.bool_)
    lasting[by_producer] = is_control | opens | is_recent
    return lasting
