"""A small batch that unpacks to more than a gigabyte: what clients, and readers of a log that holds one, get to see."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import duralog
from duralog.config import TopicConfig
from duralog.errors import CorruptRecord, Fault, InvalidRecord, InvalidTimestamp
from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec, compress
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.validation import validate
from duralog.storage.compaction.compact import compact_log
from duralog.storage.store import Store
from tests.support.spark.planned_log import open_for_writing, plan_all, read

NOW_MS = 1_700_000_000_000
BLOCK_BYTES = 128 << 10


def zstd_zeros(size: int) -> bytes:
    """One frame of blocks that repeat a byte: four bytes for 128 KiB, and nothing has to be unpacked to see that."""
    blocks = size // BLOCK_BYTES + 1
    header = bytes.fromhex("28b52ffd") + b"\x00\x58"
    block = (BLOCK_BYTES << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (BLOCK_BYTES << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return header + block * (blocks - 1) + last


def sealed(packed: bytes, codec: Codec, *, count: int = 1, base_offset: int = 0) -> bytes:
    """A batch around a stream, with the right length and checksum."""
    whole = bytearray(record_batch.encode([Record(value=b"", timestamp_ms=NOW_MS)], codec=codec)[: BATCH_V2.size])
    whole += packed
    at = BATCH_V2.at
    for position, width, value in (
        (at.base_offset, 8, base_offset),
        (at.length, 4, len(whole) - at.leader_epoch),
        (at.last_offset_delta, 4, count - 1),
        (at.record_count, 4, count),
    ):
        whole[position : position + width] = value.to_bytes(width, "big")
    whole[at.crc : at.crc + 4] = crc32c(bytes(whole[at.attributes :])).to_bytes(4, "big")
    return bytes(whole)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with a sound batch, a bomb and a sound batch, as another broker may have written it."""
    with open_for_writing(tmp_path) as store:
        store.create_topic("orders", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        log = store.partition("orders", 0)
        log.append([Record(key=b"k", value=b"before", timestamp_ms=NOW_MS)])
        bomb = sealed(zstd_zeros(DEFAULT_MAX_DECOMPRESSED_BYTES), Codec.ZSTD, base_offset=1)
        assert len(bomb) < 64 << 10
        log.append_batches(bomb, origin=AppendOrigin.AS_IS)
        log.append([Record(key=b"k", value=b"after", timestamp_ms=NOW_MS)])
        log.roll()
    return tmp_path


def position_of_bomb(directory: Path) -> int:
    data = min((directory / "orders-0").glob("*.log")).read_bytes()
    return int.from_bytes(data[8:12], "big") + 12


def read_records(store: Store) -> None:
    for _ in store.partition("orders", 0).read(0):
        pass


def read_as_a_spark_task(store: Store) -> None:
    read(plan_all(store).slices)


READERS: dict[str, Callable[[Store], None]] = {
    "records": read_records,
    "Spark": read_as_a_spark_task,
}


@pytest.mark.parametrize("reader", READERS)
def test_readers_name_the_file_and_the_position(directory: Path, reader: str) -> None:
    with open_for_writing(directory) as store, pytest.raises(CorruptRecord) as caught:
        READERS[reader](store)
    error = caught.value
    assert error.fault is Fault.TOO_LARGE
    assert error.file == str(directory / "orders-0" / f"{0:020}.log")
    assert error.position == position_of_bomb(directory)
    assert str(DEFAULT_MAX_DECOMPRESSED_BYTES) in str(error)


def test_compaction_keeps_it_as_it_is_and_reports_it(directory: Path) -> None:
    path, position = directory / "orders-0" / f"{0:020}.log", position_of_bomb(directory)
    bomb = path.read_bytes()[position:]
    bomb = bomb[: int.from_bytes(bomb[8:12], "big") + 12]
    with open_for_writing(directory) as store:
        report = compact_log(store.partition("orders", 0), first_dirty_offset=0, end=3, now_ms=NOW_MS)
    (told,) = report.corrupt_batches
    assert told.startswith(f"{path}: position {position}: the records unpack to more than is allowed")
    assert bomb in path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("command", [("dump", "--records"), ("verify", "--deep")])
def test_commands_report_it_and_go_on(directory: Path, command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "duralog", *command, str(directory)], capture_output=True, text=True, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert f"{0:020}.log" in told
    assert str(position_of_bomb(directory)) in told.replace(",", "")
    assert "unpack" in told


def test_what_compresses_very_well_is_read_and_written(tmp_path: Path) -> None:
    """A thousand to one is nothing unusual for a compressor, and no reason to refuse a batch."""
    value = bytes(64 << 20)
    with duralog.open(tmp_path, {}) as store:
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        for codec in ("gzip", "zstd"):
            log.append([Record(value=value)], codec=codec)
        assert log.size_bytes < 200_000
        assert [len(record.value or b"") for record in log.read(0)] == [len(value)] * 2


class TestManyRecords:
    """Seven bytes a record, which compress to nothing: as Python objects they would fill the memory."""

    COUNT = 150_000

    def admit(self, records: bytes, *, late_ms: int = 0, **configs: object) -> object:
        batch = bytearray(sealed(compress(Codec.ZSTD, records), Codec.ZSTD, count=self.COUNT))
        config = TopicConfig().with_overrides({name.replace("_", "."): value for name, value in configs.items()})
        return validate(batch, config=config, stamp=Stamp(0, 0, NOW_MS + late_ms))

    def records(self, *, first_time: int = 0) -> bytes:
        parts = []
        for delta in range(self.COUNT):
            encoded = bytearray()
            value = delta << 1
            while value > 0x7F:
                encoded.append(value & 0x7F | 0x80)
                value >>= 7
            encoded.append(value)
            body = bytes([0, 0 if delta else first_time << 1]) + bytes(encoded) + b"\1\1\0"
            parts.append(bytes([len(body) << 1]) + body)
        return b"".join(parts)

    @pytest.fixture(autouse=True)
    def no_record_becomes_an_object(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("all records were decoded")

        monkeypatch.setattr(record_batch, "decode_records", refuse)

    def test_that_are_sound(self) -> None:
        assert self.admit(self.records())

    def test_that_break_a_rule_are_refused_without_naming_each(self) -> None:
        with pytest.raises(InvalidRecord, match=r"some of 150,?000 records refused: Compacted topic") as caught:
            self.admit(self.records(), cleanup_policy="compact")
        assert not caught.value.record_errors
        with pytest.raises(InvalidTimestamp, match=r"some of 150,?000 records refused"):
            self.admit(self.records(), late_ms=10, message_timestamp_before_max_ms=5)

    def test_that_would_have_to_be_rebuilt_are_refused(self) -> None:
        with pytest.raises(CorruptRecord, match="too many records") as caught:
            self.admit(self.records(first_time=1), compression_type="gzip")
        assert caught.value.fault is Fault.TOO_LARGE
        assert self.admit(self.records(), compression_type="gzip")
