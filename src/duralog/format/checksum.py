"""The two checksums of Kafka's files: CRC-32 (v0 and v1 messages), CRC-32C (v2 batches and producer snapshots)."""

from __future__ import annotations

import zlib

import crc32c as _crc32c

from duralog.format.varint import Bytes


def crc32(data: Bytes) -> int:
    """CRC-32 as zlib, gzip and Ethernet compute it."""
    return zlib.crc32(data)


def crc32c(data: Bytes, before: int = 0) -> int:
    """CRC-32C, with Castagnoli's polynomial; of all the bytes so far, if `before` is that of those in front."""
    value: int = _crc32c.crc32c(data, before)
    return value
