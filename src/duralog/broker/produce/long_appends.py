"""Decides which appends of clients would block the loop: those run on a worker thread, in the queue of their partition.

These are batches that have to be recompressed, large ones that have to be unpacked, and appends that wait for a flush
(`flush.messages`). Whether the content of a batch takes long to check shows only during the check: on the loop, such a
check is given up (`TakesLong`) and repeated on a worker thread.

A small batch may unpack to gigabytes. So there is a limit to what a batch may unpack to, and only one batch at a time
may unpack to more than `UNPACKED_TOGETHER_BYTES`.
"""

from __future__ import annotations

import struct
from threading import Lock

from duralog.config import TopicConfig
from duralog.config.definitions import INT64_MAX
from duralog.errors import CorruptRecord, Fault
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from duralog.format.layout import BATCH_V2
from duralog.storage.append.rebuilding import target_codec
from duralog.storage.log.partition_log import AppendResult, PartitionLog

KEPT_AS_SENT = ("producer", "uncompressed")
"""Values of `compression.type` with which an uncompressed batch is stored unchanged."""
NEVER_FLUSHED = INT64_MAX
"""The value of `flush.messages` with which no append waits for the disk."""
_UNPACKED_ON_THE_LOOP = 64 << 10
"""Larger compressed batches are not checked on the loop."""
UNPACKED_TOGETHER_BYTES = 64 << 20
"""Every worker thread may unpack a batch to this size. Only one at a time may exceed it."""
LEAST_LIMIT_BYTES = 256 << 20
_LIMIT_PER_BYTE = 128
_one_large_batch = Lock()
_INT32 = struct.Struct(">i")


def takes_long(log: PartitionLog, records: memoryview, codec_id: int, size_bytes: int) -> bool:
    """REQUIRES: the records begin with a whole batch of the written format, of this codec and size."""
    config = log.config
    if config.compression_type != "producer" and codec_id != target_codec(config):
        return True
    if codec_id != 0 and size_bytes > _UNPACKED_ON_THE_LOOP:
        return True
    if config.flush_messages == NEVER_FLUSHED:
        return False
    (last_offset_delta,) = _INT32.unpack_from(records, BATCH_V2.at.last_offset_delta)
    return bool(log.end_offset + last_offset_delta + 1 - log.recovery_point >= config.flush_messages)


def unpacked_limit(config: TopicConfig) -> int:
    """What a client's batch may unpack to: 128 times `max.message.bytes`, from 256 MiB to what readers take.

    Kafka has no such limit. Honest data rarely shrinks so much, a stream of zeros does.
    """
    return min(max(config.max_message_bytes * _LIMIT_PER_BYTE, LEAST_LIMIT_BYTES), DEFAULT_MAX_DECOMPRESSED_BYTES)


def append_unpacked(log: PartitionLog, batch: bytearray, transaction_version: int) -> AppendResult:
    """Append a client's batch, on a worker thread."""
    try:
        return log.append_batches(
            batch, transaction_version=transaction_version, max_decompressed_bytes=UNPACKED_TOGETHER_BYTES
        )
    except CorruptRecord as error:
        if error.fault is not Fault.TOO_LARGE:
            raise
    with _one_large_batch:
        return log.append_batches(
            batch, transaction_version=transaction_version, max_decompressed_bytes=unpacked_limit(log.config)
        )
