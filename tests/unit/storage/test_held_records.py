"""The built-in default retention deletes nothing that was due when the directory was opened."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from duralog import PartitionLog, Record, StorageError
from duralog.storage.store import Store
from tests.support.storage.store_directory import NOW_MS, Clock, Directory, records, values

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
FIRST_CHECK_MS = 30_000


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data", Clock())
    yield directory
    for store in directory.opened:
        store.close()


def fill(log: PartitionLog, segments: int, *, age_ms: int, first: int = 0) -> None:
    """Segments of two records each; the last one stays active."""
    for number in range(first, first + segments):
        if number:
            log.roll()
        log.append([Record(key=b"k", value=b"%d" % number, timestamp_ms=NOW_MS - age_ms)] * 2)


def bases(store: Store, topic: str = "orders") -> list[int]:
    return [segment.base_offset for segment in store.partition(topic, 0).segments]


def old_directory(directory: Directory, *, config: dict[str, object] | None = None, segments: int = 3) -> None:
    """A directory with a topic of records from thirty days ago, closed."""
    with directory.open() as store:
        store.create_topic("orders", 1, config)
        fill(store.partition("orders", 0), segments, age_ms=30 * DAY_MS)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_opening_a_backup_deletes_nothing(directory: Directory) -> None:
    old_directory(directory)
    store = directory.open()
    for _ in range(20):
        directory.pass_time(DAY_MS)
    assert bases(store) == [0, 2, 4]
    assert values(store, "orders") == ["0", "0", "1", "1", "2", "2"]
    assert store.background_errors == ()


def test_a_warning_names_what_is_held_and_the_ways_on(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    old_directory(directory)
    size_bytes = sum(path.stat().st_size for path in directory.path.glob("orders-0/*.log"))
    caplog.clear()
    directory.open()
    directory.pass_time(1)
    (warning,) = warnings(caplog)
    assert f"orders (6 records, {size_bytes:,} bytes)" in warning
    for way in ("duralog retain", "retention.ms", "--apply-retention"):
        assert way in warning
    for _ in range(3):
        directory.pass_time(DAY_MS)
    assert warnings(caplog) == [warning]


def test_of_many_topics_the_warning_names_the_largest(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    with directory.open() as store:
        for number in range(1, 15):
            store.create_topic(f"topic-{number}", 1)
            fill(store.partition(f"topic-{number}", 0), number, age_ms=30 * DAY_MS)
    caplog.clear()
    directory.open()
    directory.pass_time(1)
    (warning,) = warnings(caplog)
    assert "14 topics" in warning
    assert "topic-14 (28 records" in warning
    assert "topic-1 (" not in warning
    assert "and 4 more" in warning


def test_nothing_is_said_where_nothing_is_held(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 3, age_ms=DAY_MS)
    store = directory.open()
    directory.pass_time(DAY_MS)
    assert warnings(caplog) == []
    assert store.held == ()


def test_a_store_lists_held_records(directory: Directory) -> None:
    old_directory(directory)
    store = directory.open()
    size_bytes = store.partition("orders", 0).size_bytes
    (held,) = store.held
    assert (held.topic, held.records, held.size_bytes) == ("orders", 6, size_bytes)
    store.alter_topic_config("orders", {"retention.ms": 7 * DAY_MS})
    directory.pass_time(FIRST_CHECK_MS)
    assert store.held == ()
    store.close()
    with pytest.raises(StorageError, match="closed"):
        _ = store.held


@pytest.mark.parametrize(
    "given",
    [
        {"log.retention.hours": 168},
        {"log.retention.minutes": 168 * 60},
        {"log.retention.ms": 7 * DAY_MS},
    ],
    ids=lambda given: next(iter(given)),
)
def test_a_retention_that_the_store_was_opened_with_applies(directory: Directory, given: dict[str, object]) -> None:
    old_directory(directory)
    store = directory.open(given)
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [6]
    assert store.held == ()


def test_a_retention_of_the_topic_applies(directory: Directory) -> None:
    old_directory(directory, config={"retention.ms": 7 * DAY_MS})
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [6]


def test_a_retention_by_size_applies_and_the_default_time_does_not(directory: Directory) -> None:
    old_directory(directory)
    with directory.open(read_only=True) as store:
        last = store.partition("orders", 0).segments[-1].size_bytes
    with directory.open() as store:
        store.alter_topic_config("orders", {"retention.bytes": last})
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [4]


def test_a_dynamic_retention_applies(directory: Directory) -> None:
    old_directory(directory)
    with directory.open() as store:
        store.alter_configs_of(4, "", {"log.retention.ms": str(7 * DAY_MS)})
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [6]


def test_a_retention_that_is_chosen_while_the_store_is_open_applies_and_taken_back_it_does_not(
    directory: Directory,
) -> None:
    old_directory(directory)
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    store.alter_topic_config("orders", {"retention.ms": 60 * DAY_MS})
    directory.pass_time(DAY_MS)
    store.alter_topic_config("orders", {"retention.ms": None})
    directory.pass_time(DAY_MS)
    assert bases(store) == [0, 2, 4]
    store.alter_topic_config("orders", {"retention.ms": 7 * DAY_MS})
    directory.pass_time(DAY_MS)
    assert bases(store) == [6]


def test_a_topic_that_loses_its_own_retention_is_held(directory: Directory) -> None:
    old_directory(directory, config={"retention.ms": -1})
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    store.alter_topic_config("orders", {"retention.ms": None})
    directory.pass_time(DAY_MS)
    assert bases(store) == [0, 2, 4]
    assert [held.records for held in store.held] == [6]


def test_what_becomes_due_while_the_store_is_open_goes(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 3, age_ms=7 * DAY_MS - HOUR_MS)
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [0, 2, 4]
    directory.pass_time(2 * HOUR_MS)
    assert bases(store) == [6]


def test_what_became_due_while_the_store_was_closed_is_held(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 3, age_ms=7 * DAY_MS - HOUR_MS)
    directory.clock.now_ms += 2 * HOUR_MS
    store = directory.open()
    directory.pass_time(DAY_MS)
    assert bases(store) == [0, 2, 4]


def test_held_records_keep_what_follows_them(directory: Directory) -> None:
    """A log has no holes: what becomes due later stays, too, and counts as held then."""
    with directory.open() as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 2, age_ms=30 * DAY_MS)
        fill(store.partition("orders", 0), 2, age_ms=DAY_MS, first=2)
    store = directory.open()
    assert [held.records for held in store.held] == [4]
    directory.pass_time(FIRST_CHECK_MS)
    directory.pass_time(7 * DAY_MS)
    assert bases(store) == [0, 2, 4, 6]
    assert [held.records for held in store.held] == [8]


def test_fresh_records_before_held_ones_go_in_their_time(directory: Directory) -> None:
    """As after an import: the old records follow the new ones."""
    with directory.open() as store:
        store.create_topic("orders", 1)
        fill(store.partition("orders", 0), 2, age_ms=DAY_MS)
        fill(store.partition("orders", 0), 2, age_ms=30 * DAY_MS, first=2)
    store = directory.open()
    assert not store.held, "the fresh segments before them keep them, whatever the retention is"
    directory.pass_time(FIRST_CHECK_MS)
    directory.pass_time(7 * DAY_MS)
    assert bases(store) == [4, 6]
    assert [held.records for held in store.held] == [4]


def test_an_active_segment_with_held_records_stays_when_more_is_appended_to_it(directory: Directory) -> None:
    old_directory(directory, config={"segment.ms": 1000 * DAY_MS}, segments=1)
    store = directory.open()
    log = store.partition("orders", 0)
    log.append([Record(value=b"new", timestamp_ms=NOW_MS)])
    directory.pass_time(FIRST_CHECK_MS)
    directory.pass_time(8 * DAY_MS)
    assert bases(store) == [0]
    assert values(store, "orders") == ["0", "0", "new"]


def test_records_that_are_appended_after_a_held_segment_was_rolled_age(directory: Directory) -> None:
    old_directory(directory)
    with directory.open() as store:
        store.partition("orders", 0).delete_records(-1)
    store = directory.open()
    store.partition("orders", 0).append([Record(value=b"new", timestamp_ms=NOW_MS)])
    directory.pass_time(FIRST_CHECK_MS)
    assert values(store, "orders") == ["new"]
    assert bases(store) == [6]
    directory.pass_time(8 * DAY_MS)
    assert bases(store) == [7]


def test_what_lies_below_the_log_start_goes(directory: Directory) -> None:
    old_directory(directory)
    store = directory.open()
    store.partition("orders", 0).delete_records(3)
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [2, 4]
    (held,) = store.held
    assert held.records == 3


def test_a_topic_that_compacts_and_deletes_is_held(directory: Directory) -> None:
    old_directory(directory, config={"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.0})
    store = directory.open({"log.cleaner.enable": False})
    store.partition("orders", 0).roll()
    store.compact("orders", 0)
    store.partition("orders", 0).append([Record(key=b"k", value=b"new", timestamp_ms=NOW_MS)])
    directory.pass_time(FIRST_CHECK_MS)
    directory.pass_time(8 * DAY_MS)
    assert values(store, "orders") == ["2", "new"]


def test_a_topic_that_only_compacts_holds_nothing(directory: Directory) -> None:
    old_directory(directory, config={"cleanup.policy": "compact"})
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    assert store.held == ()


def test_a_topic_that_is_made_again_inherits_nothing(directory: Directory) -> None:
    old_directory(directory)
    store = directory.open()
    store.delete_topic("orders")
    store.create_topic("orders", 1)
    fill(store.partition("orders", 0), 3, age_ms=30 * DAY_MS)
    directory.pass_time(FIRST_CHECK_MS)
    assert bases(store) == [6]


def test_who_asks_for_retention_gets_it(directory: Directory) -> None:
    old_directory(directory)
    store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    planned = store.plan_retention()
    assert [removal.base_offset for removal in planned.removals] == [0, 2, 4]
    assert store.apply_retention() == planned
    assert bases(store) == [6]
    assert store.held == ()


def test_a_log_that_cannot_be_measured_is_held(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening continues, and when the disk answers again nothing is missing."""
    old_directory(directory)

    def fail(_segment: object) -> int:
        raise OSError("the disk is bad")

    from duralog.storage.segment.readable_segment import ReadableSegment

    with monkeypatch.context() as broken:
        broken.setattr(ReadableSegment, "largest_timestamp_ms", property(fail))
        store = directory.open()
    directory.pass_time(FIRST_CHECK_MS)
    directory.pass_time(DAY_MS)
    assert bases(store) == [0, 2, 4]


# Appending records that have expired already


def test_appending_records_older_than_the_retention_warns_once_for_a_topic(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    store = directory.open()
    store.create_topic("imported", 2)
    store.create_topic("orders", 1)
    store.partition("orders", 0).append(records("new"))
    assert warnings(caplog) == []
    for number in (0, 1, 0):
        store.partition("imported", number).append([Record(value=b"old", timestamp_ms=NOW_MS - 8 * DAY_MS)])
    (warning,) = warnings(caplog)
    assert "imported-0" in warning
    assert "retention.ms=-1" in warning
    assert "holds them from its next opening on" in warning
    directory.pass_time(FIRST_CHECK_MS)
    assert values(store, "imported") == []


def test_records_that_were_appended_late_are_held_after_a_restart(directory: Directory) -> None:
    with directory.open() as store:
        store.create_topic("imported", 1)
        fill(store.partition("imported", 0), 2, age_ms=8 * DAY_MS)
    store = directory.open()
    directory.pass_time(DAY_MS)
    assert bases(store, "imported") == [0, 2]


@pytest.mark.parametrize(
    "config",
    [{"retention.ms": -1}, {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}],
    ids=lambda config: next(iter(config)),
)
def test_appending_old_records_that_stay_is_no_warning(
    directory: Directory, caplog: pytest.LogCaptureFixture, config: dict[str, object]
) -> None:
    store = directory.open()
    store.create_topic("imported", 1, config)
    store.partition("imported", 0).append([Record(key=b"k", value=b"old", timestamp_ms=NOW_MS - 8 * DAY_MS)])
    assert warnings(caplog) == []


def test_a_chosen_retention_warns_of_old_records_as_well(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    store = directory.open()
    store.create_topic("imported", 1, {"retention.ms": HOUR_MS})
    directory.clock.now_ms += DAY_MS
    store.partition("imported", 0).append([Record(value=b"old", timestamp_ms=NOW_MS)])
    (warning,) = warnings(caplog)
    assert "retention will delete them" in warning
    assert "holds" not in warning
