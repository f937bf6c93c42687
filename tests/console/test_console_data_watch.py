"""A directory looked at again and again: what is seen, what that costs, and that nothing ends a look."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duralog
from duralog.config import BrokerConfig
from duralog.console.sources.directory import folder_watch, segment_look
from duralog.console.sources.directory.folder_watch import FolderWatch
from duralog.console.sources.directory.segment_look import empty_tail, entries_in, tail_by_indexes, walk_tail
from duralog.console.sources.directory.snapshots import DirectorySnapshots
from duralog.console.sources.rates import MOST_SAMPLES, History, SizeHistory
from duralog.format.layout import OFFSET_INDEX_ENTRY
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.store import Store

ORDERS = TopicPartition("orders", 0)
KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False}


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with duralog.open(tmp_path / "data", KEEP) as opened:
        opened.create_topic("orders", 1)
        yield opened


def append(store: Store, count: int = 10, topic: str = "orders") -> None:
    records = [duralog.Record(key=b"k", value=bytes(100), timestamp_ms=1_000 + place) for place in range(count)]
    store.partition(topic, 0).append(records)


def watch(directory: Store | Path) -> FolderWatch:
    """Its clock is so late that nothing counts as having changed just now."""
    return FolderWatch(str(directory.path if isinstance(directory, Store) else directory), lambda: 2**62)


def copied(store: Store, tmp_path: Path) -> Path:
    """To be damaged: files of a store that is open are mapped."""
    return Path(shutil.copytree(store.path, tmp_path / "copy"))


def test_an_empty_directory_has_no_partitions(tmp_path: Path) -> None:
    assert FolderWatch(str(tmp_path)).look() == {}


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderWatch(str(tmp_path / "nothing")).look()


def test_a_look_sees_what_the_log_says(store: Store) -> None:
    append(store, 25)
    store.partition("orders", 0).roll()
    append(store, 5)
    log, look = store.partition("orders", 0), watch(store).look()[ORDERS]
    assert (look.first_offset, look.end_offset, look.size_bytes) == (0, log.end_offset, log.size_bytes)
    assert [(segment.base_offset, segment.size_bytes) for segment in look.segments] == [
        (segment.base_offset, segment.size_bytes) for segment in log.segments
    ]
    assert look.latest_timestamp_ms == 1_004
    assert look.trouble is None


def test_nothing_is_opened_where_nothing_happened(store: Store) -> None:
    append(store)
    watched = watch(store)
    first = watched.look()
    assert watched.opened == 1
    for _ in range(10):
        assert watched.look()[ORDERS] is first[ORDERS]
        assert watched.opened <= 1  # Once in a while all the same.


def test_every_partition_is_listed_anew_once_in_a_while(store: Store, tmp_path: Path) -> None:
    append(store)
    store.partition("orders", 0).roll()
    append(store)
    directory = copied(store, tmp_path)
    watched = watch(directory)
    watched.look()
    closed = directory / "orders-0" / f"{0:020}.log"
    size = closed.stat().st_size
    os.truncate(closed, size - 1)  # No time of a folder tells that.
    seen = [watched.look()[ORDERS].segments[0].size_bytes for _ in range(folder_watch._RELISTED_AFTER_LOOKS)]
    assert seen[-1] == size - 1


def test_growth_is_followed_from_where_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    watched.look()
    walked: list[int] = []

    def walk(path: str, known: segment_look.LogTail) -> segment_look.LogTail:
        walked.append(known.position)
        return walk_tail(path, known)

    monkeypatch.setattr(folder_watch, "walk_tail", walk)
    size = store.partition("orders", 0).size_bytes
    append(store)
    assert watched.look()[ORDERS].end_offset == 20
    assert walked == [size]


def test_a_log_that_has_grown_much_is_not_walked_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(store)
    watched.look()
    for _ in range(400):
        append(store)
    walked: list[int] = []

    def walk(path: str, known: segment_look.LogTail) -> segment_look.LogTail:
        walked.append(known.position)
        return walk_tail(path, known)

    monkeypatch.setattr(folder_watch, "walk_tail", walk)
    assert watched.look()[ORDERS].end_offset == 4_000
    assert walked[0] > store.partition("orders", 0).size_bytes - 20_000


def test_a_log_without_an_index_is_walked_in_several_looks(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        append(store, 1)
    directory = copied(store, tmp_path)
    (directory / "orders-0" / f"{0:020}.index").unlink()
    monkeypatch.setattr(segment_look, "_MOST_HEADERS", 10)
    watched = watch(directory)
    first = watched.look()[ORDERS]
    assert first.end_offset == 10
    assert "still being looked for" in str(first.trouble)
    ends = [watched.look()[ORDERS].end_offset for _ in range(3)]
    assert ends == [20, 30, 30]
    assert watched.look()[ORDERS].trouble is None


@pytest.mark.parametrize("entries", [0, 1, 2, 7, 100])
def test_entries_of_an_index_are_counted_before_its_zeros(tmp_path: Path, entries: int) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(b"\0\0\0\1\0\0\0\2" * entries + bytes(8 * 1000))
    assert entries_in(str(path), OFFSET_INDEX_ENTRY) == entries
    assert entries_in(str(tmp_path / "none.index"), OFFSET_INDEX_ENTRY) is None


@pytest.mark.parametrize("junk", [b"\xff" * 8, b"\0\0\0\5\0\0\0\3", b"\0\0\0\1\x7f\xff\xff\xff", b"\1", b""])
def test_an_index_that_leads_astray_does_not_lead(store: Store, tmp_path: Path, junk: bytes) -> None:
    append(store)
    stem = f"{copied(store, tmp_path)}/orders-0/{0:020}"
    Path(f"{stem}.index").write_bytes(junk)
    assert tail_by_indexes(stem, 0) == empty_tail(0)


def test_room_that_was_allocated_ahead_is_no_damage(store: Store, tmp_path: Path) -> None:
    append(store)
    directory = copied(store, tmp_path)
    with (directory / "orders-0" / f"{0:020}.log").open("ab") as log:
        log.write(bytes(5_000))
    look = watch(directory).look()[ORDERS]
    assert (look.end_offset, look.trouble) == (10, None)


def test_garbage_at_the_end_is_told_and_the_rest_is_shown(store: Store, tmp_path: Path) -> None:
    append(store)
    directory = copied(store, tmp_path)
    with (directory / "orders-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"\xff" * 500)
    look = watch(directory).look()[ORDERS]
    assert look.end_offset == 10
    assert look.trouble is not None
    assert f"{0:020}.log" in look.trouble


def test_a_log_that_lost_its_end_is_followed_back(store: Store, tmp_path: Path) -> None:
    append(store)
    size = store.partition("orders", 0).size_bytes
    append(store)
    directory = copied(store, tmp_path)
    watched = watch(directory)
    assert watched.look()[ORDERS].end_offset == 20
    os.truncate(directory / "orders-0" / f"{0:020}.log", size)
    assert watched.look()[ORDERS].end_offset == 10


def test_topics_come_and_go(store: Store) -> None:
    watched = watch(store)
    watched.look()
    store.create_topic("later", 2)
    assert {str(place) for place in watched.look()} == {"later-0", "later-1", "orders-0"}
    store.delete_topic("later")
    assert {str(place) for place in watched.look()} == {"orders-0"}


def test_names_that_are_no_partitions_are_passed_over(store: Store) -> None:
    for name in (
        "no partition",
        "orders-0.x-delete",
        "..-0",
        "\udcff\udcfe-0",
        "a-99999999999",
        "x" * 255,
    ):
        Path(store.path, name).mkdir()
    Path(store.path, "file-0").write_bytes(b"")
    assert {str(place) for place in watch(store).look()} == {"orders-0"}


def test_a_folder_without_a_log_is_in_trouble(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (look,) = FolderWatch(str(tmp_path)).look().values()
    assert look.segments == ()
    assert "there is no log file in it" in str(look.trouble)


def test_a_pipe_or_a_folder_in_place_of_a_log_holds_nobody_up(tmp_path: Path) -> None:
    for name in ("pipe-0", "folder-0"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe-0" / f"{0:020}.log")
    (tmp_path / "folder-0" / f"{0:020}.log").mkdir()
    (tmp_path / "folder-0" / f"{0:020}.log" / "x").touch()
    looks = FolderWatch(str(tmp_path)).look()
    assert [str(place) for place, look in looks.items() if look.trouble is None and place.topic == "folder"] == []


def test_what_vanishes_while_it_is_looked_at_is_seen_next_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    before = watched.look()[ORDERS]
    append(store)

    def gone(_path: str, _known: segment_look.LogTail) -> segment_look.LogTail:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr(folder_watch, "walk_tail", gone)
        assert watched.look()[ORDERS] is before
    assert watched.look()[ORDERS].end_offset == 20


def test_a_disk_that_fails_is_told_and_recovers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    watched.look()
    append(store)

    def failing(_path: str, _known: segment_look.LogTail) -> segment_look.LogTail:
        raise OSError(5, "Input/output error", "x.log")

    with monkeypatch.context() as patched:
        patched.setattr(folder_watch, "walk_tail", failing)
        look = watched.look()[ORDERS]
        assert (look.end_offset, look.trouble) == (10, "x.log: Input/output error")
    look = watched.look()[ORDERS]
    assert (look.end_offset, look.trouble) == (20, None)


# Snapshots


def snapshots(store: Store, clock: Clock) -> DirectorySnapshots:
    made = DirectorySnapshots(store.path, BrokerConfig(), clock)
    made.step()
    return made


def test_rates_are_what_came_between_two_looks(store: Store, clock: Clock) -> None:
    append(store)
    looking = snapshots(store, clock)
    assert looking.newest.overview.records_in_per_second is None
    size = store.partition("orders", 0).size_bytes
    append(store, 30)
    clock.now_ms += 2_000
    looking.step()
    overview = looking.newest.overview
    assert overview.records_in_per_second == 15.0
    assert overview.bytes_in_per_second == (store.partition("orders", 0).size_bytes - size) / 2
    (topic,) = overview.topics
    assert topic.recent == (None, 15.0)
    assert looking.newest.rows["orders"][0].records_in_per_second == 15.0
    clock.now_ms += 2_000
    looking.step()
    assert looking.newest.overview.records_in_per_second == 0.0


def test_a_roll_counts_and_retention_does_not(store: Store, clock: Clock) -> None:
    append(store)
    looking = snapshots(store, clock)
    log = store.partition("orders", 0)
    before = log.size_bytes
    append(store, 10)
    log.roll()
    append(store, 10)
    grown = log.size_bytes - before
    clock.now_ms += 1_000
    looking.step()
    assert looking.newest.overview.bytes_in_per_second == grown
    log.delete_segments([0], "a test")
    clock.now_ms += 1_000
    looking.step()
    assert looking.newest.overview.bytes_in_per_second == 0.0
    assert looking.newest.rows["orders"][0].segments == 1
    assert looking.newest.rows["orders"][0].start_offset == 20


def test_deleted_records_are_not_counted(store: Store, clock: Clock) -> None:
    append(store, 30)
    store.partition("orders", 0).delete_records(12)
    store._upkeep.checkpoint()
    (topic,) = snapshots(store, clock).newest.overview.topics
    assert topic.records == 18


def test_a_directory_that_goes_away_is_told_and_found_again(store: Store, clock: Clock, tmp_path: Path) -> None:
    append(store)
    copy = str(copied(store, tmp_path))
    looking = DirectorySnapshots(copy, BrokerConfig.of({"log.retention.ms": -1}), clock)
    looking.step()
    os.rename(copy, f"{copy}-away")
    looking.step()
    overview = looking.newest.overview
    assert not overview.is_online
    assert overview.notes[0].startswith(f"{copy} cannot be read")
    assert [topic.name for topic in overview.topics] == ["orders"]
    os.rename(f"{copy}-away", copy)
    looking.step()
    assert looking.newest.overview.is_online
    assert looking.newest.overview.notes == ()


def test_configs_are_read_again_when_they_change(store: Store, clock: Clock) -> None:
    looking = snapshots(store, clock)
    assert looking.newest.overview.topics[0].policy == "delete"
    opened = looking.catalogue._store
    looking.step()
    assert looking.catalogue._store is opened
    store.alter_topic_config("orders", {"cleanup.policy": "compact"})
    looking.step()
    assert looking.newest.overview.topics[0].policy == "compact"
    assert looking.catalogue.shown_configs("orders")["cleanup.policy"] == "compact"


def test_metadata_that_cannot_be_read_leaves_the_folders(store: Store, clock: Clock, tmp_path: Path) -> None:
    append(store)
    copy = copied(store, tmp_path)
    (log,) = (copy / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(b"\xff" * 500)
    (copy / "meta.properties").write_bytes(b"\0\xff\xfe")
    (copy / "cleaner-offset-checkpoint").write_bytes(b"\xff\xff")
    looking = DirectorySnapshots(str(copy), BrokerConfig(), clock)
    looking.step()
    assert [(topic.name, topic.records) for topic in looking.newest.overview.topics] == [("orders", 10)]


def test_a_history_stays_bounded_and_keeps_its_first_sample() -> None:
    history: History[int] = History()
    for number in range(10 * MOST_SAMPLES):
        history.add(number)
    kept = history.all()
    assert len(kept) <= MOST_SAMPLES
    assert kept[0] == 0
    assert kept[-MOST_SAMPLES // 2 :] == tuple(range(10 * MOST_SAMPLES - MOST_SAMPLES // 2, 10 * MOST_SAMPLES))
    assert list(kept) == sorted(set(kept))


def test_a_history_of_sizes_shows_steps_as_steps() -> None:
    history = SizeHistory()
    for at_ms, size in ((1, 10), (2, 10), (3, 10), (4, 20), (5, 20)):
        history.add(at_ms, size, 0, size)
    assert [(sample.at_ms, sample.size_bytes) for sample in history.all()] == [(1, 10), (3, 10), (4, 20), (5, 20)]


def test_a_history_of_sizes_stays_bounded() -> None:
    history = SizeHistory()
    for at_ms in range(10_000):
        history.add(at_ms, at_ms, 0, at_ms)
    samples = history.all()
    assert len(samples) < 300
    assert samples[0].at_ms == 0
    assert samples[-1].end_offset == 9_999
    assert [sample.at_ms for sample in samples] == sorted({sample.at_ms for sample in samples})
