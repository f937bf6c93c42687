"""What duralog sees in the bytes of a log, in the words in which Kafka's reader tells the same.

`by_reference` uses the plain decoder, `by_kernels` the compiled one. Like Kafka's answer, theirs has `batches`, each
with its `records` or an `error`, an `error` of its own where the scan could not go on, and the `end` of the last whole
batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.errors import CorruptRecord
from duralog.format import batches
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType

Json = dict[str, Any]

_LONGEST_IN_FULL = 40


def by_reference(data: bytes) -> Json:
    answer: Json = {"batches": [], "end": 0, "size": len(data)}
    try:
        for batch in batches.scan(data):
            told = _header(batch)
            try:
                if not batch.crc_ok:
                    raise CorruptRecord("wrong checksum")
                _add_records(told, batch, batches.decode_records(data, batch))
            except CorruptRecord as error:
                told["error"] = str(error)
            answer["batches"].append(told)
            answer["end"] = batch.position + batch.size_bytes
    except CorruptRecord as error:
        answer["error"] = str(error)
    return answer


def by_kernels(data: bytes) -> Json:
    answer: Json = {"batches": [], "end": 0, "size": len(data)}
    for piece in read_pieces(MemorySource(data)):
        for told in _told_by_kernels(piece):
            answer["batches"].append(told)
            answer["end"] = told["position"] + told["size"]
        if piece.fault is not None:
            answer["error"] = str(piece.fault)
    return answer


def _told_by_kernels(piece: Piece) -> Iterator[Json]:
    errors: dict[int, CorruptRecord] = {}
    records: list[list[Record]] = [[] for _ in piece.batches]

    def on_corrupt(error: CorruptRecord, row: int) -> None:
        errors[row] = error

    for decoded in piece.decode(on_corrupt=on_corrupt):
        for row, record in zip(decoded.batch_row.tolist(), _records(decoded.to_arrow()), strict=True):
            records[row].append(record)
    for row, fields in enumerate(piece.batches):
        batch = _batch(fields)
        told = _header(batch)
        if row in errors:
            told["error"] = str(errors[row])
        else:
            _add_records(told, batch, records[row])
        yield told


READERS: Mapping[str, Callable[[bytes], Json]] = {"reference": by_reference, "kernels": by_kernels}


def shown(content: bytes | None) -> str | None:
    """Keys, values and headers as the truth files have them."""
    if content is None or len(content) <= _LONGEST_IN_FULL:
        return None if content is None else content.hex()
    return f"sha1:{hashlib.sha1(content).hexdigest()}:{len(content)}"


def told_record(record: Record, sequence: int = -1) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "sequence": sequence,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[key.encode().hex(), shown(value)] for key, value in record.headers],
    }


def _header(batch: Batch) -> Json:
    return {
        "position": batch.position,
        "size": batch.size_bytes,
        "magic": batch.magic,
        "valid": batch.crc_ok,
        "last_offset": batch.last_offset,
        "codec": Codec(batch.codec_id).label if batch.codec_id in list(Codec) else None,
        "timestamp_type": batch.timestamp_type.label,
        "max_timestamp": batch.max_timestamp_ms,
        "checksum": batch.crc,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "partition_leader_epoch": batch.leader_epoch,
        # Kafka tells no count for the old formats.
        "count": batch.record_count if batch.magic == 2 else None,
        "delete_horizon_ms": batch.delete_horizon_ms,
    }


def _add_records(told: Json, batch: Batch, records: Sequence[Record]) -> None:
    # A compressed message tells its first offset only through its records.
    told["base_offset"] = batch.base_offset if batch.base_offset != -1 else records[0].offset
    told["records"] = [told_record(record, _sequence(batch, record)) for record in records]


def _sequence(batch: Batch, record: Record) -> int:
    if batch.base_sequence < 0:
        return -1
    return (batch.base_sequence + record.offset - batch.base_offset) % 2**31


def _batch(fields: Any) -> Batch:
    return Batch(
        position=int(fields["position"]),
        size_bytes=int(fields["size"]),
        magic=int(fields["magic"]),
        attributes=int(fields["attributes"]),
        base_offset=int(fields["base_offset"]),
        last_offset=int(fields["last_offset"]),
        crc=int(fields["crc"]),
        crc_ok=int(fields["crc_ok"]) == 1,
        base_timestamp_ms=int(fields["base_timestamp"]),
        max_timestamp_ms=int(fields["max_timestamp"]),
        record_count=int(fields["record_count"]),
        leader_epoch=int(fields["leader_epoch"]),
        producer_id=int(fields["producer_id"]),
        producer_epoch=int(fields["producer_epoch"]),
        base_sequence=int(fields["base_sequence"]),
    )


def _records(rows: pa.RecordBatch) -> list[Record]:
    """Arrow rows as records. `None` of a timestamp is -1 in Kafka's words."""
    timestamps = rows.column("timestamp").cast(pa.int64()).fill_null(-1).to_pylist()
    columns = [rows.column(name).to_pylist() for name in ("offset", "timestamp_type", "key", "value", "headers")]
    return [
        Record(
            offset=offset,
            timestamp_ms=timestamp,
            timestamp_type=TimestampType(timestamp_type),
            key=key,
            value=value,
            headers=[(header["key"], header["value"]) for header in headers],
        )
        for timestamp, offset, timestamp_type, key, value, headers in zip(timestamps, *columns, strict=True)
    ]
