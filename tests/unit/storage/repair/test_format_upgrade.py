"""Upgrading v0 and v1 to v2: the same records, in batches as the messages were, and proof of it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duralog.columnar.pieces import Piece
from duralog.columnar.record_digest import RecordDigest
from duralog.columnar.upgrading import UpgradedRun, UpgradeRules, upgrade_piece
from duralog.format import message_set, record_batch
from duralog.format.batch import Batch
from duralog.format.batches import scan
from duralog.format.checksum import crc32
from duralog.format.compression import Codec, compress
from duralog.format.layout import MESSAGE_V0
from duralog.format.record import Record, TimestampType
from duralog.storage.checks.verification import Verification
from duralog.storage.compaction import cleaned_segment
from duralog.storage.compaction.compact import compact_log
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.repair import format_upgrade
from duralog.storage.repair.format_upgrade import LogUpgrade, UpgradeRefused, preview_upgrade, upgrade_log
from tests.support.storage.legacy_logs import START_MS, LegacyWriter, records_in
from tests.support.storage.log_in_folder import LogInFolder

OLD_TIME_S = 1_500_000_000


def written(folder: Path, *segments: tuple[int, bytes]) -> LogInFolder:
    """A folder with these logs, by base offset."""
    partition = LogInFolder(folder, index_interval_bytes=200, segment_ms=10**15)
    folder.mkdir()
    for base_offset, data in segments:
        path = folder / f"{base_offset:020}.log"
        path.write_bytes(data)
        os.utime(path, (OLD_TIME_S, OLD_TIME_S))
    return partition


def opened(folder: Path, *segments: tuple[int, bytes]) -> tuple[LogInFolder, PartitionLog]:
    partition = written(folder, *segments)
    return partition, partition.open(clean=False)


def log_bytes(partition: LogInFolder) -> bytes:
    return b"".join(data for name, data in partition.contents().items() if name.endswith(".log"))


def batches_of(partition: LogInFolder) -> list[Batch]:
    return [batch for name, data in partition.contents().items() if name.endswith(".log") for batch in scan(data)]


def upgraded(folder: Path, data: bytes, **rules: Any) -> tuple[list[Batch], LogUpgrade]:
    """The batches that become of one segment's; the records are compared here."""
    partition, log = opened(folder, (0, data))
    report = upgrade_log(log, rules=UpgradeRules(**rules))
    assert records_in(log_bytes(partition)) == records_in(data)
    assert report.before == report.after
    assert not report.left
    return batches_of(partition), report


def messages(count: int, *, magic: int = 1, first: int = 0, **options: Any) -> bytes:
    records = [
        Record(key=b"k%d" % number, value=b"v%d" % number, timestamp_ms=START_MS + number, offset=first + number)
        for number in range(count)
    ]
    return message_set.encode(records, magic=magic, base_offset=first, **options)


def test_plain_messages_share_batches(tmp_path: Path) -> None:
    batches, report = upgraded(tmp_path / "t-0", messages(500), batch_bytes=1000)
    assert {batch.magic for batch in batches} == {2}
    assert 5 < len(batches) < 50
    assert all(batch.size_bytes <= 1000 + 61 for batch in batches)
    assert (report.segments, report.messages, report.batches) == (1, 500, len(batches))
    assert report.before.records == 500
    assert report.bytes_after < report.bytes_before


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_compressed_message_becomes_a_batch_with_its_codec(tmp_path: Path, codec: Codec, magic: int) -> None:
    first = messages(20, magic=magic, codec=codec)
    second = messages(30, magic=magic, first=100, codec=codec)
    batches, _ = upgraded(tmp_path / "t-0", first + second)
    assert [(batch.base_offset, batch.last_offset, batch.record_count) for batch in batches] == [
        (0, 19, 20),
        (100, 129, 30),
    ]
    assert {batch.codec_id for batch in batches} == {codec}


def test_another_codec_can_be_chosen(tmp_path: Path) -> None:
    data = messages(20, codec=Codec.GZIP) + messages(200, first=100)
    batches, _ = upgraded(tmp_path / "t-0", data, codec=Codec.ZSTD)
    assert {batch.codec_id for batch in batches} == {Codec.ZSTD}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_log_append_time_stays(tmp_path: Path, codec: Codec) -> None:
    append_time = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "codec": codec}
    data = messages(3, append_time_ms=7_000, **append_time) + messages(4, first=3, append_time_ms=8_000, **append_time)
    batches, _ = upgraded(tmp_path / "t-0", data)
    told = [(batch.record_count, batch.timestamp_type, batch.max_timestamp_ms) for batch in batches]
    assert told == [(3, TimestampType.LOG_APPEND_TIME, 7_000), (4, TimestampType.LOG_APPEND_TIME, 8_000)]


def test_messages_of_both_kinds_of_time_share_no_batch(tmp_path: Path) -> None:
    data = messages(2) + messages(2, first=2, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=START_MS + 1)
    batches, _ = upgraded(tmp_path / "t-0", data)
    assert [batch.timestamp_type for batch in batches] == [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]


def test_v0_has_no_time_afterwards_either(tmp_path: Path) -> None:
    batches, _ = upgraded(tmp_path / "t-0", messages(10, magic=0))
    assert [(batch.max_timestamp_ms, batch.timestamp_type) for batch in batches] == [(-1, TimestampType.CREATE_TIME)]


def test_tombstones_and_empty_fields_stay(tmp_path: Path) -> None:
    records = [
        Record(key=b"k", value=None, timestamp_ms=START_MS, offset=3),
        Record(key=None, value=b"", timestamp_ms=-1, offset=7),
        Record(key=b"", value=None, timestamp_ms=START_MS - 5, offset=8),
    ]
    upgraded(tmp_path / "t-0", message_set.encode(records, magic=1, base_offset=3))


@pytest.mark.parametrize("seed", range(12))
def test_any_mix_of_formats(tmp_path: Path, seed: int) -> None:
    data = LegacyWriter(seed).batches(60)
    batches, _ = upgraded(tmp_path / "t-0", data)
    assert {batch.magic for batch in batches} == {2}
    for report in Verification(str(tmp_path / "t-0"), interval_bytes=200, decode=True).run():
        assert [str(error) for error in report.errors] == []


def test_v2_batches_are_copied_byte_for_byte(tmp_path: Path) -> None:
    record = Record(key=b"k", value=b"v", timestamp_ms=START_MS, headers=[("h", b"x")], offset=5)
    batch = record_batch.encode(
        [record], base_offset=5, codec=Codec.ZSTD, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=0
    )
    partition, log = opened(tmp_path / "t-0", (0, messages(5) + batch + messages(5, first=10)))
    upgrade_log(log)
    assert batch in log_bytes(partition)
    assert [(found.base_offset, found.producer_id) for found in batches_of(partition)] == [(0, -1), (5, 9), (10, -1)]


def test_a_log_without_old_messages_is_not_touched(tmp_path: Path) -> None:
    batch = record_batch.encode([Record(key=b"k", value=b"v", timestamp_ms=START_MS)], base_offset=0)
    partition, log = opened(tmp_path / "t-0", (0, batch))
    before = partition.contents()
    report = upgrade_log(log)
    assert (report.segments, report.left, report.before.records) == (0, {}, 1)
    assert report.before == report.after
    assert partition.contents() == before


def test_only_segments_with_old_messages_are_replaced(tmp_path: Path) -> None:
    new = record_batch.encode([Record(key=b"k", value=b"v", timestamp_ms=START_MS, offset=10)], base_offset=10)
    segments = [(0, messages(10)), (10, new), (11, messages(3, first=11)), (20, b"")]
    partition, log = opened(tmp_path / "t-0", *segments)
    before = partition.contents()
    report = upgrade_log(log)
    assert report.segments == 2
    after = partition.contents()
    assert after[f"{10:020}.log"] == before[f"{10:020}.log"]
    assert after[f"{0:020}.log.deleted"] == before[f"{0:020}.log"]
    partition.catch_up()
    assert not any(name.endswith(".deleted") for name in partition.names)
    assert [record.offset for record in log.read(0)] == [*range(10), 10, 11, 12, 13]


def test_the_active_segment_is_closed_first(tmp_path: Path) -> None:
    partition, log = opened(tmp_path / "t-0", (0, messages(10)))
    upgrade_log(log)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    log.append([Record(key=b"k", value=b"next", timestamp_ms=START_MS)])
    assert [record.offset for record in log.read(0)] == list(range(11))
    log.close()
    partition.catch_up()
    assert [record.offset for record in partition.open().read(0)] == list(range(11))


def test_a_second_upgrade_has_nothing_to_do(tmp_path: Path) -> None:
    _, log = opened(tmp_path / "t-0", (0, LegacyWriter(1).batches(20)))
    first = upgrade_log(log)
    second = upgrade_log(log)
    assert (second.segments, str(second.before)) == (0, str(first.after))


def test_the_time_of_the_file_stays(tmp_path: Path) -> None:
    """It stands for the time of records that have none: retention goes by it."""
    _, log = opened(tmp_path / "t-0", (0, messages(10, magic=0)), (10, b""))
    before = log.segments[0].largest_timestamp_ms
    upgrade_log(log)
    assert log.segments[0].largest_timestamp_ms == before
    assert (tmp_path / "t-0" / f"{0:020}.log").stat().st_mtime == OLD_TIME_S


def test_lookups_by_time_find_the_same(tmp_path: Path) -> None:
    data = LegacyWriter(5, v2=False).batches(80)
    times = range(START_MS, START_MS + 1000, 50)
    _, log = opened(tmp_path / "t-0", (0, data))
    before = [log.offset_for_timestamp(time) for time in times]
    upgrade_log(log)
    assert [log.offset_for_timestamp(time) for time in times] == before


def test_aborted_transactions_stay_aborted(tmp_path: Path) -> None:
    partition = written(tmp_path / "t-0", (0, messages(5)))
    log = partition.open(clean=False)
    log.append(
        [Record(value=b"aborted", timestamp_ms=START_MS)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.end_transaction(1, 0, commit=False)
    before = list(log.read(0, isolation="read_committed"))
    upgrade_log(log)
    assert f"{0:020}.txnindex" in partition.names
    after = list(log.read(0, isolation="read_committed"))
    assert [(record.offset, record.value) for record in after] == [(record.offset, record.value) for record in before]
    assert len(after) == 5


def test_a_damaged_segment_stays_and_the_others_do_not(tmp_path: Path) -> None:
    damaged = bytearray(messages(10, codec=Codec.GZIP) + messages(10, first=10))
    damaged[60] ^= 1
    partition = written(tmp_path / "t-0", (0, messages(5)), (5, bytes(damaged)), (20, messages(5, first=20)), (25, b""))
    for base_offset in (0, 5, 20, 25):
        (tmp_path / "t-0" / f"{base_offset:020}.index").touch()
    log = partition.open(clean=True)
    report = upgrade_log(log)
    assert report.segments == 2
    (reason,) = report.left.values()
    assert f"{5:020}.log: position 0: wrong checksum" in reason
    assert partition.contents()[f"{5:020}.log"] == bytes(damaged)
    assert report.before == report.after
    assert not any(name.endswith(".cleaned") for name in partition.names)


def test_offsets_that_do_not_rise_inside_of_a_message(tmp_path: Path) -> None:
    inner = messages(1, magic=0, first=6) + messages(1, magic=0, first=5) + messages(1, magic=0, first=7)
    data = wrapped(inner, offset=7)
    partition, log = opened(tmp_path / "t-0", (0, data))
    report = upgrade_log(log)
    assert "the offsets of messages do not rise" in report.left[0]
    assert log_bytes(partition) == data


def wrapped(inner: bytes, *, offset: int) -> bytes:
    """A compressed message of format v0 around other messages."""
    packed = compress(Codec.GZIP, inner, magic=0)
    plain = bytearray(message_set.encode([Record(value=packed, offset=offset)], magic=0))
    plain[MESSAGE_V0.at.attributes] = Codec.GZIP
    struct.pack_into(">I", plain, MESSAGE_V0.at.crc, crc32(plain[MESSAGE_V0.at.magic :]))
    return bytes(plain)


def test_other_records_are_refused_and_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What if the encoder were wrong: the old segment stays, to the byte."""

    def wrong(piece: Piece, rules: UpgradeRules, digest: RecordDigest) -> Iterator[UpgradedRun]:
        for run in upgrade_piece(piece, rules, digest):
            other = record_batch.encode(
                [Record(key=b"k0", value=b"v0", timestamp_ms=START_MS + (number == 3)) for number in range(10)]
            )
            assert len(run.batches) == 1
            batches = run.batches.copy()
            batches["size"] = len(other)
            yield UpgradedRun(np.frombuffer(other, np.uint8), batches)

    monkeypatch.setattr(format_upgrade, "upgrade_piece", wrong)
    data = messages(10)
    partition, log = opened(tmp_path / "t-0", (0, data))
    with pytest.raises(UpgradeRefused, match=f"{0:020}.log: upgraded, it does not hold the same records"):
        upgrade_log(log)
    assert partition.contents()[f"{0:020}.log"] == data
    assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in partition.names)
    assert [record.offset for record in log.read(0)] == list(range(10))


def test_what_does_not_fit_a_segment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaned_segment, "MOST_BYTES", 2000)
    data = messages(200)
    partition, log = opened(tmp_path / "t-0", (0, data))
    report = upgrade_log(log)
    assert report.left == {0: "upgraded, it does not fit into a segment"}
    assert partition.contents()[f"{0:020}.log"] == data
    assert not any(name.endswith(".cleaned") for name in partition.names)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_compaction_keeps_the_same_of_both(tmp_path: Path, seed: int) -> None:
    data = LegacyWriter(seed).batches(60)
    kept = []
    for name in ("old", "new"):
        _, log = opened(tmp_path / name, (0, data))
        if name == "new":
            upgrade_log(log)
        log.roll()
        compact_log(log, first_dirty_offset=0, end=log.end_offset, now_ms=START_MS)
        kept.append([(record.offset, record.timestamp_ms, record.key, record.value) for record in log.read(0)])
    assert kept[0] == kept[1]
    assert 0 < len(kept[0]) < len(records_in(data))


def test_a_preview_changes_nothing(tmp_path: Path) -> None:
    partition, log = opened(tmp_path / "t-0", (0, messages(10)), (10, messages(5, first=10, codec=Codec.GZIP)))
    before = partition.contents()
    report = preview_upgrade(log)
    assert (report.segments, report.messages) == (2, 11)
    assert report.bytes_before == sum(len(data) for name, data in before.items() if name.endswith(".log"))
    assert partition.contents() == before
