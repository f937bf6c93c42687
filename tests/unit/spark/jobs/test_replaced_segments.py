"""A reader of a live directory whose segments are compacted or deleted after it has loaded the log.

It reads what it had loaded, or is told to open the directory again: it never gets a part of it without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.format.topic_partition import TopicPartition
from duralog.spark.jobs.chosen_partitions import read_live

COMPACTED = {"cleanup.policy": "compact", "file.delete.delay.ms": 0}
OPEN_AGAIN = "t-0/0{20}.log: .* open the directory again"
ReadAll = Callable[[duralog.PartitionLog], object]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[duralog.Store]:
    """Of a log whose first segment becomes smaller when it is compacted, and whose second one stays as it is."""
    with duralog.open(tmp_path, {"log.cleaner.enable": False}) as store:
        store.create_topic("t", 1, COMPACTED)
        log = store.partition("t", 0)
        for number in range(40):
            log.append([Record(key=b"%d" % (number % 5), value=b"v")])
        log.roll()
        log.append([Record(key=b"last", value=b"v")])
        yield store


@pytest.fixture
def reader(owner: duralog.Store) -> Iterator[duralog.Store]:
    with duralog.open(owner.path, read_only=True) as store:
        yield store


def offsets(log: duralog.PartitionLog) -> list[int]:
    return [record.offset for record in log.read(log.start_offset)]


@pytest.mark.parametrize(
    "read_all",
    [offsets, lambda log: log.read_arrow(), lambda log: log.offset_for_timestamp(0), lambda log: log.read_slice(0)],
    ids=["records", "table", "time", "slice"],
)
def test_a_segment_that_was_compacted_is_not_read_as_the_one_that_was_loaded(
    owner: duralog.Store, reader: duralog.Store, read_all: ReadAll
) -> None:
    log = reader.partition("t", 0)
    owner.compact("t", 0)
    with pytest.raises(duralog.StorageError, match=OPEN_AGAIN):
        read_all(log)
    with duralog.open(owner.path, read_only=True) as again:
        assert offsets(again.partition("t", 0)) == [35, 36, 37, 38, 39, 40]


def test_a_job_looks_again(owner: duralog.Store, reader: duralog.Store) -> None:
    reader.partition("t", 0)
    owner.compact("t", 0)
    assert read_live(reader, TopicPartition("t", 0), offsets) == [35, 36, 37, 38, 39, 40]
    (Path(owner.path) / "t-0" / f"{0:020}.log").unlink()
    (Path(owner.path) / "t-0" / f"{0:020}.log").mkdir()
    with pytest.raises(duralog.StorageError, match="neither a regular file nor a link to one"):
        read_live(reader, TopicPartition("t", 0), offsets)


def test_a_missing_segment_is_reported(owner: duralog.Store, reader: duralog.Store) -> None:
    log = reader.partition("t", 0)
    owner.partition("t", 0).delete_records(before_offset=40)
    owner.apply_retention()
    with pytest.raises(duralog.StorageError, match=OPEN_AGAIN):
        offsets(log)
    assert [record.offset for record in log.read(40)] == [40]


def test_who_has_begun_to_read_a_segment_reads_it_to_its_end(owner: duralog.Store, reader: duralog.Store) -> None:
    log = reader.partition("t", 0)
    reading = log.read(0)
    assert next(reading).offset == 0
    owner.compact("t", 0)
    assert [record.offset for record in reading] == list(range(1, 41))


def test_a_log_that_grows_and_rolls_is_the_one_that_was_loaded(owner: duralog.Store, reader: duralog.Store) -> None:
    log = reader.partition("t", 0)
    log.view.segments.active.let_go()
    grown = owner.partition("t", 0)
    grown.append([Record(key=b"more", value=b"v")])
    grown.roll()
    assert offsets(log) == list(range(41))
