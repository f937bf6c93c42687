"""What the header of a batch says, the same for all three formats.

A v0 or v1 message is a batch of its own: a plain one holds one record, a compressed one ("wrapper") holds many.
"""

from __future__ import annotations

from dataclasses import dataclass

from duralog.format.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from duralog.format.record import TimestampType

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch's place and header. Nothing of its records is decoded."""

    position: int
    """Where the batch starts in its buffer."""
    size_bytes: int
    """All of it, the 12-byte prefix included."""
    magic: int
    attributes: int
    base_offset: int
    """The first offset; -1 for a wrapper: it is not known before decompression."""
    last_offset: int
    crc: int
    """As stored."""
    crc_ok: bool
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int
    """-1 for a wrapper."""
    leader_epoch: int = NO_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones or the marker inside may go, once compaction has set it."""
        if self.magic >= 2 and self.attributes & DELETE_HORIZON_BIT:
            return self.base_timestamp_ms
        return None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, which wraps from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        last = self.base_sequence + (self.last_offset - self.base_offset)
        return last if last <= _INT32_MAX else last - _INT32_MAX - 1
