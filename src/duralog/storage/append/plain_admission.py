"""The fast path for what clients send nearly always: one uncompressed batch that needs no change.

It admits a batch only if `duralog.storage.append.batch_admission` would take it unchanged, except for offset and leader
epoch, and then does exactly the same. Anything else is left to `batch_admission`, which also makes the error messages.
The batch is not changed before that is decided.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from duralog.config import TopicConfig
from duralog.errors import Fault
from duralog.format.layout import BATCH_V2, NO_PRODUCER_ID, NO_TIMESTAMP, TRANSACTIONAL_BIT
from duralog.format.varint import Bytes
from duralog.kernels.validate import CONSECUTIVE, WITHOUT_KEY, inspect_batch
from duralog.storage.append.producer_batch import ProducerBatch
from duralog.storage.append.validation import ValidBatches

_NONE = int(Fault.NONE)
_INT64_MAX = 2**63 - 1
_BYTE = np.dtype(np.uint8)
_frombuffer = np.frombuffer
_unpack = BATCH_V2.struct.unpack_from
_STAMP = struct.Struct(">qii")
_stamp = _STAMP.pack_into
assert (BATCH_V2.at.base_offset, BATCH_V2.at.length, BATCH_V2.at.leader_epoch) == (0, 8, 12)

_as_valid: Callable[[tuple[object, ...]], ValidBatches] = partial(tuple.__new__, ValidBatches)
_as_producer_batch: Callable[[tuple[object, ...]], ProducerBatch] = partial(tuple.__new__, ProducerBatch)
"""Like `_make` of both, but twice as fast."""


class PlainRules(NamedTuple):
    """What the configs of a topic say about such a batch."""

    max_batch_bytes: int
    """-1 if the topic changes every batch: then there is no fast path."""
    before_max_ms: int
    after_max_ms: int
    refused_traits: int
    """Traits that records must not have."""


def plain_rules(config: TopicConfig) -> PlainRules:
    keeps = config.compression_type in ("producer", "uncompressed") and config.message_timestamp_type == "CreateTime"
    return PlainRules(
        config.max_message_bytes if keeps else -1,
        config.message_timestamp_before_max_ms,
        config.message_timestamp_after_max_ms,
        WITHOUT_KEY if "compact" in config.cleanup_policy else 0,
    )


def admit_plain(
    data: Bytes, rules: PlainRules, next_offset: int, leader_epoch: int, now_ms: int
) -> ValidBatches | None:
    """A client's batch with its offset and leader epoch written into it; None if the fast path does not apply."""
    if type(data) is bytes or (type(data) is memoryview and data.readonly):
        return None
    fault, _, smallest, largest, traits, size, _ = inspect_batch.run(_frombuffer(data, _BYTE), 0)
    max_bytes, before_max_ms, after_max_ms, refused_traits = rules
    if fault != _NONE or size != len(data) or size > max_bytes:
        return None
    (
        base_offset,
        length,
        _,
        _,
        _,
        attributes,
        last_delta,
        _,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = _unpack(data)
    last_offset = next_offset + last_delta
    if (
        attributes & ~TRANSACTIONAL_BIT
        or base_offset
        or record_count <= 0
        or record_count != last_delta + 1
        or last_offset > _INT64_MAX
        or max_timestamp != largest
        or not traits & CONSECUTIVE
        or traits & refused_traits
    ):
        return None
    if smallest != NO_TIMESTAMP and (now_ms - smallest > before_max_ms or largest - now_ms > after_max_ms):
        return None
    producer_batches: tuple[ProducerBatch, ...] = ()
    if producer_id > NO_PRODUCER_ID:
        if base_sequence < 0:
            return None
        batch = (producer_id, producer_epoch, base_sequence, next_offset, last_offset, largest, bool(attributes))
        producer_batches = (_as_producer_batch((*batch, None, False)),)
    _stamp(data, 0, next_offset, length, leader_epoch)
    extent = (0, size, last_offset, largest)
    return _as_valid(
        ((data,), (extent,), producer_batches, next_offset, last_offset, largest, NO_TIMESTAMP, size, None)
    )
