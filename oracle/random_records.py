"""Records with everything in them that the formats allow, and batches of them described for Kafka to write."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from duralog.format.record import Header, Record

Json = dict[str, Any]

_TEXT = 'abcdefghijklmnopqrstuvwxyz äöüß€中文\N{GRINNING FACE}\N{ZERO WIDTH JOINER}\0\n"\\'
_FIRST_TIMESTAMP_MS = 1_700_000_000_000


def random_records(
    rng: random.Random,
    count: int,
    *,
    base_offset: int,
    headers: bool = True,
    gaps: bool = False,
    largest_value_bytes: int = 2000,
) -> list[Record]:
    """Keys, values and headers null, empty, text or noise; timestamps that jump or are missing; perhaps offset gaps."""
    records = []
    offset = base_offset
    for _ in range(count):
        records.append(
            Record(
                offset=offset,
                timestamp_ms=_timestamp(rng),
                key=_content(rng, 30),
                value=_content(rng, largest_value_bytes),
                headers=_headers(rng) if headers else (),
            )
        )
        offset += rng.choice((1, 1, 1, 2, 130, 70_000)) if gaps else 1
    return records


def describe_batch(records: Sequence[Record], *, magic: int, **fields: Any) -> Json:
    """For `KafkaProcess.write`; the other fields are those of `java/BatchWriter.java`."""
    return {"magic": magic, "records": [_describe(record) for record in records], **fields}


def _describe(record: Record) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "headers": [[key.encode().hex(), None if value is None else value.hex()] for key, value in record.headers],
    }


def _timestamp(rng: random.Random) -> int:
    near = _FIRST_TIMESTAMP_MS + rng.randrange(-5000, 5000)
    return rng.choice((near, near, near, near, 0, -1, 2**53, _FIRST_TIMESTAMP_MS - 10**12))


def _content(rng: random.Random, largest: int) -> bytes | None:
    kind = rng.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    size = rng.randrange(1, largest)
    if kind == 2:
        return rng.randbytes(size)
    if kind == 3:
        return _text(rng, 12).encode() * (size // 12 + 1)
    return _text(rng, min(size, 90)).encode()


def _headers(rng: random.Random) -> tuple[Header, ...]:
    count = rng.choice((0, 0, 0, 1, 2, 5, 70))
    return tuple((_text(rng, rng.choice((0, 1, 8, 70))), _content(rng, 100)) for _ in range(count))


def _text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(_TEXT, k=length))
