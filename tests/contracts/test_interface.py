"""What callers outside the project rely on, sentence by sentence, by public names alone.

    with duralog.open("data", config={...}) as store: create_topic, topics, partition, append, append_arrow, read,
    read_arrow, offset_for_timestamp, offsets, segments, delete_records, roll, flush, apply_retention, compact
    duralog.open("data", read_only=True): takes no lock, changes nothing, works on a live or foreign directory

`read` yields data records only, `read_committed` hides aborted data too. A folder of partition folders opens without
`meta.properties`, stored configs or index files; topics without a stored config use the defaults given to `open`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import duralog
from tests.support.places import GOLDEN

GOLDEN_STORE = GOLDEN / "store"
THEN_MS = 1_700_000_000_000
KEEP = {"log.retention.ms": -1}
INDEXES = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")


def record(key: str, value: str | None = "v", *, timestamp_ms: int = THEN_MS) -> duralog.Record:
    return duralog.Record(
        key=key.encode(), value=None if value is None else value.encode(), timestamp_ms=timestamp_ms, headers=[]
    )


def files_of(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "yet"


@pytest.fixture
def store(data: Path) -> Iterator[duralog.Store]:
    with duralog.open(str(data), config={"log.segment.bytes": 1 << 20, **KEEP}) as store:
        yield store


@pytest.fixture
def log(store: duralog.Store) -> duralog.PartitionLog:
    store.create_topic("orders", partitions=2)
    return store.partition("orders", 0)


# A new directory


def test_completion_has_the_public_names_and_no_others() -> None:
    assert [name for name in dir(duralog) if not name.startswith("_")] == sorted(set(duralog.__all__) - {"__version__"})


def test_a_topic_is_created_with_partitions_and_configs(store: duralog.Store) -> None:
    assert store.topics() == []
    store.create_topic("orders", partitions=2, config={"cleanup.policy": "compact"})
    assert store.topics() == ["orders"]
    assert [store.partition("orders", number).end_offset for number in (0, 1)] == [0, 0]
    with pytest.raises(duralog.InvalidRecord):
        store.partition("orders", 0).append([duralog.Record(value=b"without a key")])


def test_the_configs_of_open_are_in_force(log: duralog.PartitionLog) -> None:
    for number in range(5):
        log.append([duralog.Record(value=os.urandom(300_000), key=b"%d" % number)])
    assert len(log.segments) == 2
    assert all(segment.size_bytes <= 1 << 20 for segment in log.segments)


@pytest.mark.parametrize("codec", [None, "none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_is_read_as_it_was_appended(log: duralog.PartitionLog, codec: str | None) -> None:
    appended = duralog.Record(key=b"k", value=b"v", timestamp_ms=THEN_MS, headers=[("h", b"x"), ("h", None)])
    result = log.append([appended, duralog.Record()], codec=codec)
    assert (result.base_offset, result.last_offset) == (0, 1)
    first, second = log.read(0)
    assert (first.offset, first.timestamp_ms, first.key, first.value) == (0, THEN_MS, b"k", b"v")
    assert first.timestamp_type is duralog.TimestampType.CREATE_TIME
    assert list(first.headers) == [("h", b"x"), ("h", None)]
    assert (second.offset, second.key, second.value, list(second.headers)) == (1, None, None, [])


def test_a_table_is_appended_and_read(log: duralog.PartitionLog) -> None:
    log.append_arrow(pa.table({"key": [b"a", None], "value": [b"1", b"2"]}))
    headers = pa.array([[("h", b"x")]], pa.map_(pa.string(), pa.binary())).cast(
        pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    times = pa.array([THEN_MS], pa.timestamp("ms", "UTC"))
    result = log.append_arrow(pa.table({"key": ["b"], "value": ["3"], "timestamp": times, "headers": headers}))
    assert (result.base_offset, result.last_offset) == (2, 2)
    table = log.read_arrow(start_offset=0, end_offset=None)
    assert isinstance(table, pa.Table)
    assert table["key"].to_pylist() == [b"a", None, b"b"]
    assert table["value"].to_pylist() == [b"1", b"2", b"3"]
    assert table["timestamp"].to_pylist()[2] == datetime.fromtimestamp(THEN_MS / 1000, UTC)
    assert table["headers"].to_pylist()[2] == [{"key": "h", "value": b"x"}]
    assert log.read_arrow(start_offset=1, end_offset=2)["offset"].to_pylist() == [1]
    assert log.append_arrow(log.read_arrow(0, 1)).base_offset == 3


def test_reading_is_bounded_by_bytes_and_starts_at_any_offset(log: duralog.PartitionLog) -> None:
    for number in range(10):
        log.append([record(str(number), "v" * 1000), record("same")])
    assert [each.offset for each in log.read(13)] == list(range(13, 20))
    assert [each.offset for each in log.read(20)] == []
    assert [each.offset for each in log.read(0, max_bytes=1)] == [0, 1]
    assert [each.offset for each in log.read(0, max_bytes=2500)] == [0, 1, 2, 3]
    for outside in (-1, 21):
        with pytest.raises(duralog.OffsetOutOfRange):
            log.read(outside)


def test_records_are_found_by_time(log: duralog.PartitionLog) -> None:
    log.append([record("a", timestamp_ms=THEN_MS + 10 * number) for number in (0, 3, 1, 3, 5)])
    assert log.offset_for_timestamp(THEN_MS) == duralog.TimestampedOffset(0, THEN_MS)
    offset, timestamp_ms = log.offset_for_timestamp(THEN_MS + 11) or (None, None)
    assert (offset, timestamp_ms) == (1, THEN_MS + 30)
    assert log.offset_for_timestamp(THEN_MS + 51) is None


def test_offsets_and_segments_are_those_of_the_log(log: duralog.PartitionLog) -> None:
    log.append([record("a", timestamp_ms=THEN_MS + number) for number in (1, 9, 3)])
    log.roll()
    log.append([record("b")])
    assert isinstance(log.segments, tuple)
    assert [(each.base_offset, each.largest_timestamp_ms) for each in log.segments] == [(0, THEN_MS + 9), (3, THEN_MS)]
    log.flush()
    log.delete_records(before_offset=3)
    assert (log.start_offset, log.end_offset, log.high_watermark, log.last_stable_offset) == (3, 4, 4, 4)
    with pytest.raises(duralog.OffsetOutOfRange):
        log.read(2)
    with pytest.raises(duralog.OffsetOutOfRange):
        log.delete_records(before_offset=5)


def test_retention_and_compaction_report_what_they_did(store: duralog.Store, log: duralog.PartitionLog) -> None:
    log.append([record("old")])
    log.roll()
    log.append([duralog.Record(key=b"new")])
    store.alter_topic_config("orders", {"retention.ms": 1000})
    removed = store.apply_retention()
    assert [(each.topic, each.partition, each.base_offset) for each in removed.removals] == [("orders", 0, 0)]
    assert [each.key for each in log.read(log.start_offset)] == [b"new"]

    store.create_topic("latest", 1, {"cleanup.policy": "compact"})
    latest = store.partition("latest", 0)
    latest.append([record("a", str(number)) for number in range(50)])
    latest.roll()
    report = store.compact("latest", 0)
    assert (report.records_before, report.records_after) == (50, 1)
    assert report.bytes_before > report.bytes_after > 0
    assert report.seconds > 0
    assert [(each.offset, each.value) for each in latest.read(0)] == [(49, b"49")]


def test_every_error_is_one_of_duralogs(data: Path, store: duralog.Store, log: duralog.PartitionLog) -> None:
    store.alter_topic_config("orders", {"max.message.bytes": 1000, "message.timestamp.after.max.ms": 1000})
    refused: list[tuple[type[Exception], duralog.Record]] = [
        (duralog.RecordTooLarge, record("a", "v" * 2000)),
        (duralog.InvalidTimestamp, record("a", timestamp_ms=2**62)),
        (duralog.InvalidRecord, record("a", timestamp_ms=-5)),
    ]
    for error, asked in refused:
        with pytest.raises(error):
            log.append([record("b"), asked])
    assert log.end_offset == 0
    with pytest.raises(duralog.StoreLocked):
        duralog.open(data)
    for name in ("OffsetOutOfRange", "CorruptRecord", "RecordTooLarge", "InvalidRecord", "InvalidTimestamp"):
        assert issubclass(getattr(duralog, name), duralog.DuralogError)
    assert issubclass(duralog.StoreLocked, duralog.DuralogError)


def test_damage_is_reported_with_its_place_and_not_read(log: duralog.PartitionLog) -> None:
    log.append([record("a")])
    log.append([record("b")])
    log.roll()
    path = Path(log.segments[0].path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    reading = log.read(0)
    assert next(reading).key == b"a"
    with pytest.raises(duralog.CorruptRecord, match=path.name):
        next(reading)


# Reading only


def test_a_reader_takes_no_lock_and_changes_nothing_during_writes(
    data: Path, store: duralog.Store, log: duralog.PartitionLog
) -> None:
    log.append([record("a"), record("b")])
    before = files_of(data)
    with duralog.open(data, read_only=True) as reader:
        seen = reader.partition("orders", 0)
        assert reader.topics() == ["orders"]
        assert [each.key for each in seen.read(0)] == [b"a", b"b"]
        assert (seen.start_offset, seen.end_offset, seen.high_watermark, seen.last_stable_offset) == (0, 2, 2, 2)
        assert seen.offset_for_timestamp(THEN_MS) == duralog.TimestampedOffset(0, THEN_MS)
        for change in (
            lambda: reader.create_topic("new"),
            lambda: seen.append([record("c")]),
            lambda: seen.delete_records(before_offset=1),
            lambda: reader.apply_retention(),
            lambda: reader.compact("orders", 0),
            lambda: seen.roll(),
        ):
            with pytest.raises(duralog.DuralogError):
                change()
    assert files_of(data) == before
    log.append([record("c")])
    log.roll()
    log.delete_records(before_offset=3)
    store.apply_retention()
    with duralog.open(data, read_only=True) as reader:
        assert reader.partition("orders", 0).end_offset == 3
        assert list(reader.partition("orders", 0).read(3)) == []


def test_a_reader_opens_what_it_cannot_write_to(data: Path, store: duralog.Store, log: duralog.PartitionLog) -> None:
    log.append([record("a")])
    store.close()
    for path in [*data.rglob("*"), data]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with duralog.open(data, read_only=True) as reader:
            assert [each.key for each in reader.partition("orders", 0).read(0)] == [b"a"]
    finally:
        for path in [data, *data.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


# What Kafka wrote


def stripped(directory: Path) -> Path:
    """No owner, no metadata, no checkpoints, no indexes, no snapshots: partition folders with logs in them."""
    copied = shutil.copytree(GOLDEN_STORE, directory, ignore=shutil.ignore_patterns(*INDEXES, "__cluster*", "*.truth*"))
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    for path in directory.glob("*/*"):
        if path.suffix != ".log":
            path.unlink()
    return Path(copied)


def seen_in(directory: Path, *, read_only: bool) -> dict[tuple[str, int], list[object]]:
    """All data that is committed, and the first offset from the middle of the time that each partition spans."""
    found: dict[tuple[str, int], list[object]] = {}
    with duralog.open(directory, KEEP, read_only=read_only) as store:
        for topic in store.topics():
            for number in store.partitions(topic):
                log = store.partition(topic, number)
                records = list(log.read(log.start_offset, isolation="read_committed"))
                middle = records[len(records) // 2].timestamp_ms if records else 0
                found[topic, number] = [records, log.offset_for_timestamp(middle), log.last_stable_offset]
    return found


def test_partition_folders_alone_open_and_hold_the_same(tmp_path: Path) -> None:
    expected = seen_in(GOLDEN_STORE, read_only=True)
    folder = stripped(tmp_path / "logs")
    before = files_of(folder)
    bare = seen_in(folder, read_only=True)
    assert files_of(folder) == before
    # Where the log starts was told by a checkpoint alone.
    trimmed = [records for records, *_ in (expected.pop(("trimmed", 0)), bare.pop(("trimmed", 0)))]
    assert isinstance(trimmed[0], list)
    assert isinstance(trimmed[1], list)
    assert trimmed[1][-len(trimmed[0]) :] == trimmed[0]
    assert bare == expected
    written = seen_in(folder, read_only=False)
    del written["trimmed", 0]
    assert written == expected


def test_a_topic_without_a_stored_config_uses_what_open_was_given(tmp_path: Path) -> None:
    folder = stripped(tmp_path / "logs")
    given = {"log.cleanup.policy": "compact", "log.segment.bytes": 1 << 20}
    with duralog.open(folder, given, read_only=True) as store:
        assert store.topic_config("plain").cleanup_policy == {"compact"}
        assert store.topic_config("plain").segment_bytes == 1 << 20
        assert store.topic_overrides("plain") == {}


def test_control_batches_are_never_read_and_aborted_data_is_hidden_on_request() -> None:
    with duralog.open(GOLDEN_STORE, read_only=True) as store:
        log = store.partition("txn", 0)
        everything = {each.offset for each in log.read(0)}
        committed = {each.offset for each in log.read(0, isolation="read_committed")}
        assert committed < everything < set(range(log.end_offset))
        in_arrow = log.read_arrow(isolation="read_committed")["offset"].to_pylist()
        assert in_arrow == sorted(committed)
