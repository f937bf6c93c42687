"""Turns a kernel's fault into an error for people.

A kernel returns the fault and its position. The reference in `duralog.format` decodes that one place again and says
what was expected and found: the messages are in one place, and an error decodes one record again, not one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duralog.errors import CorruptRecord, Fault
from duralog.format import message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.batches import decode_records
from duralog.format.checksum import crc32, crc32c
from duralog.format.framing import whole_batch_bytes
from duralog.format.layout import BATCH_V2, ENTRY_PREFIX, MESSAGE_V0

OnCorruptBatch = Callable[[CorruptRecord, int], None]


@dataclass(frozen=True, slots=True)
class Refusals:
    """Reports the corrupt batches of a piece: to the caller's function or, without one, as an error."""

    file: str
    batches: NDArray[Any]
    on_corrupt: OnCorruptBatch | None

    def refuse(self, row: int, error: CorruptRecord, *, position: int | None = None) -> None:
        """Of the batch `row`; `position` is that of the fault in the file, where it is not the batch's."""
        error_in_file = CorruptRecord(
            error.reason,
            fault=error.fault,
            file=self.file,
            position=int(self.batches["position"][row]) if position is None else position,
            expected=error.expected,
            found=error.found,
        )
        if self.on_corrupt is None:
            raise error_in_file
        self.on_corrupt(error_in_file, int(row))


def batch_of(row: Any, position: int) -> Batch:
    """A row of a scan as the reference's `Batch`, at this position."""
    return Batch(
        position=position,
        size_bytes=int(row["size"]),
        magic=int(row["magic"]),
        attributes=int(row["attributes"]),
        base_offset=int(row["base_offset"]),
        last_offset=int(row["last_offset"]),
        crc=int(row["crc"]),
        crc_ok=bool(row["crc_ok"]),
        base_timestamp_ms=int(row["base_timestamp"]),
        max_timestamp_ms=int(row["max_timestamp"]),
        record_count=int(row["record_count"]),
        leader_epoch=int(row["leader_epoch"]),
        producer_id=int(row["producer_id"]),
        producer_epoch=int(row["producer_epoch"]),
        base_sequence=int(row["base_sequence"]),
    )


def scan_fault(data: NDArray[np.uint8], position: int, fault: Fault) -> CorruptRecord:
    """The error if no batch can start here."""
    return _described(fault, lambda: whole_batch_bytes(data.data, position, len(data)))


def wrong_checksum(row: Any, batch: NDArray[np.uint8]) -> CorruptRecord:
    if row["magic"] == record_batch.MAGIC:
        computed = crc32c(batch[BATCH_V2.at.attributes :].data)
    else:
        computed = crc32(batch[MESSAGE_V0.at.magic :].data)
    return CorruptRecord(
        "wrong checksum", fault=Fault.CRC_MISMATCH, expected=f"{computed:#010x}", found=f"{row['crc']:#010x}"
    )


def batch_fault(fault: Fault, batch: NDArray[np.uint8], row: Any) -> CorruptRecord:
    """Of a batch or message as a whole. REQUIRES: the fault lies before anything is decompressed."""
    return _described(fault, lambda: decode_records(batch.data, batch_of(row, 0)))


def record_fault(fault: Fault, data: NDArray[np.uint8], position: int, end: int, row: Any) -> CorruptRecord:
    """Of the v2 record at `position`, or of what follows the last one there."""
    if fault is Fault.TRAILING_BYTES:
        return CorruptRecord("bytes are left after the last record", fault=fault, expected=0, found=end - position)
    if fault is Fault.RECORD_COUNT:
        room = end - position
        expected = f"0 to {room // record_batch.MIN_RECORD_BYTES} in {room} bytes"
        return CorruptRecord("impossible record count", fault=fault, expected=expected, found=int(row["record_count"]))
    return _described(fault, lambda: record_batch.decode_record(data.data, position, end, batch_of(row, 0)))


def inner_fault(fault: Fault, content: NDArray[np.uint8], position: int, row: Any) -> CorruptRecord:
    """Of the message at `position` among those that a wrapper unpacked to; of the last one, if they fail together."""
    if fault is Fault.RECORD_COUNT:
        return CorruptRecord(
            "a compressed message with nothing inside", fault=fault, expected="a message", found="none"
        )
    wrapper = batch_of(row, 0)
    if fault is Fault.INNER_OFFSET:
        last_offset, _ = ENTRY_PREFIX.unpack(content, position)
        return CorruptRecord(
            "a compressed message's offset is smaller than its last inner one",
            fault=fault,
            expected=f"at least {last_offset}",
            found=wrapper.last_offset,
        )
    error = _described(fault, lambda: message_set.decode_inner_message(content.data, position, len(content), wrapper))
    error.reason += f" at byte {position} of the decompressed messages"
    return error


def _described(fault: Fault, decode: Callable[[], object]) -> CorruptRecord:
    """The reference's error. If the reference finds no fault where the kernel did, the batch is still refused."""
    try:
        decode()
    except CorruptRecord as error:
        if error.fault is fault:
            return error
    return CorruptRecord(fault.name.lower().replace("_", " "), fault=fault)
