"""Tables of a log that became another one between two runs: cut and written anew, made again, compacted, upgraded."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duralog
from duralog.errors import DuralogError, OffsetOutOfRange
from duralog.spark.jobs.export import export
from duralog.spark.jobs.snapshot import snapshot
from duralog.spark.lake.table_state import StateRefused
from duralog.storage.repair.format_upgrade import upgrade_log
from tests.support.places import GOLDEN
from tests.support.spark.lake_directory import FORMATS, START_MS, rows_of, run_here

EXPORT = "events-0 was exported up to offset 20, but the log has other records there now: "


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compacted topic: 20 records in batches of five, in two segments."""
    run_here(
        monkeypatch,
        importlib.import_module("duralog.spark.jobs.export"),
        importlib.import_module("duralog.spark.jobs.snapshot"),
    )
    path = tmp_path / "data"
    with opened(path) as store:
        store.create_topic("events", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        for first in range(0, 20, 5):
            append(store.partition("events", 0), first, first + 5)
            if first == 10:
                store.partition("events", 0).roll()
    return path


def opened(path: Path) -> duralog.Store:
    return duralog.open(str(path), config={"log.cleaner.enable": "false"})


def append(log: duralog.PartitionLog, first: int, end: int, mark: str = "first", keys: int = 100) -> None:
    log.append(
        [
            duralog.Record(key=b"k%d" % (place % keys), value=f"{mark}-{place}".encode(), timestamp_ms=START_MS)
            for place in range(first, end)
        ]
    )


def exported(data: Path, **options: Any) -> int:
    return export(None, str(data), str(data.parent / "lake"), **options).records  # type: ignore[arg-type]


def change(data: Path, work: Callable[[duralog.PartitionLog], None]) -> None:
    with opened(data) as store:
        work(store.partition("events", 0))


def write_anew(data: Path, cut_at: int, first: int, end: int, mark: str = "first") -> None:
    with opened(data) as store:
        log = store.partition("events", 0)
        log.truncate_to(cut_at)
        append(log, first, end, mark)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_log_that_was_cut_and_has_grown_again(data: Path, table_format: str) -> None:
    exported(data, format=table_format)
    before = rows_of(table_format, data.parent / "lake" / "events")

    def cut(log: duralog.PartitionLog) -> None:
        log.truncate_to(15)
        for first in range(15, 30, 5):
            append(log, first, first + 5, "second")

    change(data, cut)
    for _ in range(2):
        with pytest.raises(
            StateRefused, match=EXPORT + r"the batch with offset 19 .* checksum 0x\w{8} in the state of .*, and is that"
            r" of offsets 15 to 19 with 0x\w{8} in the log\. It was cut and written again.* Give another target"
        ):  # fmt: skip
            exported(data, format=table_format)
    assert rows_of(table_format, data.parent / "lake" / "events") == before


@pytest.mark.parametrize(("cut_at", "first", "end"), [(0, 0, 25), (17, 15, 40), (19, 15, 21), (5, 5, 20)])
def test_other_batches_there(data: Path, cut_at: int, first: int, end: int) -> None:
    """Wherever it was cut: a cut goes to the start of a batch."""
    exported(data)
    write_anew(data, cut_at, first, end)
    with pytest.raises(StateRefused, match=EXPORT):
        exported(data)


def test_a_log_that_was_cut_and_is_shorter(data: Path) -> None:
    exported(data)
    change(data, lambda log: log.truncate_to(15))
    with pytest.raises(OffsetOutOfRange, match="exported up to offset 20, but the log ends at 15: it was cut, or made"):
        exported(data)


def test_what_was_not_exported_may_be_cut(data: Path) -> None:
    exported(data)
    change(data, lambda log: append(log, 20, 25))
    write_anew(data, 20, 20, 30, "second")
    assert exported(data) == 10


@pytest.mark.parametrize("keys", [3, 100])
def test_a_log_that_was_compacted_is_the_same(data: Path, keys: int) -> None:
    """The last batch that was exported loses some of its records, or all."""
    change(data, lambda log: append(log, 20, 25))
    exported(data)

    def supersede(log: duralog.PartitionLog) -> None:
        append(log, 20, 20 + min(keys, 5) - (keys > 5), "second")
        log.roll()

    change(data, supersede)
    with opened(data) as store:
        store.compact("events", 0)
        log = store.partition("events", 0)
        assert sum(20 <= record.offset < 25 for record in log.read(0)) == (2 if keys == 3 else 1)
    assert exported(data) > 0
    assert exported(data) == 0


def test_a_leader_that_took_over_below(data: Path) -> None:
    """The log was compacted since, so that its batches prove nothing. The epochs do."""

    def take_over(log: duralog.PartitionLog) -> None:
        log.truncate_to(15)
        log.become_leader(log.leader_epoch + 2)
        append(log, 15, 25, "second")
        append(log, 15, 25, "third")
        log.roll()

    exported(data)
    change(data, take_over)
    with opened(data) as store:
        store.compact("events", 0)
        assert {record.offset for record in store.partition("events", 0).read(15)} == set(range(25, 35))
    with pytest.raises(StateRefused, match=EXPORT + "leader epoch 0 wrote offset 19, and ends at 15 now"):
        exported(data)


def test_a_topic_that_was_made_again_without_an_id(data: Path) -> None:
    """A copy of the logs alone: the id of the topic is unknown."""

    def copied(name: str) -> Path:
        folder = data.parent / name / "events-0"
        shutil.copytree(data / "events-0", folder, ignore=lambda _, names: [n for n in names if n[-4:] != ".log"])
        return folder.parent

    assert exported(copied("first")) == 20
    write_anew(data, 0, 0, 40, "second")
    with pytest.raises(StateRefused, match=EXPORT):
        exported(copied("second"))


def test_a_log_that_was_upgraded_is_the_same(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "legacy"
    shutil.copytree(GOLDEN / "legacy", path, ignore=shutil.ignore_patterns("*.gz"))
    assert exported(path) > 0
    with duralog.open(str(path), config={"log.retention.ms": -1, "log.cleaner.enable": "false"}) as store:
        for topic in store.topics():
            upgrade_log(store.partition(topic, 0))
            append(store.partition(topic, 0), 0, 1)
    assert exported(path) == len(list(path.glob("v*-0")))


def test_a_state_without_and_with_a_wrong_end(data: Path) -> None:
    exported(data)
    path = data.parent / "lake" / "events" / "_duralog_export.json"
    state = json.loads(path.read_text())
    for wrong in (17, {"epoch": 0}, {"epoch": "0", "batch": None}, {"epoch": 0, "batch": {"crc": 1}}):
        path.write_text(json.dumps({**state, "details": {"log_ends": {"0": wrong}}}))
        with pytest.raises(StateRefused, match=r"the state is damaged: .* is not an end of a log"):
            exported(data)
    path.write_text(json.dumps({**state, "details": {}}))
    change(data, lambda log: append(log, 20, 21))
    assert exported(data) == 1
    assert json.loads(path.read_text())["details"]["log_ends"]["0"]["batch"]["last_offset"] == 20


def test_a_snapshot_of_another_log_is_taken_in_full(data: Path) -> None:
    def taken(**options: Any) -> Any:
        return snapshot(None, str(data), str(data.parent / "lake"), **options).tables[0]  # type: ignore[arg-type]

    taken()
    write_anew(data, 15, 15, 25, "second")
    with pytest.raises(StateRefused, match=r"events-0 is in the last snapshot up to offset 20, .*Take a full one"):
        taken()
    found = taken(full=True)
    assert found.why_full == "a full one was asked for"
    values = {row["value"] for row in rows_of("parquet", found.path)}
    assert values == {b"first-%d" % place for place in range(15)} | {b"second-%d" % place for place in range(15, 25)}
    change(data, lambda log: log.truncate_to(10))
    with pytest.raises(DuralogError, match=r"but the log ends at 10: it was cut, or made again\. Take a full one"):
        taken()
    assert taken(full=True).live_keys == 10
    assert taken().records_read == 0
