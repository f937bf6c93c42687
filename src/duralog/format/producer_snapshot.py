"""The `.snapshot` file: what a partition knows of its producers at one offset.

It lets a restart check sequence numbers and find open transactions without reading the whole log. Kafka writes
one at each roll and at a clean close. It is written in place, not renamed into place, so a crash can leave
half of one. Its checksum is wrong then: it is discarded, and an older one is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duralog.errors import CorruptRecord, Fault
from duralog.format.checksum import crc32c
from duralog.format.layout import PRODUCER_SNAPSHOT_ENTRY, PRODUCER_SNAPSHOT_HEADER
from duralog.format.varint import Bytes

PRODUCER_SNAPSHOT_VERSION = 1

_CRC_START = PRODUCER_SNAPSHOT_HEADER.at.entry_count
_ENTRIES_START = PRODUCER_SNAPSHOT_HEADER.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """One producer's state. -1 stands for "none", in the file and here."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    """The last offset of its last data batch."""
    offset_delta: int
    """That batch's last offset minus its first; 0 for none."""
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int
    """Where its open transaction starts."""

    @property
    def first_sequence(self) -> int:
        """The first sequence number of its last data batch, wrapping below 0 to 2^31-1; -1 for none."""
        if self.last_offset < 0 or self.last_sequence < 0:
            return -1
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + 2**31


def decode_producer_snapshot(data: Bytes) -> tuple[ProducerEntry, ...]:
    """The producers, in the file's order, which means nothing. Everything is checked first: all or none."""
    if len(data) < _ENTRIES_START:
        raise CorruptRecord(
            "a producer snapshot ends inside its header",
            fault=Fault.FIELD_LENGTH,
            position=0,
            expected=f"{_ENTRIES_START} bytes or more",
            found=f"{len(data)} bytes",
        )
    version, crc, entry_count = PRODUCER_SNAPSHOT_HEADER.unpack(data)
    if version != PRODUCER_SNAPSHOT_VERSION:
        raise CorruptRecord(
            "a producer snapshot has an unknown version",
            position=PRODUCER_SNAPSHOT_HEADER.at.version,
            expected=PRODUCER_SNAPSHOT_VERSION,
            found=version,
        )
    computed = crc32c(memoryview(data)[_CRC_START:])
    if computed != crc:
        raise CorruptRecord(
            "a producer snapshot's checksum is wrong",
            fault=Fault.CRC_MISMATCH,
            position=PRODUCER_SNAPSHOT_HEADER.at.crc,
            expected=f"{crc:#010x}",
            found=f"{computed:#010x}",
        )
    entries_bytes = len(data) - _ENTRIES_START
    if entry_count < 0 or entry_count * PRODUCER_SNAPSHOT_ENTRY.size != entries_bytes:
        raise CorruptRecord(
            "a producer snapshot's entry count does not fit its size",
            fault=Fault.RECORD_COUNT,
            position=PRODUCER_SNAPSHOT_HEADER.at.entry_count,
            expected=f"{entries_bytes / PRODUCER_SNAPSHOT_ENTRY.size:g} entries",
            found=entry_count,
        )
    return tuple(
        ProducerEntry(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_sequence=last_sequence,
            last_offset=last_offset,
            offset_delta=offset_delta,
            timestamp_ms=timestamp_ms,
            coordinator_epoch=coordinator_epoch,
            transaction_first_offset=transaction_first_offset,
        )
        for (
            producer_id,
            producer_epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp_ms,
            coordinator_epoch,
            transaction_first_offset,
        ) in PRODUCER_SNAPSHOT_ENTRY.struct.iter_unpack(memoryview(data)[_ENTRIES_START:])
    )


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    return encode_producer_fields(
        (
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in entries
    )


def encode_producer_fields(producers: Iterable[tuple[int, ...]]) -> bytes:
    """The same of producers whose fields are in the order of `ProducerEntry`: there may be very many."""
    pack = PRODUCER_SNAPSHOT_ENTRY.struct.pack
    body = b"".join([pack(*fields) for fields in producers])
    count = len(body) // PRODUCER_SNAPSHOT_ENTRY.size
    checked = PRODUCER_SNAPSHOT_HEADER.pack(PRODUCER_SNAPSHOT_VERSION, 0, count)[_CRC_START:] + body
    return PRODUCER_SNAPSHOT_HEADER.pack(PRODUCER_SNAPSHOT_VERSION, crc32c(checked), count) + body
