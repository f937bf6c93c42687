"""Partitions followed while they are written to: what a refresh shows, what it costs, and that nothing ends it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duralog
from duralog.format.layout import OFFSET_INDEX_ENTRY
from duralog.format.topic_partition import TopicPartition
from duralog.storage import read_only_partitions
from duralog.storage.log import read_only_tail
from duralog.storage.log.read_only_tail import LogTail, empty_tail, entries_in, tail_by_indexes, walk_tail
from duralog.storage.read_only_partitions import ReadOnlyPartitions
from duralog.storage.store import Store

ORDERS = TopicPartition("orders", 0)
KEEP = {"log.retention.ms": -1, "log.cleaner.enable": False}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with duralog.open(tmp_path / "data", KEEP) as opened:
        opened.create_topic("orders", 1)
        yield opened


def append(store: Store, count: int = 10, topic: str = "orders") -> None:
    records = [duralog.Record(key=b"k", value=bytes(100), timestamp_ms=1_000 + place) for place in range(count)]
    store.partition(topic, 0).append(records)


def watch(directory: Store | Path) -> ReadOnlyPartitions:
    """Its clock is so late that nothing counts as having changed just now."""
    return ReadOnlyPartitions(str(directory.path if isinstance(directory, Store) else directory), lambda: 2**62)


def copied(store: Store, tmp_path: Path) -> Path:
    """To be damaged: files of a store that is open are mapped."""
    return Path(shutil.copytree(store.path, tmp_path / "copy"))


def test_an_empty_directory_has_no_partitions(tmp_path: Path) -> None:
    assert ReadOnlyPartitions(str(tmp_path)).refresh() == {}


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReadOnlyPartitions(str(tmp_path / "nothing")).refresh()


def test_a_refresh_shows_what_the_log_has(store: Store) -> None:
    append(store, 25)
    store.partition("orders", 0).roll()
    append(store, 5)
    log, view = store.partition("orders", 0), watch(store).refresh()[ORDERS]
    assert (view.first_offset, view.end_offset, view.size_bytes) == (0, log.end_offset, log.size_bytes)
    assert [(segment.base_offset, segment.size_bytes) for segment in view.segments] == [
        (segment.base_offset, segment.size_bytes) for segment in log.segments
    ]
    assert view.latest_timestamp_ms == 1_004
    assert view.error is None


def test_nothing_is_opened_where_nothing_happened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    first = watched.refresh()
    walked: list[str] = []

    def walk(path: str, known: LogTail) -> LogTail:
        walked.append(path)
        return walk_tail(path, known)

    monkeypatch.setattr(read_only_partitions, "walk_tail", walk)
    for _ in range(10):
        assert watched.refresh()[ORDERS] is first[ORDERS]
    assert len(walked) <= 1  # Once in a while all the same.


def test_every_partition_is_listed_again_once_in_a_while(store: Store, tmp_path: Path) -> None:
    append(store)
    store.partition("orders", 0).roll()
    append(store)
    directory = copied(store, tmp_path)
    watched = watch(directory)
    watched.refresh()
    closed = directory / "orders-0" / f"{0:020}.log"
    size = closed.stat().st_size
    os.truncate(closed, size - 1)  # That does not change the time of the folder.
    seen = [
        watched.refresh()[ORDERS].segments[0].size_bytes for _ in range(read_only_partitions._RELISTED_AFTER_REFRESHES)
    ]
    assert seen[-1] == size - 1


def test_growth_is_followed_from_where_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    watched.refresh()
    walked: list[int] = []

    def walk(path: str, known: LogTail) -> LogTail:
        walked.append(known.position)
        return walk_tail(path, known)

    monkeypatch.setattr(read_only_partitions, "walk_tail", walk)
    size = store.partition("orders", 0).size_bytes
    append(store)
    assert watched.refresh()[ORDERS].end_offset == 20
    assert walked == [size]


def test_a_log_that_has_grown_much_is_not_walked_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(store)
    watched.refresh()
    for _ in range(400):
        append(store)
    walked: list[int] = []

    def walk(path: str, known: LogTail) -> LogTail:
        walked.append(known.position)
        return walk_tail(path, known)

    monkeypatch.setattr(read_only_partitions, "walk_tail", walk)
    assert watched.refresh()[ORDERS].end_offset == 4_000
    assert walked[0] > store.partition("orders", 0).size_bytes - 20_000


def test_a_log_without_an_index_is_walked_in_several_refreshes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        append(store, 1)
    directory = copied(store, tmp_path)
    (directory / "orders-0" / f"{0:020}.index").unlink()
    monkeypatch.setattr(read_only_tail, "_MOST_HEADERS", 10)
    watched = watch(directory)
    first = watched.refresh()[ORDERS]
    assert first.end_offset == 10
    assert "the end of the log is not known yet" in str(first.error)
    ends = [watched.refresh()[ORDERS].end_offset for _ in range(3)]
    assert ends == [20, 30, 30]
    assert watched.refresh()[ORDERS].error is None


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


def test_space_that_was_allocated_ahead_is_not_damage(store: Store, tmp_path: Path) -> None:
    append(store)
    directory = copied(store, tmp_path)
    with (directory / "orders-0" / f"{0:020}.log").open("ab") as log:
        log.write(bytes(5_000))
    view = watch(directory).refresh()[ORDERS]
    assert (view.end_offset, view.error) == (10, None)


def test_garbage_at_the_end_is_an_error_and_the_rest_is_shown(store: Store, tmp_path: Path) -> None:
    append(store)
    directory = copied(store, tmp_path)
    with (directory / "orders-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"\xff" * 500)
    view = watch(directory).refresh()[ORDERS]
    assert view.end_offset == 10
    assert view.error is not None
    assert f"{0:020}.log" in str(view.error)


def test_a_log_that_lost_its_end_is_followed_back(store: Store, tmp_path: Path) -> None:
    append(store)
    size = store.partition("orders", 0).size_bytes
    append(store)
    directory = copied(store, tmp_path)
    watched = watch(directory)
    assert watched.refresh()[ORDERS].end_offset == 20
    os.truncate(directory / "orders-0" / f"{0:020}.log", size)
    assert watched.refresh()[ORDERS].end_offset == 10


def test_topics_come_and_go(store: Store) -> None:
    watched = watch(store)
    watched.refresh()
    store.create_topic("later", 2)
    assert {str(place) for place in watched.refresh()} == {"later-0", "later-1", "orders-0"}
    store.delete_topic("later")
    assert {str(place) for place in watched.refresh()} == {"orders-0"}


def test_names_that_are_not_partitions_are_skipped(store: Store) -> None:
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
    Path(store.path, "loop-0").symlink_to("loop-0")
    assert {str(place) for place in watch(store).refresh()} == {"orders-0"}


def test_a_folder_without_a_log_has_an_error(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (view,) = ReadOnlyPartitions(str(tmp_path)).refresh().values()
    assert view.segments == ()
    assert "there is no log file in it" in str(view.error)


def test_an_error_that_lasts_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    watched = ReadOnlyPartitions(str(tmp_path))
    assert watched.refresh()[ORDERS] is watched.refresh()[ORDERS]


def test_a_folder_may_have_no_log_for_one_refresh(store: Store, tmp_path: Path) -> None:
    append(store)
    directory = copied(store, tmp_path)
    watched = watch(directory)
    log = directory / "orders-0" / f"{0:020}.log"
    before = [watched.refresh() for _ in range(3)][-1][ORDERS]
    log.rename(tmp_path / "away")
    assert watched.refresh()[ORDERS] is before
    assert "there is no log file in it" in str(watched.refresh()[ORDERS].error)
    (tmp_path / "away").rename(log)
    view = watched.refresh()[ORDERS]
    assert (view.end_offset, view.error) == (10, None)


def test_a_log_that_was_cut_to_nothing_has_no_damage(store: Store, tmp_path: Path) -> None:
    directory = copied(store, tmp_path)
    log = directory / "orders-0" / f"{0:020}.log"
    log.write_bytes(b"\xff" * 500)
    watched = watch(directory)
    assert watched.refresh()[ORDERS].error is not None
    os.truncate(log, 0)
    assert watched.refresh()[ORDERS].error is None


def test_another_log_with_the_inode_of_an_older_one_is_read_from_its_start(store: Store, tmp_path: Path) -> None:
    append(store, 5)
    append(store, 5)
    directory = copied(store, tmp_path)
    folder = directory / "orders-0"
    watched = watch(directory)
    assert watched.refresh()[ORDERS].end_offset == 10
    store.create_topic("other", 1)
    append(store, 4, topic="other")
    append(store, 4, topic="other")
    append(store, 4, topic="other")
    log = folder / f"{0:020}.log"
    log.write_bytes(Path(store.path, "other-0", log.name).read_bytes())  # In place: it has the same inode.
    os.utime(folder)
    view = watched.refresh()[ORDERS]
    assert (view.end_offset, view.error) == (12, None)


def test_a_pipe_or_a_folder_in_place_of_a_log_does_not_block(tmp_path: Path) -> None:
    for name in ("pipe-0", "folder-0"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe-0" / f"{0:020}.log")
    (tmp_path / "folder-0" / f"{0:020}.log").mkdir()
    (tmp_path / "folder-0" / f"{0:020}.log" / "x").touch()
    views = ReadOnlyPartitions(str(tmp_path)).refresh()
    assert [str(place) for place, view in views.items() if view.error is None and place.topic == "folder"] == []


def test_what_vanishes_during_a_refresh_is_seen_at_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    before = watched.refresh()[ORDERS]
    append(store)

    def gone(_path: str, _known: LogTail) -> LogTail:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr(read_only_partitions, "walk_tail", gone)
        assert watched.refresh()[ORDERS] is before
    assert watched.refresh()[ORDERS].end_offset == 20


def test_a_read_error_is_reported_and_goes_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append(store)
    watched = watch(store)
    watched.refresh()
    append(store)

    def failing(_path: str, _known: LogTail) -> LogTail:
        raise OSError(5, "Input/output error", "x.log")

    with monkeypatch.context() as patched:
        patched.setattr(read_only_partitions, "walk_tail", failing)
        view = watched.refresh()[ORDERS]
        assert (view.end_offset, str(view.error)) == (10, "[Errno 5] Input/output error: 'x.log'")
        assert watched.refresh()[ORDERS] is view
    view = watched.refresh()[ORDERS]
    assert (view.end_offset, view.error) == (20, None)
