"""Records for a page: truncated, and each marked with the state of its transaction.

Control records are shown as markers, so that no offset seems to be missing. A batch that cannot be decompressed is
reported and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from duralog.columnar.pieces import Piece
from duralog.columnar.python_records import to_records
from duralog.console.facts.partitions import OpenTransactionFacts
from duralog.console.facts.records import SHOWN_BYTES, SHOWN_HEADERS, RecordKind, ShownRecord
from duralog.errors import CorruptRecord
from duralog.format.compression import Codec
from duralog.format.layout import CODEC_MASK, CONTROL_BIT, NO_PRODUCER_ID, TRANSACTIONAL_BIT
from duralog.format.record import Record
from duralog.storage.append.producer_batch import decode_marker, reader_of
from duralog.storage.log.view import LogView

_MOST_UNPACKED_BYTES = 128 << 20


class Cut(NamedTuple):
    """How much of a record is shown."""

    field_bytes: int = SHOWN_BYTES
    headers: int = SHOWN_HEADERS


def shown_records(
    piece: Piece,
    view: LogView,
    *,
    start_offset: int,
    end_offset: int,
    open_transactions: Callable[[], Sequence[OpenTransactionFacts]],
    on_damage: Callable[[CorruptRecord], None],
    cut: Cut,
) -> Iterator[ShownRecord]:
    """The records and markers of a piece from one offset up to, not including, the other. Not in order.

    `open_transactions` is asked only if a batch belongs to a transaction.
    """
    batches = piece.batches
    flags = np.where(batches["magic"] >= 2, batches["attributes"], 0)
    is_control = flags & CONTROL_BIT != 0
    kinds = _kinds(batches, flags, view, open_transactions)
    for row in np.flatnonzero(is_control).tolist():
        if start_offset <= batches["base_offset"][row] < end_offset:
            yield _marker(piece, row)
    data_rows = np.flatnonzero(~is_control)
    chunks = piece.decode(
        data_rows, max_decompressed_bytes=_MOST_UNPACKED_BYTES, on_corrupt=lambda error, _row: on_damage(error)
    )
    for chunk in chunks:
        offsets = chunk.columns.offset
        wanted = np.flatnonzero((offsets >= start_offset) & (offsets < end_offset))
        if not len(wanted):
            continue
        chosen = chunk.take(wanted)
        for record, row in zip(to_records(chosen), chosen.batch_row.tolist(), strict=True):
            batch = batches[row]
            yield shown_record(
                record,
                cut,
                codec=_codec(int(batch["attributes"])),
                kind=kinds.get(row, RecordKind.DATA),
                producer_id=_known(int(batch["producer_id"])) if batch["magic"] >= 2 else None,
            )


def shown_record(
    record: Record,
    cut: Cut,
    *,
    codec: str | None = None,
    kind: RecordKind = RecordKind.DATA,
    producer_id: int | None = None,
) -> ShownRecord:
    key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
    header_bytes = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    most = cut.field_bytes
    return ShownRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        timestamp_type=record.timestamp_type.label,
        key=record.key if key_bytes <= most else (record.key or b"")[:most],
        value=record.value if value_bytes <= most else (record.value or b"")[:most],
        headers=tuple(
            (name[:most], value if value is None else value[:most]) for name, value in record.headers[: cut.headers]
        ),
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        header_count=len(record.headers),
        size_bytes=key_bytes + value_bytes + header_bytes,
        is_tombstone=record.value is None and record.key is not None,
        codec=codec,
        kind=kind,
        producer_id=producer_id,
    )


def _kinds(
    batches: Any, flags: Any, view: LogView, open_transactions: Callable[[], Sequence[OpenTransactionFacts]]
) -> dict[int, RecordKind]:
    """The state of transactional batches, by row; committed ones are left out."""
    rows = np.flatnonzero(flags & (CONTROL_BIT | TRANSACTIONAL_BIT) == TRANSACTIONAL_BIT).tolist()
    if not rows:
        return {}
    first, last = int(batches["base_offset"][rows[0]]), int(batches["last_offset"][rows[-1]])
    kinds: dict[int, RecordKind] = {}
    aborted = view.aborted_transactions(first, last + 1)
    still_open = {transaction.producer_id: transaction.first_offset for transaction in open_transactions()}
    for row in rows:
        producer_id, offset = int(batches["producer_id"][row]), int(batches["base_offset"][row])
        if offset >= still_open.get(producer_id, offset + 1):
            kinds[row] = RecordKind.OPEN
        elif any(
            transaction.producer_id == producer_id and transaction.first_offset <= offset <= transaction.last_offset
            for transaction in aborted
        ):
            kinds[row] = RecordKind.ABORTED
    return kinds


def _marker(piece: Piece, row: int) -> ShownRecord:
    batch = piece.batches[row]
    found = None
    with suppress(CorruptRecord):
        found = decode_marker(reader_of(piece)(int(batch["position"]), int(batch["size"])))
    producer = f"producer {batch['producer_id']}, epoch {batch['producer_epoch']}"
    if found is not None:
        text = f"{found.type.name.lower()} of {producer}"
    else:
        text = f"a control record of {producer}" if batch["producer_id"] > NO_PRODUCER_ID else "a control record"
    return ShownRecord(
        offset=int(batch["base_offset"]),
        timestamp_ms=int(batch["max_timestamp"]),
        timestamp_type="CreateTime",
        key=None,
        value=None,
        headers=(),
        key_bytes=0,
        value_bytes=0,
        header_count=0,
        size_bytes=int(batch["size"]),
        is_tombstone=False,
        codec=_codec(int(batch["attributes"])),
        kind=RecordKind.MARKER,
        marker=text,
        producer_id=_known(int(batch["producer_id"])),
    )


def _codec(attributes: int) -> str | None:
    number = attributes & CODEC_MASK
    return Codec(number).label if number in set(Codec) else None


def _known(producer_id: int) -> int | None:
    return producer_id if producer_id > NO_PRODUCER_ID else None
