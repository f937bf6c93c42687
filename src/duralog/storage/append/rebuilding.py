"""Rebuilds a client's batch with another codec, or with consecutive offsets.

The new batch keeps the producer's fields and the records. It has consecutive offsets, and its timestamps are relative
to that of the first record. If the bytes of the records stay the same, they are only compressed again.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import NamedTuple

from duralog.config import TopicConfig
from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, compress
from duralog.format.layout import BATCH_V2, CODEC_MASK, ENTRY_PREFIX, LOG_APPEND_TIME_BIT, NO_LEADER_EPOCH
from duralog.format.record import TimestampType
from duralog.format.varint import Bytes
from duralog.kernels.validate import CANONICAL, CONSECUTIVE

_CRC = struct.Struct(">I")


class Source(NamedTuple):
    """A client's batch that was found valid."""

    batch: memoryview
    """All of it."""
    records: Bytes
    """The decompressed records."""
    largest_timestamp_ms: int
    traits: int
    """Bits of `duralog.kernels.validate` for the records."""


def target_codec(config: TopicConfig) -> Codec:
    """The codec that the topic stores batches with. REQUIRES: `compression.type` is not `producer`."""
    return Codec.NONE if config.compression_type == "uncompressed" else Codec.named(config.compression_type)


def target_level(config: TopicConfig, codec: Codec) -> int | None:
    if codec is Codec.GZIP:
        return config.compression_gzip_level
    if codec is Codec.LZ4:
        return config.compression_lz4_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    return None


def keeps_records(attributes: int, traits: int) -> bool:
    """Whether the bytes of the records stay the same, so that no record has to be decoded."""
    return bool(traits & CONSECUTIVE and traits & CANONICAL and not attributes & LOG_APPEND_TIME_BIT)


def rebuild(source: Source, *, codec: Codec, level: int | None, append_time_ms: int | None) -> bytearray:
    """The new batch, with base offset 0. `append_time_ms` is for a topic with log append time.

    REQUIRES: the batch is not a control batch, and has as many offsets as records.
    """
    header = record_batch.decode_header(source.batch, 0)
    is_append_time = append_time_ms is not None
    if keeps_records(header.attributes, source.traits):
        body = compress(codec, source.records, level=level)
        attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_BIT) | codec
        return _seal(
            BATCH_V2.pack(
                0,
                BATCH_V2.size - ENTRY_PREFIX.size + len(body),
                NO_LEADER_EPOCH,
                record_batch.MAGIC,
                0,
                attributes | LOG_APPEND_TIME_BIT if is_append_time else attributes,
                header.last_offset - header.base_offset,
                header.base_timestamp_ms,
                source.largest_timestamp_ms if append_time_ms is None else append_time_ms,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.record_count,
            ),
            body,
        )
    records = [replace(record, offset=-1) for record in record_batch.decode_records(source.batch, header)]
    return bytearray(
        record_batch.encode(
            records,
            codec=codec,
            level=level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
            append_time_ms=append_time_ms,
            is_transactional=header.is_transactional,
        )
    )


def _seal(header: bytes, body: bytes) -> bytearray:
    batch = bytearray(header + body)
    _CRC.pack_into(batch, BATCH_V2.at.crc, crc32c(memoryview(batch)[BATCH_V2.at.attributes :]))
    return batch
