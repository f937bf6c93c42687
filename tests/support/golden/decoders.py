"""The decoders that read golden files, the plain one and the compiled one, in the words of the truth files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from duralog.columnar.pieces import MemorySource, read_pieces
from duralog.errors import CorruptRecord, Fault
from duralog.format import batches
from duralog.format.compression import Codec
from duralog.format.record import TimestampType

DELETE_HORIZON_BIT = 0x40


@dataclass
class Decoded:
    """A `.log` file as a decoder sees it, in the words of the truth files."""

    batches: list[dict[str, Any]]
    fault: CorruptRecord | None
    """What ended the scan before the file's end."""


def decode_by_reference(data: bytes) -> Decoded:
    seen: list[dict[str, Any]] = []
    try:
        for batch in batches.scan(data):
            records = [
                (r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in batches.decode_records(data, batch)
            ]
            seen.append(
                told(
                    position=batch.position,
                    size=batch.size_bytes,
                    magic=batch.magic,
                    attributes=batch.attributes,
                    base_offset=batch.base_offset,
                    last_offset=batch.last_offset,
                    base_timestamp=batch.base_timestamp_ms,
                    max_timestamp=batch.max_timestamp_ms,
                    crc=batch.crc,
                    crc_ok=batch.crc_ok,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    base_sequence=batch.base_sequence,
                    leader_epoch=batch.leader_epoch,
                    record_count=batch.record_count,
                    records=records,
                )
            )
    except CorruptRecord as fault:
        return Decoded(seen, fault)
    return Decoded(seen, None)


def decode_by_kernel(data: bytes, piece_bytes: int) -> Decoded:
    seen: list[dict[str, Any]] = []
    for piece in read_pieces(MemorySource(data), piece_bytes=piece_bytes):
        records: list[list[Any]] = [[] for _ in piece.batches]
        for decoded in piece.decode():
            table = decoded.to_arrow()
            timestamps = table.column("timestamp").cast(pa.int64()).fill_null(-1)
            for row, offset, timestamp, key, value, headers in zip(
                decoded.batch_row.tolist(),
                table.column("offset").to_pylist(),
                timestamps.to_pylist(),
                table.column("key").to_pylist(),
                table.column("value").to_pylist(),
                table.column("headers").to_pylist(),
                strict=True,
            ):
                records[row].append((offset, timestamp, key, value, [(h["key"], h["value"]) for h in headers]))
        for row, batch in enumerate(piece.batches):
            fields = {name: batch[name].item() for name in piece.batches.dtype.names or ()}
            seen.append(told(**{**fields, "crc_ok": fields["crc_ok"] == 1}, records=records[row]))
        if piece.fault is not None:
            return Decoded(seen, piece.fault)
    return Decoded(seen, None)


@dataclass
class Scanned:
    """Where a scan found batches, and how it ended."""

    positions: list[int]
    crc_bad: list[int]
    """The positions of those whose checksum is wrong."""
    fault: tuple[Fault, int | None] | None
    tail_bytes: int


def scan_by_reference(data: bytes) -> Scanned:
    scanned = Scanned([], [], None, len(data))
    try:
        for batch in batches.scan(data):
            scanned.positions.append(batch.position)
            if not batch.crc_ok:
                scanned.crc_bad.append(batch.position)
            scanned.tail_bytes = len(data) - batch.position - batch.size_bytes
    except CorruptRecord as error:
        scanned.fault = (error.fault, error.position)
    return scanned


def scan_by_kernel(data: bytes, piece_bytes: int) -> Scanned:
    scanned = Scanned([], [], None, 0)
    for piece in read_pieces(MemorySource(data), piece_bytes=piece_bytes):
        scanned.positions += piece.batches["position"].tolist()
        scanned.crc_bad += piece.batches["position"][piece.batches["crc_ok"] == 0].tolist()
        scanned.fault = None if piece.fault is None else (piece.fault.fault, piece.fault.position)
        scanned.tail_bytes = piece.tail_bytes
    return scanned


SMALL_PIECE_BYTES = 10_000
LARGE_PIECE_BYTES = 32 << 20

SCANNERS: dict[str, Callable[[bytes], Scanned]] = {
    "reference": scan_by_reference,
    "kernel": lambda data: scan_by_kernel(data, LARGE_PIECE_BYTES),
    "kernel-in-small-pieces": lambda data: scan_by_kernel(data, SMALL_PIECE_BYTES),
}
DECODERS: dict[str, Callable[[bytes], Decoded]] = {
    "reference": decode_by_reference,
    "kernel": lambda data: decode_by_kernel(data, LARGE_PIECE_BYTES),
    "kernel-in-small-pieces": lambda data: decode_by_kernel(data, SMALL_PIECE_BYTES),
}


def told(
    *,
    position: int,
    size: int,
    magic: int,
    attributes: int,
    base_offset: int,
    last_offset: int,
    base_timestamp: int,
    max_timestamp: int,
    crc: int,
    crc_ok: bool,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    leader_epoch: int,
    record_count: int,
    records: list[Any],
) -> dict[str, Any]:
    """A batch in the words of the truth files, which are those of Kafka's own reader."""
    is_wrapper = magic < 2 and attributes & 7 != 0
    if is_wrapper:
        assert base_offset == -1
        assert record_count == -1
        base_offset = records[0][0]
    else:
        assert record_count == len(records)
    timestamp_type = TimestampType.NONE if magic == 0 else TimestampType(attributes >> 3 & 1)
    return {
        "position": position,
        "size": size,
        "magic": magic,
        "base_offset": base_offset,
        "last_offset": last_offset,
        "codec": Codec(attributes & 7).label,
        "timestamp_type": timestamp_type.label,
        "max_timestamp": max_timestamp,
        "checksum": crc,
        "valid": crc_ok,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "last_sequence": _sequence(base_sequence, last_offset - base_offset),
        "transactional": bool(attributes & 0x10) and magic == 2,
        "control": bool(attributes & 0x20) and magic == 2,
        "partition_leader_epoch": leader_epoch,
        "count": record_count if magic == 2 else None,
        "delete_horizon_ms": base_timestamp if magic == 2 and attributes & DELETE_HORIZON_BIT else None,
        "records": [
            {
                "offset": offset,
                "timestamp": timestamp,
                "sequence": _sequence(base_sequence, offset - base_offset),
                "key": _digest(key),
                "value": _digest(value),
                "headers": [[_digest(name.encode()), _digest(content)] for name, content in headers],
            }
            for offset, timestamp, key, value, headers in records
        ],
    }


def _sequence(base_sequence: int, delta: int) -> int:
    return -1 if base_sequence == -1 else (base_sequence + delta) % 2**31


def _digest(content: bytes | None) -> str | None:
    if content is None:
        return None
    if len(content) <= 40:
        return content.hex()
    return f"sha1:{hashlib.sha1(content).hexdigest()}:{len(content)}"
