"""What duralog writes, Kafka reads: every format, codec and level, by the plain encoder and by the compiled one."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from duralog.columnar.schema import HEADER_TYPE
from duralog.format import message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType
from oracle.kafka_process import KafkaProcess
from oracle.random_records import describe_batch, random_records
from oracle.truth import by_reference, told_record
from tests.support.columnar.encoded_table import encode_batches

pytestmark = pytest.mark.interop

Json = dict[str, Any]

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
LEVELS = [
    *[(Codec.GZIP, level) for level in (1, 6, 9)],
    *[(Codec.LZ4, level) for level in (1, 9, 12, 17)],
    *[(Codec.ZSTD, level) for level in (-131072, -7, 1, 3, 19, 22)],
]
CODECS_AND_LEVELS = [*[(codec, None) for codec in Codec], *LEVELS]
APPEND_TIME_MS = 1_650_000_000_123


def label(value: object) -> str:
    return value.label if isinstance(value, Codec) else str(value)


def read_by_kafka(kafka: KafkaProcess, path: Path, data: bytes) -> list[Json]:
    """Kafka's view of the bytes, which it must accept whole, and which must be duralog's view too."""
    path.write_bytes(data)
    truth = kafka.read(path)
    assert "error" not in truth
    assert not [batch["error"] for batch in truth["batches"] if "error" in batch]
    assert all(batch["valid"] for batch in truth["batches"])
    assert truth["end"] == len(data)
    assert by_reference(data) == truth
    batches: list[Json] = truth["batches"]
    return batches


def records_of(batches: list[Json]) -> list[Json]:
    return [{**record, "sequence": -1} for batch in batches for record in batch["records"]]


def told(records: list[Record], **changed: Any) -> list[Json]:
    return [told_record(record) | changed for record in records]


def table_of(records: list[Record], *, with_offsets: bool = False) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "timestamp": pa.array([record.timestamp_ms for record in records], pa.int64()),
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(
            [[{"key": key, "value": value} for key, value in record.headers] for record in records],
            pa.list_(HEADER_TYPE),
        ),
    }
    if with_offsets:
        columns["offset"] = pa.array([record.offset for record in records], pa.int64())
    return pa.table(columns)


class TestPlainEncoder:
    @pytest.mark.parametrize(("codec", "level"), CODECS_AND_LEVELS, ids=label)
    def test_v2_batches(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec, level: int | None) -> None:
        records = random_records(random.Random(f"{codec} {level}"), 100, base_offset=2**33)
        data = record_batch.encode(records, base_offset=2**33, codec=codec, level=level)
        (batch,) = read_by_kafka(kafka, tmp_path / "0.log", data)
        assert batch["codec"] == codec.label
        assert records_of([batch]) == told(records)

    @pytest.mark.parametrize("codec", OLD_CODECS, ids=label)
    @pytest.mark.parametrize("append_time", [None, APPEND_TIME_MS], ids=["create-time", "append-time"])
    @pytest.mark.parametrize("magic", [0, 1])
    def test_messages(
        self, kafka: KafkaProcess, tmp_path: Path, magic: int, append_time: int | None, codec: Codec
    ) -> None:
        records = random_records(random.Random(f"{magic} {codec}"), 60, base_offset=1000, headers=False)
        timestamp_type = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
        data = message_set.encode(
            records,
            magic=magic,
            base_offset=1000,
            codec=codec,
            timestamp_type=timestamp_type,
            append_time_ms=append_time,
        )
        batches = read_by_kafka(kafka, tmp_path / "0.log", data)
        assert {batch["codec"] for batch in batches} == {codec.label}
        # v0 has no timestamps: asking for append time changes nothing there.
        changed: Json = {"timestamp": -1} if magic == 0 else {"timestamp": append_time} if append_time else {}
        assert records_of(batches) == told(records, **changed)

    @pytest.mark.parametrize(
        ("codec", "level"), [(codec, level) for codec, level in LEVELS if codec != Codec.ZSTD], ids=label
    )
    def test_levels_of_messages(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec, level: int) -> None:
        records = random_records(random.Random(level), 60, base_offset=0, headers=False)
        data = message_set.encode(records, magic=1, codec=codec, level=level)
        assert records_of(read_by_kafka(kafka, tmp_path / "0.log", data)) == told(records)

    @pytest.mark.parametrize("codec", Codec, ids=label)
    def test_all_header_fields(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec) -> None:
        records = random_records(random.Random(codec), 20, base_offset=103, gaps=True)
        data = record_batch.encode(
            records,
            base_offset=100,
            codec=codec,
            leader_epoch=9,
            producer_id=2**62,
            producer_epoch=32767,
            base_sequence=2**31 - 5,
            is_transactional=True,
            delete_horizon_ms=1_900_000_000_000,
            last_offset=records[-1].offset + 77,
        )
        (batch,) = read_by_kafka(kafka, tmp_path / "0.log", data)
        assert records_of([batch]) == told(records)
        assert batch["base_offset"] == 100
        assert batch["last_offset"] == records[-1].offset + 77
        assert batch["delete_horizon_ms"] == 1_900_000_000_000
        assert batch["transactional"]
        assert (batch["producer_id"], batch["producer_epoch"]) == (2**62, 32767)
        assert batch["partition_leader_epoch"] == 9

    def test_a_batch_without_records(self, kafka: KafkaProcess, tmp_path: Path) -> None:
        data = record_batch.encode(
            [], base_offset=5, last_offset=7, producer_id=7, producer_epoch=3, base_sequence=4, max_timestamp_ms=1001
        )
        (batch,) = read_by_kafka(kafka, tmp_path / "0.log", data)
        assert (batch["count"], batch["last_offset"], batch["max_timestamp"]) == (0, 7, 1001)

    @pytest.mark.parametrize("codec", Codec, ids=label)
    def test_large_values(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec) -> None:
        rng = random.Random(codec)
        values = [rng.randbytes(700_000), b"a" * 1_500_000, bytes(range(256)) * 3000, b"", rng.randbytes(32768)]
        records = [Record(offset=offset, timestamp_ms=1, value=value) for offset, value in enumerate(values)]
        data = record_batch.encode(records, codec=codec)
        assert records_of(read_by_kafka(kafka, tmp_path / "0.log", data)) == told(records)
        if codec in OLD_CODECS:
            for magic in (0, 1):
                data = message_set.encode(records, magic=magic, codec=codec)
                expected = told(records, **({"timestamp": -1} if magic == 0 else {}))
                assert records_of(read_by_kafka(kafka, tmp_path / "0.log", data)) == expected

    def test_uncompressed_bytes_are_kafkas_own(self, kafka: KafkaProcess, tmp_path: Path) -> None:
        rng = random.Random(8)
        path = tmp_path / "0.log"
        for magic in (0, 1):
            records = random_records(rng, 100, base_offset=50, headers=False, gaps=True)
            kafka.write(path, [describe_batch(records, magic=magic, base_offset=50)])
            assert message_set.encode(records, magic=magic, base_offset=50) == path.read_bytes()
        records = random_records(rng, 100, base_offset=50, gaps=True)
        for append_time in (None, APPEND_TIME_MS):
            kafka.write(
                path, [describe_batch(records, magic=2, base_offset=50, leader_epoch=4, append_time=append_time)]
            )
            timestamp_type = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
            data = record_batch.encode(
                records, base_offset=50, leader_epoch=4, timestamp_type=timestamp_type, append_time_ms=append_time
            )
            assert data == path.read_bytes()

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=label)
    def test_compressed_headers_are_kafkas_own(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec) -> None:
        """How well a library packs is its own affair; the frame around it and the batch header are not."""
        frame_bytes = {Codec.GZIP: 10, Codec.SNAPPY: 16, Codec.LZ4: 7, Codec.ZSTD: 4}[codec]
        records = random_records(random.Random(codec), 100, base_offset=0)
        path = tmp_path / "0.log"
        kafka.write(path, [describe_batch(records, magic=2, codec=codec.label)])
        theirs, ours = path.read_bytes(), record_batch.encode(records, codec=codec)
        # All but the length and the CRC, which follow from the packed bytes.
        assert ours[:8] == theirs[:8]
        assert ours[12:17] == theirs[12:17]
        assert ours[21 : 61 + frame_bytes] == theirs[21 : 61 + frame_bytes]


class TestCompiledEncoder:
    @pytest.mark.parametrize(("codec", "level"), CODECS_AND_LEVELS, ids=label)
    def test_batches(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec, level: int | None) -> None:
        records = random_records(random.Random(f"{codec} {level}"), 120, base_offset=2**33)
        encoded = encode_batches(table_of(records), base_offset=2**33, codec=codec, level=level)
        batches = read_by_kafka(kafka, tmp_path / "0.log", encoded.data.tobytes())
        assert len(batches) == len(encoded) > 2
        assert {batch["codec"] for batch in batches} == {codec.label}
        assert records_of(batches) == told(records)

    @pytest.mark.parametrize("codec", Codec, ids=label)
    def test_all_header_fields(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec) -> None:
        records = random_records(random.Random(codec), 90, base_offset=7000, gaps=True)
        encoded = encode_batches(
            table_of(records, with_offsets=True),
            codec=codec,
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            append_time_ms=APPEND_TIME_MS,
            leader_epoch=9,
            producer_id=2**62,
            producer_epoch=32767,
            base_sequence=2**31 - 50,
            is_transactional=True,
        )
        batches = read_by_kafka(kafka, tmp_path / "0.log", encoded.data.tobytes())
        assert records_of(batches) == told(records, timestamp=APPEND_TIME_MS)
        for batch in batches:
            assert batch["transactional"]
            assert (batch["producer_id"], batch["producer_epoch"]) == (2**62, 32767)
            assert batch["partition_leader_epoch"] == 9
        for batch, following in itertools.pairwise(batches):
            assert following["base_sequence"] == (batch["last_sequence"] + 1) % 2**31

    def test_uncompressed_bytes_are_kafkas_own(self, kafka: KafkaProcess, tmp_path: Path) -> None:
        records = [
            replace(record, offset=n) for n, record in enumerate(random_records(random.Random(9), 300, base_offset=0))
        ]
        encoded = encode_batches(table_of(records), leader_epoch=4)
        described = []
        for batch in encoded.batches:
            first, last = int(batch["base_offset"]), int(batch["last_offset"])
            described.append(describe_batch(records[first : last + 1], magic=2, base_offset=first, leader_epoch=4))
        path = tmp_path / "0.log"
        kafka.write(path, described)
        assert len(described) > 5
        assert encoded.data.tobytes() == path.read_bytes()


class TestDumpTool:
    """`kafka-dump-log` of files that duralog wrote."""

    @pytest.mark.parametrize("codec", Codec, ids=label)
    def test_every_batch_and_record_is_valid(self, kafka: KafkaProcess, tmp_path: Path, codec: Codec) -> None:
        rng = random.Random(codec)
        records = random_records(rng, 200, base_offset=0)
        data = encode_batches(table_of(records), codec=codec).data.tobytes()
        data += record_batch.encode(random_records(rng, 50, base_offset=200), base_offset=200, codec=codec)
        self.check(kafka, tmp_path, data, records=250)

    @pytest.mark.parametrize("codec", OLD_CODECS, ids=label)
    @pytest.mark.parametrize("magic", [0, 1])
    def test_messages(self, kafka: KafkaProcess, tmp_path: Path, magic: int, codec: Codec) -> None:
        records = random_records(random.Random(codec), 50, base_offset=0, headers=False)
        self.check(kafka, tmp_path, message_set.encode(records, magic=magic, codec=codec), records=50)

    def test_a_wrong_checksum_is_seen(self, kafka: KafkaProcess, tmp_path: Path) -> None:
        """Guards the tests above: were the verdicts not read, they could not fail."""
        data = bytearray(record_batch.encode([Record(value=b"value", timestamp_ms=1)]))
        data[-3] ^= 1
        with pytest.raises(AssertionError, match="isvalid"):
            self.check(kafka, tmp_path, bytes(data), records=1)

    def check(self, kafka: KafkaProcess, folder: Path, data: bytes, *, records: int) -> None:
        log = folder / "00000000000000000000.log"
        log.write_bytes(data)
        stdout, stderr = kafka.dump("--deep-iteration", "--print-data-log", "--files", str(log))
        verdicts = re.findall(r"isvalid: (\w+)", stdout)
        assert verdicts, stdout
        assert set(verdicts) == {"true"}, "isvalid: false in the dump"
        assert len(re.findall(r"^\| offset: ", stdout, re.MULTILINE)) == records
        assert stderr == ""
