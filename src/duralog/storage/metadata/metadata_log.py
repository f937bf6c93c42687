"""The bytes of the cluster metadata: batches of the log `__cluster_metadata-0`, and its snapshots.

The log is an ordinary partition log whose records are decoded by `format.internal.metadata_records`. Its control
batches belong to Kafka's quorum: they have offsets, and are ignored here. Kafka sometimes replaces the start of the log
by a snapshot, a file with the same kind of batches: it begins and ends with a control record, its offsets have no
meaning, and its name has the offset at which the log continues.

Snapshots are renamed into place when they are complete. So one without its last control record is damaged, as is a
batch with a wrong checksum. Both raise `CorruptRecord`: metadata is used completely or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from duralog.errors import CorruptRecord, Fault
from duralog.format import batches, control_records, record_batch
from duralog.format.batch import Batch
from duralog.format.control_records import ControlType
from duralog.format.filenames import MetadataSnapshotFile, SnapshotState, parse_metadata_snapshot_file
from duralog.format.internal.metadata_records import MetadataRecord, decode_metadata_record, encode_metadata_record
from duralog.format.record import Record
from duralog.format.varint import Bytes

METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The same in every cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSnapshot:
    """All metadata before `end_offset`, the last of it written by the leader of `epoch`."""

    end_offset: int
    epoch: int
    data: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataBatch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    records: Sequence[MetadataRecord]
    """Empty for a control batch."""


def newest_snapshot(names: Iterable[str]) -> MetadataSnapshotFile | None:
    """The newest complete snapshot, by the names of the files in the log's folder."""
    files = (parse_metadata_snapshot_file(name) for name in names)
    complete = [file for file in files if file is not None and file.state is SnapshotState.COMPLETE]
    return max(complete, key=lambda file: (file.end_offset, file.epoch), default=None)


def decode_snapshot(data: Bytes) -> list[MetadataRecord]:
    """The records of a snapshot, or of `bootstrap.checkpoint`."""
    records: list[MetadataRecord] = []
    first_control: int | None = None
    last_control: int | None = None
    end = 0
    for batch in batches.scan(data):
        end = batch.position + batch.size_bytes
        for record in _decode_records(data, batch):
            if batch.is_control:
                last_control = control_records.decode_type_id(record.key)
            else:
                last_control = None
                records.append(_decode_metadata_record(record, batch))
            if first_control is None:
                first_control = -1 if last_control is None else last_control
    for what, expected, found in (
        ("begin with a header", ControlType.SNAPSHOT_HEADER, first_control),
        ("end with a footer", ControlType.SNAPSHOT_FOOTER, last_control),
    ):
        if found != expected:
            raise CorruptRecord(
                f"a snapshot of the metadata does not {what}",
                position=end,
                expected=f"control record {int(expected)}",
                found="none" if found is None or found < 0 else f"control record {found}",
            )
    if end != len(data):
        raise CorruptRecord(
            "a snapshot of the metadata does not end with a complete batch",
            fault=Fault.TRAILING_BYTES,
            position=end,
            expected=0,
            found=f"{len(data) - end} bytes",
        )
    return records


def decode_batches(data: Bytes) -> Iterator[MetadataBatch]:
    """The complete batches of a piece of the log."""
    for batch in batches.scan(data):
        records = _decode_records(data, batch)
        yield MetadataBatch(
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            leader_epoch=batch.leader_epoch,
            records=[] if batch.is_control else [_decode_metadata_record(record, batch) for record in records],
        )


def encode_batch(records: Sequence[MetadataRecord], base_offset: int, leader_epoch: int, now_ms: int) -> bytes:
    """One batch. Kafka applies it atomically."""
    values = [Record(value=encode_metadata_record(record), timestamp_ms=now_ms) for record in records]
    return record_batch.encode(values, base_offset=base_offset, leader_epoch=leader_epoch)


def _decode_records(data: Bytes, batch: Batch) -> list[Record]:
    if not batch.crc_ok:
        raise CorruptRecord(
            "a batch of the metadata has a wrong checksum",
            fault=Fault.CRC_MISMATCH,
            position=batch.position,
            expected="the checksum of its bytes",
            found=f"{batch.crc:#010x}",
        )
    return batches.decode_records(data, batch)


def _decode_metadata_record(record: Record, batch: Batch) -> MetadataRecord:
    try:
        return decode_metadata_record(record.value)
    except CorruptRecord as error:
        where = "" if error.position is None else f" at byte {error.position} of its value"
        raise CorruptRecord(
            f"the metadata record of offset {record.offset} is damaged{where}: {error.reason}",
            fault=error.fault,
            position=batch.position,
            expected=error.expected,
            found=error.found,
        ) from None
