"""Which appends of clients would keep the loop busy: those run beside it, in their partition's own line.

That is what has to be compressed anew, what has to be unpacked and is large, and what the disk is waited for
(`flush.messages`). What takes long for what is in the batch shows only while it is checked: on the loop, that is given
up then (`TakesLong`) and begun anew beside it.
"""

from __future__ import annotations

import struct

from duralog.broker.produce_rules import Frame
from duralog.config.definitions import INT64_MAX
from duralog.format.layout import BATCH_V2
from duralog.storage.partition_log import PartitionLog
from duralog.storage.rebuilding import target_codec

KEPT_AS_SENT = ("producer", "uncompressed")
"""Values of `compression.type` by which an uncompressed batch stays as it is."""
NEVER_FLUSHED = INT64_MAX
"""The value of `flush.messages` by which no append waits for the disk."""
_UNPACKED_ON_THE_LOOP = 64 << 10
"""Larger batches that are compressed are not begun on the loop."""
_INT32 = struct.Struct(">i")


def takes_long(log: PartitionLog, records: memoryview, frame: Frame) -> bool:
    """REQUIRES: `frame` is that of a whole batch of the written format, with which the records begin."""
    config = log.config
    if config.compression_type != "producer" and frame.codec_id != target_codec(config):
        return True
    if frame.codec_id != 0 and frame.size_bytes > _UNPACKED_ON_THE_LOOP:
        return True
    if config.flush_messages == NEVER_FLUSHED:
        return False
    (last_offset_delta,) = _INT32.unpack_from(records, BATCH_V2.at.last_offset_delta)
    return bool(log.end_offset + last_offset_delta + 1 - log.recovery_point >= config.flush_messages)
