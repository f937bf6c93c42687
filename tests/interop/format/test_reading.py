"""What Kafka wrote, duralog reads: the same batches and records as Kafka's own reader, and as were asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duralog.format.record import Record
from oracle.kafka_process import KafkaProcess
from oracle.random_records import describe_batch, random_records
from oracle.truth import told_record

pytestmark = pytest.mark.interop

Json = dict[str, Any]
Read = Callable[[bytes], Json]

OLD_CODECS = ("none", "gzip", "snappy", "lz4")
CODECS = (*OLD_CODECS, "zstd")
LEVELS = {"gzip": (1, 6, 9), "lz4": (1, 9, 12, 17), "zstd": (-131072, -7, 1, 3, 19, 22)}
APPEND_TIME_MS = 1_650_000_000_123


def assert_read_alike(kafka: KafkaProcess, read: Read, path: Path, batches: list[Json]) -> Json:
    """Let Kafka write the batches; both read the same without error. Returns what was read."""
    kafka.write(path, batches)
    data = path.read_bytes()
    truth = kafka.read(path)
    assert "error" not in truth
    assert not [batch for batch in truth["batches"] if "error" in batch]
    assert truth["end"] == len(data)
    seen = read(data)
    for ours, theirs in zip(seen["batches"], truth["batches"], strict=True):
        assert ours == theirs
    assert seen == truth
    return truth


def told(records: list[Record], **changed: Any) -> list[Json]:
    """Records as the truth has them when the format keeps all of their fields but these."""
    return [told_record(record) | changed for record in records]


def read_records(truth: Json) -> list[Json]:
    return [record for batch in truth["batches"] for record in batch["records"]]


@pytest.mark.parametrize("append_time", [None, APPEND_TIME_MS], ids=["create-time", "append-time"])
@pytest.mark.parametrize("codec", CODECS)
def test_v2_batches(kafka: KafkaProcess, read: Read, tmp_path: Path, codec: str, append_time: int | None) -> None:
    rng = random.Random(f"v2 {codec}")
    records: list[Record] = []
    batches: list[Json] = []
    offset = 2**40
    for count in (1, 2, 30, 150):
        batch = random_records(rng, count, base_offset=offset)
        batches.append(describe_batch(batch, magic=2, codec=codec, base_offset=offset, append_time=append_time))
        records += batch
        offset += count
    truth = assert_read_alike(kafka, read, tmp_path / "0.log", batches)
    changed = {} if append_time is None else {"timestamp": append_time}
    assert read_records(truth) == told(records, **changed)
    assert {batch["codec"] for batch in truth["batches"]} == {codec}


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize(
    ("magic", "append_time"),
    [(0, None), (1, None), (1, APPEND_TIME_MS)],
    ids=["v0", "v1-create-time", "v1-append-time"],
)
def test_messages(
    kafka: KafkaProcess, read: Read, tmp_path: Path, magic: int, codec: str, append_time: int | None
) -> None:
    rng = random.Random(f"v{magic} {codec}")
    records: list[Record] = []
    batches: list[Json] = []
    offset = 1000
    for count in (1, 2, 30, 150):
        batch = random_records(rng, count, base_offset=offset, headers=False)
        batches.append(describe_batch(batch, magic=magic, codec=codec, base_offset=offset, append_time=append_time))
        records += batch
        offset += count
    truth = assert_read_alike(kafka, read, tmp_path / "0.log", batches)
    changed: Json = {} if append_time is None else {"timestamp": append_time}
    if magic == 0:
        changed["timestamp"] = -1
    assert read_records(truth) == told(records, **changed)


@pytest.mark.parametrize(("codec", "level"), [(codec, level) for codec, levels in LEVELS.items() for level in levels])
def test_levels(kafka: KafkaProcess, read: Read, tmp_path: Path, codec: str, level: int) -> None:
    records = random_records(random.Random(level), 60, base_offset=0)
    described = [describe_batch(records, magic=2, codec=codec, level=level)]
    truth = assert_read_alike(kafka, read, tmp_path / "0.log", described)
    assert read_records(truth) == told(records)


@pytest.mark.parametrize("codec", CODECS)
def test_large_values(kafka: KafkaProcess, read: Read, tmp_path: Path, codec: str) -> None:
    """Values of several of each codec's blocks, noise and text: 32 KB in snappy, 64 KB in lz4, 128 KB in zstd."""
    rng = random.Random(codec)
    values = [rng.randbytes(700_000), b"a" * 1_500_000, bytes(range(256)) * 3000, b"", rng.randbytes(32768)]
    records = [Record(offset=offset, timestamp_ms=offset, key=None, value=value) for offset, value in enumerate(values)]
    truth = assert_read_alike(kafka, read, tmp_path / "0.log", [describe_batch(records, magic=2, codec=codec)])
    assert read_records(truth) == told(records)


@pytest.mark.parametrize("codec", CODECS)
def test_a_producers_batches(kafka: KafkaProcess, read: Read, tmp_path: Path, codec: str) -> None:
    """Producer id, epoch and sequences (which wrap around), a transaction, leader epochs."""
    records = random_records(random.Random(codec), 20, base_offset=5)
    described = describe_batch(
        records,
        magic=2,
        codec=codec,
        base_offset=5,
        producer_id=2**62,
        producer_epoch=32767,
        base_sequence=2**31 - 10,
        transactional=True,
        leader_epoch=77,
    )
    (batch,) = assert_read_alike(kafka, read, tmp_path / "0.log", [described])["batches"]
    assert batch["transactional"]
    assert (batch["base_sequence"], batch["last_sequence"]) == (2**31 - 10, 9)
    assert [record["sequence"] for record in batch["records"]] == [(2**31 - 10 + n) % 2**31 for n in range(20)]


@pytest.mark.parametrize("codec", CODECS)
def test_compacted_batches(kafka: KafkaProcess, read: Read, tmp_path: Path, codec: str) -> None:
    """Offset gaps, a last offset behind the last record, a delete horizon, and a batch that nothing is left of."""
    records = random_records(random.Random(codec), 20, base_offset=103, gaps=True)
    last_offset = records[-1].offset + 1000
    compacted = describe_batch(
        records, magic=2, codec=codec, base_offset=100, last_offset=last_offset, delete_horizon_ms=1_900_000_000_000
    )
    empty = describe_batch(
        [],
        magic=2,
        base_offset=last_offset + 1,
        last_offset=last_offset + 9,
        timestamp=5,
        producer_id=7,
        producer_epoch=0,
    )
    truth = assert_read_alike(kafka, read, tmp_path / "0.log", [compacted, empty])
    assert read_records(truth) == told(records)
    assert [batch["delete_horizon_ms"] for batch in truth["batches"]] == [1_900_000_000_000, None]
    assert [batch["last_offset"] for batch in truth["batches"]] == [last_offset, last_offset + 9]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_compacted_messages(kafka: KafkaProcess, read: Read, tmp_path: Path, magic: int, codec: str) -> None:
    records = random_records(random.Random(codec), 20, base_offset=100, headers=False, gaps=True)
    described = describe_batch(records, magic=magic, codec=codec, base_offset=100)
    truth = assert_read_alike(kafka, read, tmp_path / "0.log", [described])
    assert [record["offset"] for record in read_records(truth)] == [record.offset for record in records]


def test_a_log_of_all_formats(kafka: KafkaProcess, read: Read, tmp_path: Path) -> None:
    """As a topic has it whose broker was upgraded twice, with half a batch at its end."""
    rng = random.Random(3)
    batches: list[Json] = []
    offset = 0
    for magic, codec in [(0, "none"), (0, "lz4"), (1, "gzip"), (1, "none"), (2, "zstd"), (2, "none"), (2, "snappy")]:
        records = random_records(rng, 10, base_offset=offset, headers=magic == 2)
        batches.append(describe_batch(records, magic=magic, codec=codec, base_offset=offset))
        offset += 10
    path = tmp_path / "0.log"
    assert_read_alike(kafka, read, path, batches)
    whole = path.read_bytes()
    for cut in (1, 5, 16, 17, 60, 61, 100):
        path.write_bytes(whole[:-cut])
        truth = kafka.read(path)
        assert truth["end"] < len(whole) - cut
        assert read(whole[:-cut]) == truth
