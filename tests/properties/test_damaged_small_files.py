"""Every decoder of what is not a log, over damaged golden files: a value or a `CorruptRecord`, in little memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from duralog.errors import CorruptRecord
from duralog.format import batches
from duralog.format.checkpoints import decode_leader_epoch_checkpoint, decode_offset_checkpoint
from duralog.format.checksum import crc32c
from duralog.format.control_records import decode as decode_control_record
from duralog.format.index_entries import decode_offset_index, decode_time_index, decode_transaction_index
from duralog.format.internal.internal_topics import describe_record
from duralog.format.java_properties import decode_properties
from duralog.format.layout import PRODUCER_SNAPSHOT_HEADER
from duralog.format.producer_snapshot import decode_producer_snapshot
from duralog.format.properties import decode_meta_properties, decode_partition_metadata
from tests.support.places import GOLDEN

STORE = GOLDEN / "store"
DAMAGED_FILES = 300
"""For each kind of file."""
FILE_BYTES = 2048
MEMORY_BYTES = 8 << 20
"""Far more than any of these small files needs, and far less than a count that was believed would take."""

Decoder = Callable[[bytes], object]


def files(pattern: str) -> list[bytes]:
    found = [path.read_bytes()[:FILE_BYTES] for path in sorted(STORE.glob(pattern))]
    return [content for content in found if content]


def records(topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    for path in sorted(STORE.glob(f"{topic}-*/*.log")):
        log = path.read_bytes()
        for batch in batches.scan(log):
            if not batch.is_control:
                yield from ((record.key, record.value) for record in batches.decode_records(log, batch))


def control_records() -> Iterator[tuple[bytes | None, bytes | None]]:
    for path in sorted(STORE.glob("*/*.log")):
        log = path.read_bytes()
        for batch in batches.scan(log):
            if batch.is_control:
                yield from ((record.key, record.value) for record in batches.decode_records(log, batch))


def sealed_snapshot(data: bytes) -> bytes:
    """With the right checksum, so that what lies behind it is looked at."""
    if len(data) < PRODUCER_SNAPSHOT_HEADER.size:
        return data
    checked = PRODUCER_SNAPSHOT_HEADER.at.entry_count
    return data[:2] + crc32c(data[checked:]).to_bytes(4, "big") + data[checked:]


CASES: dict[str, tuple[Callable[[], list[bytes]], Decoder]] = {
    "offset index": (lambda: files("*/*.index"), lambda data: list(decode_offset_index(data, 0))),
    "time index": (lambda: files("*/*.timeindex"), lambda data: list(decode_time_index(data, 0))),
    "transaction index": (lambda: files("*/*.txnindex"), lambda data: list(decode_transaction_index(data, 0))),
    "snapshot": (lambda: files("*/*.snapshot"), decode_producer_snapshot),
    "snapshot behind its checksum": (
        lambda: files("*/*.snapshot"),
        lambda data: decode_producer_snapshot(sealed_snapshot(data)),
    ),
    "offset checkpoint": (lambda: files("*-offset-checkpoint"), decode_offset_checkpoint),
    "leader epochs": (lambda: files("*/leader-epoch-checkpoint"), decode_leader_epoch_checkpoint),
    "partition.metadata": (lambda: files("*/partition.metadata"), decode_partition_metadata),
    "meta.properties": (lambda: files("meta.properties"), decode_meta_properties),
    "properties": (lambda: files("meta.properties"), decode_properties),
}


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if at < len(changed):
                changed[at] = chance.randrange(256)
            case 1:
                changed[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 4, bytes(4)))
            case 2:
                changed[at : at + 5] = chance.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80" * 5))
            case 3:
                del changed[at:]
            case _:
                changed[at:at] = chance.choice(
                    (b" ", b"\n", b"\\", b"\\u12", b"\xff\xfe", b"0", b"-", b"99999999999999999999")
                )
    return bytes(changed)


@pytest.fixture
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("case", CASES)
def test_damaged_files(case: str, randomised: int) -> None:
    samples, decode = CASES[case]
    originals = samples()
    for original in originals:
        decode(original)
    refused = 0
    for seed in range(DAMAGED_FILES * randomised):
        chance = random.Random(seed)
        try:
            decode(damaged(chance.choice(originals), chance))
        except CorruptRecord:
            refused += 1
    assert refused > 0


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_damaged_internal_records(topic: str, randomised: int) -> None:
    originals = list(records(topic))
    assert all(describe_record(topic, key, value) is not None for key, value in originals)
    refuse_damaged(lambda key, value: describe_record(topic, key, value), originals, randomised)


@pytest.mark.usefixtures("little_memory")
def test_damaged_control_records(randomised: int) -> None:
    originals = list(control_records())
    assert all(decode_control_record(key, value) for key, value in originals)
    refuse_damaged(decode_control_record, originals, randomised)


def refuse_damaged(
    decode: Callable[[bytes | None, bytes | None], object],
    originals: list[tuple[bytes | None, bytes | None]],
    randomised: int,
) -> None:
    refused = 0
    for seed in range(3 * DAMAGED_FILES * randomised):
        chance = random.Random(seed)
        key, value = chance.choice(originals)
        if key is not None and chance.random() < 0.3:
            key = damaged(key, chance)
        elif value is not None:
            value = damaged(value, chance)
        try:
            decode(key, value)
        except CorruptRecord:
            refused += 1
    assert refused > 0
