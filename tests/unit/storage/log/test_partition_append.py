"""Appending to a log: records, tables, raw batches; the rules of the topic; rolling; what a failure leaves behind."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from duralog.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    OutOfOrderSequence,
    ProducerFenced,
    RecordTooLarge,
    StorageError,
)
from duralog.format import batches, record_batch
from duralog.format.batch import Batch
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log import writer as log_writer
from duralog.storage.log.partition_log import AppendOrigin, AppendResult, PartitionLog
from duralog.storage.log.rolling import NO_FREE_RANGE
from duralog.storage.segment.sparse_index import OffsetIndex, TimeIndex
from tests.support.storage.log_in_folder import NOW_MS, LogInFolder, numbered, values


def stored_batches(log: PartitionLog) -> list[Batch]:
    return [batch for info in log.segments for batch in batches.scan(Path(info.path).read_bytes()[: info.size_bytes])]


def a_batch(*payloads: bytes, **fields: Any) -> bytes:
    return record_batch.encode([Record(value=value, timestamp_ms=NOW_MS) for value in payloads], **fields)


def test_records_get_offsets_and_missing_timestamps(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    records = [
        Record(key=b"k", value=b"v", timestamp_ms=5, headers=[("h", b"x"), ("n", None)]),
        Record(key=None, value=None),
        Record(key=b"", value=b""),
    ]
    assert log.append(iter(records)) == AppendResult(0, 2, -1)
    assert log.append(numbered(0, 2)) == AppendResult(3, 4, -1)
    first, second, third, *_ = log.read(0)
    assert (first.offset, first.key, first.value, first.timestamp_ms) == (0, b"k", b"v", 5)
    assert first.headers == (("h", b"x"), ("n", None))
    assert first.timestamp_type is TimestampType.CREATE_TIME
    assert (second.key, second.value, second.timestamp_ms) == (None, None, NOW_MS)
    assert (third.key, third.value, third.headers) == (b"", b"", ())
    assert (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (0, 5, 5, 5)


def test_the_bytes_are_those_of_the_plain_encoder(tmp_path: Path) -> None:
    random = Random(7)
    folder = LogInFolder(tmp_path)
    log = folder.open()
    expected = b""
    for _ in range(50):
        records = [
            Record(
                key=random.choice((None, b"", random.randbytes(random.randrange(200)))),
                value=random.choice((None, b"", random.randbytes(random.randrange(200)))),
                timestamp_ms=random.choice((-1, 0, NOW_MS - 5, NOW_MS + 5, 2**40)),
                headers=[("h\u00fc" * random.randrange(3), random.choice((None, b"x")))] * random.choice((0, 0, 1, 3)),
            )
            for _ in range(random.randrange(1, 20))
        ]
        filled = [replace(record, timestamp_ms=NOW_MS) if record.timestamp_ms < 0 else record for record in records]
        expected += record_batch.encode(filled, base_offset=log.end_offset, leader_epoch=0)
        log.append(records)
    assert Path(log.segments[0].path).read_bytes() == expected


def test_appending_nothing_changes_nothing(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append(numbered(0, 3))
    assert log.append([]) == AppendResult(3, 2, -1)
    assert log.append_arrow(pa.table({"value": pa.array([], pa.binary())})) == AppendResult(3, 2, -1)
    assert log.end_offset == 3


def test_many_records_are_cut_into_batches_of_the_usual_size(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append([Record(value=bytes(1000))] * 100)
    found = stored_batches(log)
    assert len(found) > 1
    assert all(batch.crc_ok and batch.size_bytes <= 16384 + 61 for batch in found)
    assert [batch.base_offset for batch in found[1:]] == [batch.last_offset + 1 for batch in found[:-1]]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_writer_chooses_the_codec_where_the_topic_leaves_it(tmp_path: Path, codec: str) -> None:
    log = LogInFolder(tmp_path).open()
    log.append(numbered(0, 1000), codec=codec)
    assert {batch.codec_id for batch in stored_batches(log)} == {Codec.named(codec)}
    assert values(log.read(998)) == [b"998", b"999"]


def test_the_topic_has_the_last_word_on_the_codec(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, compression_type="zstd", compression_zstd_level=7).open()
    log.append(numbered(0, 100), codec="gzip")
    log.append(numbered(100, 200))
    log.append_batches(a_batch(b"x"))
    assert {batch.codec_id for batch in stored_batches(log)} == {Codec.ZSTD}
    assert log.append(numbered(0, 1), codec="none").base_offset == 201


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    with pytest.raises(InvalidRecord, match="unknown codec 'brotli'"):
        log.append(numbered(0, 1), codec="brotli")


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (Record(value="text"), "record 1: its value is of type str"),  # type: ignore[arg-type]
        (Record(key=5, value=b""), "record 1: its key is of type int"),  # type: ignore[arg-type]
        (Record(value=b"", timestamp_ms=-2), "record 1: timestamp -2"),
        (Record(value=b"", timestamp_ms=2**63), "record 1: timestamp 9223372036854775808"),
        (Record(value=b"", timestamp_ms=1.5), "record 1: timestamp 1.5"),  # type: ignore[arg-type]
        (Record(value=b"", headers=[(b"k", b"v")]), "record 1: header"),  # type: ignore[list-item]
        (Record(value=b"", headers=[("k", "v")]), "record 1: header 'k' has a value of type str"),  # type: ignore[list-item]
        (Record(value=b"", headers=[("\ud800", b"")]), "record 1: header"),
    ],
)
def test_a_bad_record_is_refused_with_all_others(tmp_path: Path, record: Record, told: str) -> None:
    log = LogInFolder(tmp_path).open()
    with pytest.raises(InvalidRecord, match=told):
        log.append([Record(value=b"good"), record])
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, cleanup_policy="compact,delete").open()
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        log.append([Record(key=b"k", value=b"v"), Record(value=b"v")])
    with pytest.raises(InvalidRecord, match="record 0 has no key"):
        log.append_arrow(pa.table({"value": [b"v"]}))
    keys = pa.table({"key": [None, b"a", b"b"], "value": [b"", b"", b""]})
    assert log.append_arrow(keys.slice(1)).last_offset == 1
    with pytest.raises(InvalidRecord, match="record 1 has no key"):
        log.append_arrow(pa.concat_tables([keys.slice(2), keys]).slice(0, 2))
    assert log.append([Record(key=b"", value=None)]).last_offset == 2


def test_a_record_that_is_too_large_is_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, max_message_bytes=1000).open()
    assert log.append([Record(value=bytes(900)), Record(value=bytes(900))]).last_offset == 1
    with pytest.raises(RecordTooLarge, match=r"record 2 makes a batch of 10\d\d bytes, max.message.bytes is 1000"):
        log.append([Record(value=b""), Record(value=b""), Record(value=bytes(950))])
    assert log.append([Record(value=bytes(9000))], codec="gzip").last_offset == 2
    assert max(batch.size_bytes for batch in stored_batches(log)) <= 1000


def test_incompressible_records_do_not_outgrow_their_batches(tmp_path: Path) -> None:
    noise = [Record(value=(b"%d" % number) * 3) for number in range(500)]
    log = LogInFolder(tmp_path, max_message_bytes=200).open()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        log.append(noise, codec=codec)
    assert log.end_offset == 2000


def test_timestamps_too_far_from_the_clock_are_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500).open()
    log.append([Record(value=b"", timestamp_ms=NOW_MS - 1000), Record(value=b"", timestamp_ms=NOW_MS + 500)])
    for wrong in (NOW_MS - 1001, NOW_MS + 501):
        with pytest.raises(InvalidTimestamp, match=f"record 1 has timestamp {wrong}"):
            log.append([Record(value=b""), Record(value=b"", timestamp_ms=wrong)])
    assert log.end_offset == 2


def test_log_append_time(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    log = folder.open()
    assert log.append([Record(value=b"", timestamp_ms=17)]).log_append_time_ms == NOW_MS
    folder.now_ms += 10
    assert log.append_batches(a_batch(b"x")).log_append_time_ms == NOW_MS + 10
    found = list(log.read(0))
    assert [record.timestamp_ms for record in found] == [NOW_MS, NOW_MS + 10]
    assert {record.timestamp_type for record in found} == {TimestampType.LOG_APPEND_TIME}


def test_a_table_is_appended_and_its_offsets_are_not_taken_over(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append([Record(key=b"a", value=b"1", timestamp_ms=7, headers=[("h", None)]), Record(value=b"2")])
    table = log.read_arrow(1)
    assert log.append_arrow(log.read_arrow(), codec="lz4") == AppendResult(2, 3, -1)
    assert log.append_arrow(table.to_batches()[0]) == AppendResult(4, 4, -1)
    copied = list(log.read(2))
    assert values(copied) == [b"1", b"2", b"2"]
    assert (copied[0].key, copied[0].timestamp_ms, copied[0].headers) == (b"a", 7, (("h", None),))
    assert log.append_arrow(pa.table({"value": ["no time"]})).base_offset == 5
    assert next(log.read(5)).timestamp_ms == NOW_MS


def test_raw_batches_are_stamped_in_place_and_written_as_they_are(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open(leader_epoch=4)
    log.append(numbered(0, 5))
    sent = bytearray(a_batch(b"x", b"y") + a_batch(b"z"))
    assert log.append_batches(sent) == AppendResult(5, 7, -1)
    assert Path(log.segments[0].path).read_bytes().endswith(sent)
    assert [(batch.base_offset, batch.leader_epoch) for batch in stored_batches(log)] == [(0, 4), (5, 4), (7, 4)]
    assert values(log.read(5)) == [b"x", b"y", b"z"]


def test_damaged_raw_batches_are_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    damaged = bytearray(a_batch(b"x"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord, match="checksum"):
        log.append_batches(damaged)
    assert log.size_bytes == 0


def test_batches_can_keep_their_offsets(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    copied = a_batch(b"a", b"b", base_offset=100, leader_epoch=2) + a_batch(b"c", base_offset=200, leader_epoch=3)
    assert log.append_batches(copied, origin=AppendOrigin.AS_IS) == AppendResult(100, 200, -1)
    assert Path(log.segments[-1].path).read_bytes() == copied
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(2, 100), (3, 200)]
    with pytest.raises(InvalidRecord):
        log.append_batches(a_batch(b"d", base_offset=200), origin=AppendOrigin.AS_IS)
    assert [record.offset for record in log.read(0)] == [100, 101, 200]
    assert log.append(numbered(0, 1)).base_offset == 201


def test_a_batch_that_is_sent_again_is_not_stored_again(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    sender: dict[str, Any] = {"producer_id": 7, "producer_epoch": 1}
    assert log.append(numbered(0, 3), base_sequence=0, **sender) == AppendResult(0, 2, -1)
    assert log.append(numbered(3, 5), base_sequence=3, **sender) == AppendResult(3, 4, -1)
    assert log.append(numbered(0, 3), base_sequence=0, **sender) == AppendResult(0, 2, NOW_MS, duplicate=True)
    assert log.end_offset == 5
    with pytest.raises(OutOfOrderSequence):
        log.append(numbered(6, 7), base_sequence=6, **sender)
    with pytest.raises(ProducerFenced):
        log.append(numbered(6, 7), producer_id=7, producer_epoch=0, base_sequence=5)
    raw = a_batch(b"5", producer_id=7, producer_epoch=1, base_sequence=5)
    assert log.append_batches(raw).base_offset == 5
    assert log.append_batches(raw) == AppendResult(5, 5, NOW_MS, duplicate=True)
    assert [(entry.producer_id, entry.last_sequence) for entry in log.producers()] == [(7, 5)]


def test_a_producer_gets_one_batch_whatever_its_size(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append([Record(value=bytes(1000))] * 100, producer_id=1, producer_epoch=0, base_sequence=0)
    assert [batch.record_count for batch in stored_batches(log)] == [100]
    with pytest.raises(RecordTooLarge):
        log.append([Record(value=bytes(1000))] * 1100, producer_id=1, producer_epoch=0, base_sequence=100)
    log.append([Record(value=bytes(1000))] * 1100, producer_id=1, producer_epoch=0, base_sequence=100, codec="zstd")
    assert log.end_offset == 1200


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_epoch": 0},
        {"base_sequence": 0},
        {"is_transactional": True},
        {"producer_id": 1},
        {"producer_id": 1, "producer_epoch": 0},
        {"producer_id": -5, "producer_epoch": 0, "base_sequence": 0},
    ],
)
def test_half_a_producer_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    log = LogInFolder(tmp_path).open()
    with pytest.raises(InvalidRecord):
        log.append(numbered(0, 1), **fields)
    assert log.end_offset == 0


def test_a_forgotten_producer_may_start_anywhere(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    log.append(numbered(0, 1), producer_id=7, producer_epoch=0, base_sequence=0)
    assert log.expire_producers() == 0
    folder.now_ms += 86_400_000
    assert log.expire_producers() == 1
    assert log.append(numbered(0, 1), producer_id=7, producer_epoch=0, base_sequence=40).base_offset == 1


# Rolling


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_full_segment_is_rolled_before_the_append(tmp_path: Path) -> None:
    one = len(a_batch(b"x"))
    log = LogInFolder(tmp_path, internal_segment_bytes=3 * one).open()
    for _ in range(7):
        log.append_batches(a_batch(b"x"))
    assert bases(log) == [0, 3, 6]
    assert [segment.size_bytes for segment in log.segments] == [3 * one, 3 * one, one]


def test_an_append_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, internal_segment_bytes=500).open()
    with pytest.raises(RecordTooLarge, match=r"segment\.bytes is 500"):
        log.append([Record(value=bytes(500))])
    assert log.append([Record(value=bytes(400))]).base_offset == 0


def test_rolling_by_time_compares_records_with_records(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path, segment_ms=1000)
    log = folder.open()
    log.append([Record(value=b"", timestamp_ms=5000)])
    folder.now_ms += 10_000
    log.append([Record(value=b"", timestamp_ms=6000)])
    assert bases(log) == [0]
    log.append([Record(value=b"", timestamp_ms=6001)])
    assert bases(log) == [0, 2]
    log.append([Record(value=b"", timestamp_ms=1)])
    log.append([Record(value=b"", timestamp_ms=7001)])
    assert bases(log) == [0, 2]


def test_without_timestamps_rolling_by_time_goes_by_the_clock(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path, segment_ms=1000)
    log = folder.open()
    timeless = record_batch.encode([Record(value=b"x", timestamp_ms=-1)])
    log.append_batches(timeless)
    folder.now_ms += 1000
    log.append_batches(timeless)
    assert bases(log) == [0]
    folder.now_ms += 1
    log.append_batches(timeless)
    assert bases(log) == [0, 2]


def test_jitter_lets_a_segment_roll_earlier(tmp_path: Path) -> None:
    asked: list[int] = []

    def random_below(limit: int) -> int:
        asked.append(limit)
        return 300

    log = LogInFolder(tmp_path, segment_ms=1000, segment_jitter_ms=400).open(random_below=random_below)
    log.append([Record(value=b"", timestamp_ms=0)])
    log.append([Record(value=b"", timestamp_ms=700)])
    assert bases(log) == [0]
    log.append([Record(value=b"", timestamp_ms=701)])
    assert bases(log) == [0, 2]
    assert asked == [400, 400]


def test_a_compacted_topic_rolls_in_time_for_compaction(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, cleanup_policy="compact", max_compaction_lag_ms=500).open()
    for timestamp_ms in (0, 500, 501):
        log.append([Record(key=b"k", value=b"", timestamp_ms=timestamp_ms)])
    assert bases(log) == [0, 2]


def test_a_full_index_rolls_the_segment(tmp_path: Path) -> None:
    # Room for three entries in the offset index; for two in the time index, one of which is kept free.
    log = LogInFolder(tmp_path, segment_index_bytes=24, index_interval_bytes=1).open()
    for number in range(6):
        log.append([Record(value=b"x", timestamp_ms=1000 + number)])
    assert bases(log) == [0, 2, 4]
    # Room for six entries; the time index needs one. The first batch of a segment has none.
    by_offset = LogInFolder(tmp_path / "b", segment_index_bytes=48, index_interval_bytes=1).open()
    for _ in range(9):
        by_offset.append([Record(value=b"x", timestamp_ms=1000)])
    assert bases(by_offset) == [0, 7]


def test_a_full_index_rolls_the_segment_though_other_ones_are_to_have_fewer_entries(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path, segment_index_bytes=48, index_interval_bytes=1).open()
    log.update_config(log.config.with_overrides({"index.interval.bytes": 1 << 20}))
    for number in range(6):
        log.append([Record(value=b"x", timestamp_ms=1000 + number)])
    assert bases(log) == [0, 4]


def test_an_offset_that_does_not_fit_32_bits_rolls_the_segment(tmp_path: Path) -> None:
    log = LogInFolder(tmp_path).open()
    log.append(numbered(0, 1))
    log.append_batches(a_batch(b"far", base_offset=2**31 - 1), origin=AppendOrigin.AS_IS)
    assert bases(log) == [0]
    log.append(numbered(1, 2))
    assert bases(log) == [0, 2**31]
    log.append_batches(a_batch(b"further", base_offset=2**33), origin=AppendOrigin.AS_IS)
    assert bases(log) == [0, 2**31, 2**33]
    assert [record.offset for record in log.read(0)] == [0, 2**31 - 1, 2**31, 2**33]
    log.close()
    assert LogInFolder(tmp_path).open().end_offset == 2**33 + 1


@pytest.mark.parametrize("seed", range(5))
def test_the_short_way_to_decide_on_a_roll_decides_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = Random(seed)
    configs: dict[str, Any] = {
        "internal_segment_bytes": random.choice((800, 3000)),
        "segment_index_bytes": random.choice((24, 60, 400)),
        "index_interval_bytes": random.choice((1, 150)),
        "segment_ms": random.choice((50, 10_000)),
    }
    appends = [
        [Record(value=bytes(random.randrange(150)), timestamp_ms=step + random.randrange(30))] * random.randrange(1, 4)
        for step in range(200)
    ]
    quick = LogInFolder(tmp_path / "quick", **configs).open()
    for records in appends:
        quick.append(records)
    monkeypatch.setattr(log_writer, "free_range", lambda *_: NO_FREE_RANGE)
    thorough = LogInFolder(tmp_path / "thorough", **configs).open()
    for records in appends:
        thorough.append(records)
    assert bases(quick) == bases(thorough)
    assert len(bases(quick)) > 5


def test_other_configs_count_from_the_next_append_on(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    log.append(numbered(0, 1))
    log.append(numbered(1, 2))
    log.update_config(log.config.with_overrides({"internal.segment.bytes": 100, "max.message.bytes": 90}))
    log.append(numbered(2, 3))
    assert bases(log) == [0, 2]
    with pytest.raises(RecordTooLarge):
        log.append([Record(value=bytes(50))])


# Failures


class Disk(LocalFileSystem):
    """A disk that fails the chosen operations."""

    def __init__(self) -> None:
        super().__init__()
        self.full_after: int | None = None
        self.refuse_sync = False
        self.refuse_to_cut = ""

    def truncate(self, path: str, size: int) -> None:
        if self.refuse_to_cut and path.endswith(self.refuse_to_cut):
            raise StorageError(f"{path}: cannot truncate: Input/output error")
        super().truncate(path, size)

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> Any:
        return _File(super().open(path, writable=writable, create=create), self)

    def write(self, path: str, data: Any, *, sync: bool) -> None:
        if self.full_after is not None and len(data) > self.full_after:
            raise StorageError(f"{path}: cannot write: No space left on device")
        super().write(path, data, sync=sync)


class _File:
    def __init__(self, file: Any, disk: Disk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def append(self, *buffers: Any) -> int:
        if self._disk.full_after is not None and sum(map(len, buffers)) > self._disk.full_after:
            self._file.append(bytes(self._disk.full_after))
            self._file.truncate(self._file.size - self._disk.full_after)
            raise StorageError(f"{self._file.name}: cannot append to: No space left on device")
        return int(self._file.append(*buffers))

    def truncate(self, size: int) -> None:
        if self._disk.refuse_to_cut == ".log":
            raise StorageError(f"{self._file.name}: cannot truncate: Input/output error")
        self._file.truncate(size)

    def sync(self) -> None:
        if self._disk.refuse_sync:
            error = OSError(errno.EIO, "Input/output error")
            raise StorageError(f"{self._file.name}: cannot sync: {error.strerror}") from error
        self._file.sync()


def test_a_full_disk_leaves_the_log_as_it_was_and_usable(tmp_path: Path) -> None:
    disk = Disk()
    folder = LogInFolder(tmp_path, files=disk, internal_segment_bytes=1000)
    log = folder.open()
    log.append(numbered(0, 3), producer_id=1, producer_epoch=0, base_sequence=0)
    before = log.view
    disk.full_after = 10
    for _ in range(3):
        with pytest.raises(StorageError, match="No space left"):
            log.append(numbered(3, 5), producer_id=1, producer_epoch=0, base_sequence=3)
    assert log.view == before
    assert not log.in_doubt
    disk.full_after = None
    assert log.append(numbered(3, 5), producer_id=1, producer_epoch=0, base_sequence=3) == AppendResult(3, 4, -1)
    assert values(log.read(0)) == [b"0", b"1", b"2", b"3", b"4"]
    log.close()
    assert values(folder.open().read(0)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_log_that_cannot_be_closed_in_order_is_in_doubt(tmp_path: Path) -> None:
    disk = Disk()
    folder = LogInFolder(tmp_path, files=disk)
    log = folder.open()
    log.append(numbered(0, 3))
    disk.refuse_sync = True
    with pytest.raises(StorageError, match="cannot sync"):
        log.close()
    assert log.in_doubt
    log.close()
    disk.refuse_sync = False
    assert values(folder.open(clean=False).read(0)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("owner", "name"), [(OffsetIndex, "append"), (TimeIndex, "maybe_append"), (ProducerState, "update")]
)
def test_an_append_that_is_interrupted_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    folder = LogInFolder(tmp_path, index_interval_bytes=1)
    log = folder.open()
    sender: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
    log.append(numbered(0, 3), base_sequence=0, **sender)
    before = log.view

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.append(numbered(3, 5), base_sequence=3, **sender)
    assert log.view == before
    assert not log.in_doubt
    assert Path(log.segments[0].path).stat().st_size == before.end_position
    assert log.append(numbered(3, 5), base_sequence=3, **sender) == AppendResult(3, 4, -1)
    assert values(log.read(0)) == [b"0", b"1", b"2", b"3", b"4"]
    log.close()
    assert values(folder.open().read(4)) == [b"4"]


def test_a_disk_that_is_full_when_the_log_rolls(tmp_path: Path) -> None:
    disk = Disk()
    folder = LogInFolder(tmp_path, files=disk, internal_segment_bytes=200)
    log = folder.open()
    log.append([Record(value=bytes(100))])
    disk.full_after = 5
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            log.append([Record(value=bytes(100))])
    disk.full_after = None
    assert log.append([Record(value=bytes(100))]).base_offset == 1
    assert len(list(log.read(0))) == 2
    log.close()
    assert len(list(folder.open().read(0))) == 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_a_roll_that_fails_leaves_the_old_segment_in_use(tmp_path: Path, suffix: str) -> None:
    disk = Disk()
    folder = LogInFolder(tmp_path, files=disk, index_interval_bytes=1)
    log = folder.open()
    for number in range(4):
        log.append(numbered(number, number + 1))
    disk.refuse_to_cut = suffix
    for number in (4, 5):
        with pytest.raises(StorageError, match="cannot truncate"):
            log.roll()
        assert log.append(numbered(number, number + 1)).base_offset == number
    disk.refuse_to_cut = ""
    assert bases(log) == [0]
    log.roll()
    log.append(numbered(6, 7))
    assert bases(log) == [0, 6]
    assert values(log.read(0)) == [b"%d" % number for number in range(7)]
    log.close()
    again = folder.open()
    assert [values(again.read(offset))[0] for offset in range(7)] == [b"%d" % offset for offset in range(7)]
    assert bases(again) == [0, 6]


class Watched(LocalFileSystem):
    """Looks at the folder with the eyes of a reader whenever a log was made, and may refuse to make one."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], object] = lambda: None
        self.refuses = False

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> Any:
        if create and self.refuses:
            raise StorageError(f"{path}: cannot open: No space left on device")
        file = super().open(path, writable=writable, create=create)
        if create:
            self.look()
        return file


def test_a_segment_is_finished_before_the_next_one_is_there(tmp_path: Path) -> None:
    """Or a reader of a live directory would find, and a kill would leave, zeros in the middle of the log."""
    disk = Watched()
    folder = LogInFolder(tmp_path, files=disk, preallocate="true", internal_segment_bytes=4096)
    log = folder.open()
    for number in range(3):
        log.append(numbered(number, number + 1))
    seen: list[list[bytes | None]] = []
    disk.look = lambda: seen.append(values(folder.open(read_only=True).read(0)))
    log.roll()
    assert seen == [[b"0", b"1", b"2"]]
    assert bases(log) == [0, 3]


def test_a_segment_that_no_other_could_follow_is_written_on(tmp_path: Path) -> None:
    disk = Watched()
    folder = LogInFolder(tmp_path, files=disk, preallocate="true", internal_segment_bytes=4096, index_interval_bytes=1)
    log = folder.open()
    log.append(numbered(0, 2, timestamp_ms=NOW_MS))
    disk.refuses = True
    for number in (2, 3):
        with pytest.raises(StorageError, match="No space left"):
            log.roll()
        log.append(numbered(number, number + 1, timestamp_ms=NOW_MS + number))
    assert values(log.read(0)) == [b"0", b"1", b"2", b"3"]
    log.close()
    again = folder.open()
    assert again.offset_for_timestamp(NOW_MS + 3) == (3, NOW_MS + 3)
    assert again.segments[0].largest_timestamp_ms == NOW_MS + 3
    assert values(again.read(2)) == [b"2", b"3"]


def test_after_a_failed_sync_nothing_is_appended_until_the_log_is_opened_again(tmp_path: Path) -> None:
    disk = Disk()
    folder = LogInFolder(tmp_path, files=disk)
    log = folder.open()
    log.append(numbered(0, 3))
    disk.refuse_sync = True
    with pytest.raises(StorageError, match="Input/output error"):
        log.flush()
    assert log.in_doubt
    disk.refuse_sync = False
    for attempt in (lambda: log.append(numbered(3, 4)), log.flush, log.roll, lambda: log.truncate_to(0)):
        with pytest.raises(StorageError, match=r"opened again.*Input/output error"):
            attempt()
    assert values(log.read(0)) == [b"0", b"1", b"2"]
    log.close()
    assert log.recovery_point == 0
    again = folder.open(clean=False)
    assert again.append(numbered(3, 4)).base_offset == 3


# The last offsets


def test_a_log_ends_with_the_last_offset_whose_end_has_a_name(tmp_path: Path) -> None:
    folder = LogInFolder(tmp_path)
    log = folder.open()
    log.start_at(2**63 - 4)
    with pytest.raises(InvalidRecord, match="there are no offsets left"):
        log.append(numbered(0, 4))
    log.append(numbered(0, 2))
    with pytest.raises(InvalidRecord, match="there are no offsets left"):
        log.append_batches(bytearray(a_batch(b"a", b"b")))
    log.append(numbered(0, 1))
    assert log.end_offset == 2**63 - 1
    log.roll()
    for append in (lambda: log.append(numbered(0, 1)), lambda: log.append_batches(bytearray(a_batch(b"a")))):
        with pytest.raises(InvalidRecord, match="there are no offsets left"):
            append()
    log.close()
    again = folder.open()
    assert [record.offset for record in again.read(again.start_offset)] == [2**63 - 4, 2**63 - 3, 2**63 - 2]
