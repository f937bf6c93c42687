"""Damaged batches behind right checksums: duralog accepts what Kafka accepts, with the same records, and nothing more.

The differences are few, on purpose, and all of one kind: duralog refuses what Kafka reads over.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duralog.format import message_set, record_batch
from duralog.format.batches import scan
from duralog.format.checksum import crc32
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2, MESSAGE_V0
from oracle.hostile_batches import hostile_batches, seal
from oracle.kafka_process import KafkaProcess
from oracle.random_records import random_records

pytestmark = pytest.mark.interop

Json = dict[str, Any]
Read = Callable[[bytes], Json]

HOSTILE = hostile_batches()

LEFT_OVER = "bytes that no record claims were written by mistake, or are records that would be lost silently"
STRICTER = {
    "v2: magic 3": "Kafka takes every later version for v2; what a later version will mean is not known",
    "v2: record count 0, with records": LEFT_OVER,
    **{
        f"v2: {codec}, no records and no bytes": "an empty stream is not one of this codec; Kafka does not look"
        for codec in ("gzip", "snappy", "lz4", "zstd")
    },
    **{
        f"v{magic}: {name}": reason
        for magic in (0, 1)
        for name, reason in {
            "bytes behind the value": LEFT_OVER,
            "wrapper, bytes behind the value": LEFT_OVER,
            "wrapper, bytes behind the value inside": LEFT_OVER,
            "wrapper, half a message inside": LEFT_OVER,
            "wrapper, a few bytes behind the messages inside": LEFT_OVER,
            "wrapper, the other magic inside": "no writer mixes formats; timestamps would appear or vanish",
        }.items()
    },
}
"""What Kafka accepts and duralog refuses, and why."""

OTHER_TEXT = {"v2: header key is a surrogate"}
"""Both replace bytes that are not UTF-8. Of an encoded surrogate Java makes one replacement character, Python three."""


def accepted(answer: Json) -> bool:
    """Whether a reader takes the bytes: all of them as one batch whose checksum and records are right."""
    batches = answer["batches"]
    return "error" not in answer and len(batches) > 0 and all("error" not in one and one["valid"] for one in batches)


@pytest.mark.parametrize("name", HOSTILE)
def test_acceptance(kafka: KafkaProcess, tmp_path: Path, read: Read, name: str) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(HOSTILE[name])
    theirs, ours = kafka.read(path), read(HOSTILE[name])
    if name in STRICTER:
        assert accepted(theirs)
        assert not accepted(ours)
    elif name in OTHER_TEXT:
        assert accepted(theirs)
        assert accepted(ours)
    elif accepted(theirs):
        assert ours == theirs
    else:
        assert not accepted(ours)


def test_the_differences_name_batches() -> None:
    assert HOSTILE.keys() >= STRICTER.keys() | OTHER_TEXT


def damaged_v2(rng: random.Random, codec: Codec) -> bytes:
    """A batch with a few bytes changed anywhere behind its checksum."""
    records = random_records(rng, rng.randrange(1, 6), base_offset=9, largest_value_bytes=120)
    whole = bytearray(record_batch.encode(records, base_offset=9, codec=codec))
    _damage(rng, whole, BATCH_V2.at.attributes)
    return seal(whole)


def damaged_message(rng: random.Random, magic: int, codec: Codec) -> bytes:
    records = random_records(rng, rng.randrange(1, 6), base_offset=9, headers=False, largest_value_bytes=120)
    whole = bytearray(message_set.encode(records if codec else records[:1], magic=magic, base_offset=9, codec=codec))
    _damage(rng, whole, MESSAGE_V0.at.attributes)
    struct.pack_into(">I", whole, MESSAGE_V0.at.crc, crc32(bytes(whole[MESSAGE_V0.at.magic :])))
    return bytes(whole)


def _damage(rng: random.Random, whole: bytearray, start: int) -> None:
    for _ in range(rng.choice((1, 1, 2, 5))):
        position = rng.randrange(start, len(whole))
        whole[position] = rng.choice((whole[position] ^ 1 << rng.randrange(8), 0, 0xFF, 0x7F, 0x80, rng.randrange(256)))


def is_stricter_here(theirs: Json, error: str) -> bool:
    """The same differences as above, where chance makes them, and one more: Java ignores gzip's reserved flags."""
    if theirs["magic"] == 2 and theirs["count"] == 0:
        return True
    known = ("fields end before the message does", "is cut off", "of another format inside", "unknown header flags set")
    return any(words in error for words in known)


def comparable(batch: Json) -> Json:
    """Without what means nothing once it is damaged: what follows a negative sequence, how bad UTF-8 is replaced."""
    replaced = re.compile("(?:efbfbd)+")
    records = [
        {**record, "headers": [[replaced.sub("?", key), value] for key, value in record["headers"]]}
        for record in batch["records"]
    ]
    last_sequence = batch["last_sequence"] if batch["base_sequence"] >= 0 else None
    return {**batch, "last_sequence": last_sequence, "records": records}


def damaged(randomised: int) -> Iterator[tuple[str, bytes]]:
    """Files of many damaged batches each: one reading by Kafka judges them all."""
    kinds: list[tuple[str, Callable[[random.Random], bytes]]] = [
        (f"v2 {codec.label}", partial(damaged_v2, codec=codec)) for codec in Codec
    ]
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            name = f"v{magic} {codec.label}"
            kinds.append((name, partial(damaged_message, magic=magic, codec=codec)))
    for name, make in kinds:
        rng = random.Random(name)
        for _ in range(randomised):
            yield name, b"".join(make(rng) for _ in range(300))


def test_random_damage(kafka: KafkaProcess, tmp_path: Path, read: Read, randomised: int) -> None:
    verdicts = {True: 0, False: 0}
    for name, data in damaged(randomised):
        path = tmp_path / "0.log"
        path.write_bytes(data)
        theirs, ours = kafka.read(path)["batches"], read(data)["batches"]
        assert len(theirs) == len(ours) == 300 == sum(1 for _ in scan(data))
        for their, our in zip(theirs, ours, strict=True):
            is_accepted = "error" not in their
            verdicts[is_accepted] += 1
            if not is_accepted:
                assert "error" in our, f"{name}: Kafka says {their['error']}"
            elif "error" not in our:
                assert comparable(our) == comparable(their), name
            else:
                assert is_stricter_here(their, our["error"]), f"{name}: {our['error']}"
    assert min(verdicts.values()) > 500 * randomised
