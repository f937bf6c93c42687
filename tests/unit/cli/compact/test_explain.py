"""`duralog compact --explain`: it predicts what a compaction does, and explains why none runs. It changes nothing."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import duralog.storage.live_explanation
from duralog import PartitionLog, Record
from duralog.command_line import app
from duralog.errors import StorageError
from duralog.storage.compaction.preview import Explanation, explain_compaction
from duralog.storage.store import Store
from tests.support import commands
from tests.support.compaction.compacted_directory import (
    DAY_MS,
    LARGE,
    SMALL_SEGMENT,
    CompactedDirectory,
    damage,
    days_ago_ms,
    fill,
)
from tests.support.places import GOLDEN
from tests.support.storage.store_directory import tree

GOLDEN_COMPACTION = GOLDEN / "compaction"


@pytest.fixture
def directory(tmp_path: Path) -> CompactedDirectory:
    return CompactedDirectory(tmp_path / "data")


run = partial(commands.run, "compact")


def explain(*arguments: object, code: int = 0) -> dict[str, Any]:
    """The object of the only partition."""
    lines = run("--explain", "--json", *arguments, code=code).stdout.splitlines()
    assert json.loads(lines[-1])["kind"] == "summary"
    (found,) = [json.loads(line) for line in lines[:-1]]
    return dict(found)


def lines_of(*arguments: object, code: int = 0) -> list[str]:
    return run("--explain", *arguments, code=code).stdout.splitlines()


def orders(directory: CompactedDirectory, prepare: Callable[[Store, PartitionLog], None], **configs: object) -> Path:
    with directory.open() as store:
        prepare(store, directory.log(store, "orders", **configs))
    return directory.path


def dirty_again(store: Store, log: PartitionLog) -> None:
    """Compacted once, with tombstones that have a horizon since, and new records."""
    fill(log)
    log.append([Record(key=b"k1", value=None), Record(key=b"k2", value=None)])
    log.roll()
    store.compact("orders", 0)
    fill(log, keys=2)


def transactions(_store: Store, log: PartitionLog) -> None:
    for sequence, commit in enumerate((True, False, False)):
        log.append(
            [Record(key=b"k1", value=b"1")],
            producer_id=11,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        log.end_transaction(11, 0, commit=commit)
    fill(log)


def emptied_transactions(store: Store, log: PartitionLog) -> None:
    """The first compaction takes their records, the second one gives their markers a horizon."""
    transactions(store, log)
    store.compact("orders", 0)
    fill(log)
    store.compact("orders", 0)
    fill(log)


def with_damage(directory: CompactedDirectory) -> None:
    damage(directory.log_files("orders")[1], 80, b"\xff\xff")
    damage(directory.log_files("orders")[3], 8, b"\xff\xff\xff\xff")


# It tells what happens then


@pytest.mark.parametrize(
    ("prepare", "configs"),
    [
        pytest.param(lambda _, log: fill(log), {}, id="plain"),
        pytest.param(lambda _, log: fill(log, 5, value=LARGE), {"segment_bytes": SMALL_SEGMENT}, id="large"),
        pytest.param(dirty_again, {"delete_retention_ms": DAY_MS}, id="expired"),
        pytest.param(dirty_again, {"delete_retention_ms": 30 * DAY_MS}, id="tombstones"),
        pytest.param(transactions, {}, id="transactions"),
        pytest.param(emptied_transactions, {"delete_retention_ms": DAY_MS}, id="markers"),
        pytest.param(lambda _, log: fill(log, 6), {}, id="damaged"),
    ],
)
def test_the_explanation_matches_the_run(
    directory: CompactedDirectory,
    prepare: Callable[[Store, PartitionLog], None],
    configs: dict[str, object],
    request: pytest.FixtureRequest,
) -> None:
    path = orders(directory, prepare, **configs)
    is_damaged = "damaged" in request.node.callspec.id
    if is_damaged:
        with_damage(directory)
    before = tree(path)
    told = explain(path, "--records", 1000, code=int(is_damaged))
    assert tree(path) == before
    offsets_before = _offsets(path)
    done = json.loads(run("--json", path, code=int(is_damaged)).stdout.splitlines()[0])

    would = told["would"]
    same: tuple[str, ...] = (
        "records_before",
        "records_after",
        "bytes_before",
        "bytes_after",
        "freed_bytes",
        "segments_before",
    )
    same += ("segments_after", "superseded_records", "expired_tombstones", "keyless_records", "aborted_records")
    same += ("kept_tombstones", "end_offset")
    assert {name: would[name] for name in same} == {name: done[name] for name in same}
    assert would["records_after"] < would["records_before"]
    assert told["damaged_batches"] == done["corrupt_batches"]
    assert told["left_segments"] == done["left_segments"]
    assert sum(group["bytes_after"] for group in would["groups"]) == done["written_bytes"]
    reasons = {
        "superseded": would["superseded_records"],
        "expired tombstone": would["expired_tombstones"],
        "aborted transaction": would["aborted_records"],
        "spent marker": would["spent_markers"],
    }
    listed = [record["reason"] for record in told["records"]]
    assert {reason: listed.count(reason) for reason in reasons} == reasons
    assert len(listed) == would["records_before"] - would["records_after"]
    assert bool(would["spent_markers"]) == ("markers" in request.node.callspec.id)
    if not is_damaged:
        gone = {record["offset"] for record in told["records"]}
        assert [offset for offset in offsets_before if offset not in gone] == _offsets(path)


def _offsets(path: Path) -> list[int]:
    """Of all batches' records, also those of aborted transactions and markers, as the dump shows them."""
    files = sorted(map(str, (path / "orders-0").glob("*.log")))
    result = CliRunner().invoke(app, ["dump", "--records", "--json", *files])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [row["offset"] for row in rows if "offset" in row and "timestamp" in row]


COMPACTED = ("-c", "cleanup.policy=compact", "-c", "segment.bytes=1048576")


@pytest.fixture
def kafkas_horizon_ms(tmp_path: Path) -> int:
    """Puts into the directory what Kafka has compacted, and its checkpoint."""
    shutil.copytree(
        GOLDEN_COMPACTION / "after" / "c-txn-0", tmp_path / "c-txn-0", ignore=shutil.ignore_patterns("*.gz")
    )
    shutil.copy(GOLDEN_COMPACTION / "after" / "cleaner-offset-checkpoint", tmp_path)
    return int(explain(tmp_path / "c-txn-0", *COMPACTED)["delete_horizons"]["earliest"])


def test_a_log_that_kafka_has_compacted(tmp_path: Path, kafkas_horizon_ms: int) -> None:
    early = explain(tmp_path / "c-txn-0", *COMPACTED, "--now", kafkas_horizon_ms - 1)
    assert early["would"] is None
    assert early["first_dirty_offset"] == early["checkpoint"] == 6665
    assert early["delete_horizons"]["times"] == [{"time": kafkas_horizon_ms, "batches": 37}]
    assert early["delete_horizons"]["passed_batches"] == 0
    late = explain(tmp_path / "c-txn-0", *COMPACTED, "--now", kafkas_horizon_ms)
    assert late["delete_horizons"]["passed_batches"] == 37
    assert "the delete horizon of 37 batches has passed" in " ".join(late["advice"])


def test_the_outcome_in_kafka_is_recorded(tmp_path: Path, kafkas_horizon_ms: int) -> None:
    before = tmp_path / "before"
    shutil.copytree(GOLDEN_COMPACTION / "before" / "c-txn-0", before / "c-txn-0", ignore=shutil.ignore_patterns("*.gz"))
    told = explain(before / "c-txn-0", *COMPACTED, "--now", kafkas_horizon_ms - DAY_MS)
    assert {f"{group['base_offsets'][0]:020}.log": group["bytes_after"] for group in told["would"]["groups"]} == {
        path.name: path.stat().st_size for path in (GOLDEN_COMPACTION / "after" / "c-txn-0").glob("*.log")
    }
    assert told["would"]["delete_horizons"]["times"] == [{"time": kafkas_horizon_ms, "batches": 37}]
    assert told["would"]["aborted_records"] == 1700
    assert told["first_uncleanable_offset"] == told["would"]["end_offset"] == 6665


# Why nothing happens


def test_the_active_segment(directory: CompactedDirectory) -> None:
    path = orders(directory, lambda *_: None)
    with directory.open() as store:
        store.partition("orders", 0).append([Record(key=b"k", value=b"1")] * 3)
    told = explain(path)
    assert (told["is_due"], told["limit"], told["would"]) == (False, "active segment", None)
    assert told["reason"] == "nothing can be compacted from offset 0 on: the active segment starts at offset 0"
    assert "--roll" in told["advice"][0]
    assert "segment.ms (7 days)" in told["advice"][0]


def test_an_open_transaction(directory: CompactedDirectory) -> None:
    def prepare(_store: Store, log: PartitionLog) -> None:
        fill(log, 2)
        log.append(
            [Record(key=b"t", value=b"1")], producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True
        )
        fill(log, 2)

    path = orders(directory, prepare)
    told = explain(path)
    assert (told["limit"], told["first_uncleanable_offset"]) == ("open transaction", 20)
    assert told["limit_reason"] == "a transaction is open since offset 20"
    assert told["open_transactions"] == [
        {"producer_id": 9, "producer_epoch": 1, "first_offset": 20, "last_append_ms": directory.made_ms}
    ]
    assert told["would"]["records_before"] == 20
    assert "kafka-transactions.sh --abort" in told["advice"][0]
    text = "\n".join(lines_of(path))
    assert "producer 9, epoch 1: open since offset 20, last append at " in text
    assert "(3.0 days ago)" in text or "(3 days ago)" in text


def test_the_lag(directory: CompactedDirectory) -> None:
    def prepare(_store: Store, log: PartitionLog) -> None:
        log.append([Record(key=b"old", value=b"1", timestamp_ms=days_ago_ms(60))] * 5)
        log.roll()
        fill(log, 2)

    path = orders(directory, prepare, min_compaction_lag_ms=30 * DAY_MS)
    told = explain(path)
    assert (told["limit"], told["first_uncleanable_offset"]) == ("min.compaction.lag.ms", 5)
    assert told["cleanable_from"] == directory.made_ms + 30 * DAY_MS
    assert told["would"]["records_after"] == 1
    text = "\n".join(lines_of(path))
    assert "min.compaction.lag.ms is 30 days" in text
    assert "it can be compacted from " in text
    run(path)
    told = explain(path)
    assert told["would"] is None
    assert told["advice"] == ["a lower min.compaction.lag.ms lets it be compacted sooner"]
    assert explain(path, "--now", told["cleanable_from"] + 1)["would"]["records_before"] == 21


def test_too_little_is_new(directory: CompactedDirectory) -> None:
    def prepare(store: Store, log: PartitionLog) -> None:
        fill(log, 2, keys=10)
        store.compact("orders", 0)
        fill(log, 1, records=1)

    path = orders(directory, prepare)
    told = explain(path)
    assert not told["is_due"]
    assert 0 < told["dirty_ratio"] == told["cleanable_bytes"] / (told["clean_bytes"] + told["cleanable_bytes"]) < 0.5
    assert "compaction starts above min.cleanable.dirty.ratio (50.0%)" in told["reason"]
    assert "records wait without limit (max.compaction.lag.ms)" in told["advice"][0]
    assert explain(path, "-t", "orders", "-c", "min.cleanable.dirty.ratio=0.01")["is_due"]
    overdue = explain(path, "-t", "orders", "-c", f"max.compaction.lag.ms={DAY_MS}")
    assert overdue["is_due"]
    assert overdue["overdue_ms"] > DAY_MS
    assert "longer than max.compaction.lag.ms" in overdue["reason"]


def test_a_checkpoint_that_is_not_believed(directory: CompactedDirectory) -> None:
    path = orders(directory, lambda _, log: fill(log))
    (path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 4711\n")
    told = explain(path)
    assert (told["checkpoint"], told["first_dirty_offset"]) == (4711, 0)
    assert told["advice"][0].startswith("the checkpoint is ignored: it was compacted up to offset 4711")


# Tombstones, the map, keys, damage


def test_horizons(directory: CompactedDirectory) -> None:
    def prepare(store: Store, log: PartitionLog) -> None:
        dirty_again(store, log)
        log.append([Record(key=b"k9", value=None)])
        log.roll()

    path = orders(directory, prepare, delete_retention_ms=30 * DAY_MS)
    told = explain(path)
    horizon = directory.made_ms + 30 * DAY_MS
    assert told["delete_horizons"]["times"] == [{"time": horizon, "batches": 1}]
    assert told["delete_horizons"]["passed_batches"] == 0
    after = told["would"]["delete_horizons"]
    assert after["times"] == [{"time": horizon, "batches": 1}, {"time": told["now"] + 30 * DAY_MS, "batches": 1}]
    text = "\n".join(lines_of(path))
    assert "tombstones    1 batch has a delete horizon\n" in text
    assert "then          2 batches have a delete horizon\n" in text
    assert "1 batch may be removed from " in text
    late = explain(path, "--now", horizon)
    assert late["delete_horizons"]["passed_batches"] == 1
    assert late["would"]["expired_tombstones"] == 1


def test_the_map(directory: CompactedDirectory) -> None:
    path = orders(directory, lambda _, log: fill(log, 4, keys=100, records=100))
    fits = explain(path)["map"]
    assert (fits["keys"], fits["rounds"], fits["is_complete"], fits["memory_bytes"]) == (100, 1, True, 128 << 20)
    small = explain(path, "--map-bytes", "2k")
    assert (small["map"]["rounds"], small["map"]["is_complete"], small["map"]["capacity"]) == (6, True, 76)
    assert small["would"]["end_offset"] == 76
    done = json.loads(run("--json", "--map-bytes", "2k", path).stdout.splitlines()[0])
    assert done["rounds"] == small["map"]["rounds"]
    assert f"size of {small['map']['one_round_bytes']} " in done["notes"][0]
    assert f"--map-bytes {small['map']['one_round_bytes']}" in small["advice"][0]


def test_what_it_recommends_is_enough(directory: CompactedDirectory) -> None:
    path = orders(directory, lambda _, log: fill(log, 8, keys=100, records=100))
    tiny = explain(path, "--map-bytes", "1k")["map"]
    assert (tiny["rounds"], tiny["is_complete"], tiny["keys"]) == (10, False, 800)
    assert explain(path, "--map-bytes", tiny["one_round_bytes"])["map"]["rounds"] == 1
    assert "it takes more than 10 rounds" in "\n".join(lines_of(path, "--map-bytes", "1k"))


def test_keys_cannot_move_a_cursor(directory: CompactedDirectory) -> None:
    keys = [b"\x1b[2J\x1b]0;x\x07\xff\n", "\u202eabc".encode(), b"k" * 500]

    def prepare(_store: Store, log: PartitionLog) -> None:
        log.append([Record(key=key, value=b"") for key in keys * 2])
        log.roll()

    path = orders(directory, prepare)
    text = "\n".join(lines_of(path, "--records", 3))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert '     0  superseded          3  "\\x1b[2J\\x1b]0;x\\x07\\xff\\n"' in text
    assert f'"{"k" * 80}"...' in text
    listed = explain(path, "--records", 3)["records"]
    assert base64.b64decode(listed[0]["key_base64"]) == keys[0]
    assert [record["key"] for record in listed[1:]] == [key.decode() for key in keys[1:]]
    assert [record["superseded_by"] for record in listed] == [3, 4, 5]


def test_keyless_records(directory: CompactedDirectory) -> None:
    def prepare(_store: Store, log: PartitionLog) -> None:
        log.append([Record(key=None, value=b"1")] * 3)
        fill(log)

    path = orders(directory, prepare, cleanup_policy="delete")
    told = explain(path, "-t", "orders", "-c", "cleanup.policy=compact", "--records", 2)
    assert told["would"]["keyless_records"] == 3
    assert told["records"] == [
        {"offset": offset, "reason": "no key", "superseded_by": None, "key": None} for offset in (0, 1)
    ]
    assert told["advice"][0].startswith("3 records without a key would be removed")


def test_damage(directory: CompactedDirectory) -> None:
    path = orders(directory, lambda _, log: fill(log, 6))
    with_damage(directory)
    told = explain(path, code=1)
    assert "wrong checksum" in told["damaged_batches"][0]
    assert "stays as it is" in told["left_segments"][0]
    assert [group["base_offsets"] for group in told["would"]["groups"]] == [[0, 10, 20], [40, 50]]
    lines = lines_of(path, code=1)
    assert sum(line.startswith("! ") for line in lines) == 2
    assert "1 with damage" in "\n".join(lines)


def test_a_partition_that_cannot_be_read(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"))
        fill(directory.log(store, "carts"))
    (directory.path / "carts-0" / "partition.metadata").write_text("nonsense\n")
    result = run("--explain", "--json", directory.path, code=1)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["failure"] is None for row in rows[:2]] == [False, True]
    assert (rows[2]["failed"], rows[2]["due"], rows[2]["partitions"]) == (1, 1, 1)
    assert "duralog: error: carts-0: " in result.stderr


def test_lines(directory: CompactedDirectory) -> None:
    path = orders(directory, dirty_again, delete_retention_ms=DAY_MS)
    lines = lines_of(path)
    assert lines[0].startswith("orders-0: due: ")
    labels = [line.split("  ")[0] for line in lines[1:] if line and not line.startswith((" ", "#"))]
    assert labels[:-2] == ["log", "new", "limit", "removable", "segments", "tombstones", "then", "map"]
    assert "1 tombstone past the delete horizon" in "\n".join(lines)
    assert lines[-2].startswith("1 partition: 1 due; compaction would free ")
    assert run("--explain", "-q", path).stdout == ""


def test_a_log_that_changes_meanwhile_is_read_again(
    directory: CompactedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = orders(directory, lambda _, log: fill(log))
    seen: list[PartitionLog] = []

    def vanishing(log: PartitionLog, *arguments: Any) -> Explanation:
        seen.append(log)
        if len(seen) == 1:
            run(path)
            raise StorageError("there is no such file")
        return explain_compaction(log, *arguments)

    monkeypatch.setattr(duralog.storage.live_explanation, "explain_compaction", vanishing)
    told = explain(path)
    assert seen[0] is not seen[1]
    assert (told["checkpoint"], told["would"]) == (30, None)
