"""`duralog repair`: what it does, what it would do, and that nothing valid is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from duralog.errors import CorruptRecord
from duralog.format.checkpoints import PartitionOffset, decode_offset_checkpoint, encode_offset_checkpoint
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.local_lock import LocalLock
from duralog.storage.repair.folder_changes import survey
from duralog.storage.store import Store
from tests.support.commands import run
from tests.support.places import GOLDEN

LOG = "00000000000000000000.log"


def repair(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("repair", "--json", *arguments, code=code).stdout.splitlines()]


def of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (row,) = [row for row in rows if row["kind"] == "partition" and f"{row['topic']}-{row['partition']}" == name]
    return row


def done(rows: list[dict[str, Any]], name: str) -> set[tuple[str, str]]:
    return {(action["action"], Path(action["file"]).name) for action in of(rows, name)["actions"]}


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def is_sound(path: Path) -> bool:
    return CliRunner().invoke(app, ["verify", "-q", str(path)]).exit_code == 0


def offsets(path: Path, topic: str, partition: int = 0) -> list[int]:
    return [record.offset for record in Store(str(path), read_only=True).partition(topic, partition).read(0)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    shutil.copytree(GOLDEN / "store", path, ignore=shutil.ignore_patterns("*.gz"))
    return path


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_sound_directory_is_not_touched(store: Path) -> None:
    before = contents(store)
    assert repair(store)[-1] == {
        "kind": "summary",
        "dry_run": False,
        "partitions": 20,
        "repaired": 0,
        "quarantined_bytes": 0,
        "left": 0,
    }
    after = contents(store)
    after.pop(".lock", None)
    assert after == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["missing", "deleted", "garbage", "huge"])
def test_indexes_are_rebuilt(store: Path, suffix: str, how: str) -> None:
    path = store / "plain-0" / f"00000000000000003229{suffix}"
    right = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "deleted":
        path.rename(f"{path}.deleted")
    elif how == "huge":
        os.truncate(path, 2 << 30)
    else:
        path.write_bytes(b"\xff" * len(right))
    rows = repair(store)
    assert ("rebuilt" if how in ("garbage", "huge") else "built", path.name) in done(rows, "plain-0")
    assert path.read_bytes() == right
    assert is_sound(store)


def test_a_transaction_index_is_rebuilt(store: Path) -> None:
    path = store / "txn-0" / "00000000000000000080.txnindex"
    right = path.read_bytes()
    path.unlink()
    assert ("built", path.name) in done(repair(store), "txn-0")
    assert path.read_bytes() == right
    assert is_sound(store)


def test_a_snapshot_is_rebuilt(store: Path) -> None:
    path = store / "txn-0" / "00000000000000002480.snapshot"
    flip(path, 40)
    repair(store)
    assert is_sound(store)


def test_damage_in_the_middle_costs_one_batch(store: Path) -> None:
    """Kafka would end the log here. What follows, in the segment and behind it, stays."""
    before = offsets(store, "plain")
    flip(store / "plain-0" / "00000000000000003229.log", 5000)
    rows = repair(store)
    assert ("quarantined", "00000000000000003229.log") in done(rows, "plain-0")
    assert is_sound(store)
    after = offsets(store, "plain")
    assert after[-1] == before[-1] == 6000
    assert 0 < len(before) - len(after) < 40


def test_zeros_before_another_segment_are_taken_out(store: Path) -> None:
    """At the end of the log they may be room that was allocated ahead. In its middle, readers get no further."""
    before = offsets(store, "plain")
    with (store / "plain-0" / "00000000000000003229.log").open("ab") as log:
        log.write(bytes(1000))
    with pytest.raises(CorruptRecord):
        offsets(store, "plain")
    assert not is_sound(store)
    assert ("quarantined", "00000000000000003229.log") in done(repair(store), "plain-0")
    assert is_sound(store)
    assert offsets(store, "plain") == before


def test_restoring_what_is_valid(store: Path) -> None:
    """At the end of a log, what follows damage goes to quarantine with it, and comes back with --restore."""
    flip(store / "codecs-1" / LOG, 50_000)
    assert of(repair(store), "codecs-1")["restorable_batches"] == 1
    kept = offsets(store, "codecs", 1)
    assert kept == list(range(320))
    rows = repair("--restore", store)
    assert ("restored", LOG) in done(rows, "codecs-1")
    assert offsets(store, "codecs", 1) == [*kept, *range(640, 800)]
    assert is_sound(store)
    assert of(repair("--restore", store), "codecs-1")["actions"] == []


def test_damage_and_restoring_at_once(store: Path) -> None:
    flip(store / "codecs-1" / LOG, 50_000)
    repair("--restore", store)
    assert offsets(store, "codecs", 1) == [*range(320), *range(640, 800)]
    assert is_sound(store)


def test_no_byte_is_thrown_away(store: Path) -> None:
    log = store / "txn-0" / "00000000000000000080.log"
    whole = log.read_bytes() + b"\x01garbage"
    log.write_bytes(whole)
    repair(store)
    (kept,) = (store / "txn-0" / "duralog-quarantine").glob("*.bytes")
    assert log.read_bytes() + kept.read_bytes() == whole


@pytest.mark.parametrize("restore", [[], ["--restore"]])
def test_a_dry_run_changes_nothing_and_reports_correctly(tmp_path: Path, restore: list[str]) -> None:
    path = tmp_path / "before"
    shutil.copytree(GOLDEN / "recovery" / "before", path, ignore=shutil.ignore_patterns("*.gz"))
    before = contents(path)
    told = repair("--dry-run", *restore, path, code=1)
    assert contents(path) == before
    happened = repair(*restore, path, code=1)
    assert told == [*happened[:-1], {**happened[-1], "dry_run": True}]
    assert happened[-1]["repaired"] > 10


def test_leftovers_are_settled(tmp_path: Path) -> None:
    path = tmp_path / "before"
    shutil.copytree(GOLDEN / "recovery" / "before", path, ignore=shutil.ignore_patterns("*.gz"))
    rows = repair(path, code=1)
    assert ("removed", "00000000000000000000.log.cleaned") in done(rows, "appendtime-0")
    assert ("put in place", LOG) in done(rows, "recompress-0")


def test_checkpoints_are_corrected(store: Path) -> None:
    path = store / "recovery-point-offset-checkpoint"
    path.write_bytes(encode_offset_checkpoint([PartitionOffset("plain", 0, 7000), PartitionOffset("codecs", 1, 5)]))
    starts = store / "log-start-offset-checkpoint"
    starts.write_bytes(encode_offset_checkpoint([PartitionOffset("plain", 0, 7000)]))
    actions = [row for row in repair(store) if row["kind"] == "action"]
    assert [action["action"] for action in actions] == ["corrected", "corrected"]
    assert set(decode_offset_checkpoint(path.read_bytes())) == {
        PartitionOffset("plain", 0, 6001),
        PartitionOffset("codecs", 1, 5),
    }
    assert decode_offset_checkpoint(starts.read_bytes()) == []
    assert len(offsets(store, "plain")) == 6001
    assert is_sound(store)


def test_a_damaged_checkpoint_is_emptied(store: Path) -> None:
    path = store / "recovery-point-offset-checkpoint"
    path.write_bytes(b"garbage")
    assert [row["action"] for row in repair(store) if row["kind"] == "action"] == ["emptied"]
    assert decode_offset_checkpoint(path.read_bytes()) == []


def test_a_log_start_behind_the_end_does_not_empty_the_log(store: Path) -> None:
    (store / "log-start-offset-checkpoint").write_bytes(encode_offset_checkpoint([PartitionOffset("plain", 0, 9000)]))
    (store / "plain-0" / "00000000000000003229.index").unlink()
    repair(store)
    assert len(offsets(store, "plain")) == 6001


def test_what_cannot_be_repaired_is_reported(store: Path) -> None:
    (store / "meta.properties").write_text("version=77\n")
    result = run("repair", store, code=1)
    assert "meta.properties" in result.output


def test_the_metadata_is_cut_only_on_demand(store: Path) -> None:
    """Topics that are not in it any more are set aside by Kafka: that must not happen by the way."""
    log = store / "__cluster_metadata-0" / LOG
    flip(log, 3000)
    whole = log.read_bytes()
    (store / "codecs-1" / "00000000000000000000.index").unlink()
    result = run("repair", store, code=1)
    assert "--topic __cluster_metadata" in result.stdout
    assert log.read_bytes() == whole
    assert (store / "codecs-1" / "00000000000000000000.index").exists()
    assert repair("--topic", "__cluster_metadata", store)[-1]["left"] == 0
    assert len(log.read_bytes()) < len(whole)


def test_metadata_behind_missing_records_is_not_put_back(store: Path) -> None:
    """It is valid, but the metadata would be unreadable: a store would not open the directory for writing."""
    flip(store / "__cluster_metadata-0" / LOG, 3000)
    chosen = ("--topic", "__cluster_metadata")
    assert of(repair(*chosen, store), "__cluster_metadata-0")["restorable_batches"] == 0
    assert done(repair(*chosen, "--restore", store), "__cluster_metadata-0") == set()
    with Store(str(store)) as opened:
        assert ("txn", 0) in opened.offline
        assert "plain" in opened.topics()


def test_metadata_that_must_not_be_cut_is_not_cut_by_the_next_start(store: Path) -> None:
    marker = store / ".kafka_cleanshutdown"
    marker.write_text('{"version":0,"brokerEpoch":7}')
    flip(store / "__cluster_metadata-0" / LOG, 3000)
    whole = (store / "__cluster_metadata-0" / LOG).read_bytes()
    run("repair", store, code=1)
    assert marker.exists()
    with pytest.raises(CorruptRecord):
        Store(str(store))
    assert (store / "__cluster_metadata-0" / LOG).read_bytes() == whole


def test_checkpoints_of_a_log_whose_end_is_not_known_stay(store: Path) -> None:
    log = store / "codecs-1" / LOG
    log.write_bytes(b"\xff" * 17 + log.read_bytes()[17:])
    # Nothing can be taken out of the log.
    (store / "codecs-1" / "duralog-quarantine").write_bytes(b"")
    checkpoint = store / "log-start-offset-checkpoint"
    checkpoint.write_bytes(encode_offset_checkpoint([PartitionOffset("codecs", 1, 500)]))
    rows = repair(store, code=1)
    assert "duralog-quarantine" in of(rows, "codecs-1")["failure"]
    assert decode_offset_checkpoint(checkpoint.read_bytes()) == [PartitionOffset("codecs", 1, 500)]


def test_an_index_of_the_metadata_is_rebuilt(store: Path) -> None:
    path = store / "__cluster_metadata-0" / "00000000000000000000.index"
    right = path.read_bytes()
    path.write_bytes(b"\xff" * 16)
    repair(store)
    assert path.read_bytes() == right


def test_only_one_partition(store: Path) -> None:
    for number in (1, 2):
        (store / f"codecs-{number}" / "00000000000000000000.index").unlink()
    rows = repair("--topic", "codecs", "--partition", 1, store)
    assert [row["partition"] for row in rows if row["kind"] == "partition"] == [1]
    assert not (store / "codecs-2" / "00000000000000000000.index").exists()
    assert len(repair(store / "codecs-2")) == 2
    assert (store / "codecs-2" / "00000000000000000000.index").exists()


def test_the_marker_of_a_clean_stop_stays(store: Path) -> None:
    marker = store / ".kafka_cleanshutdown"
    had_one = marker.exists()
    (store / "codecs-1" / "00000000000000000000.index").unlink()
    repair(store)
    assert marker.exists() == had_one
    marker.write_text('{"version":0,"brokerEpoch":7}')
    (store / "codecs-1" / "00000000000000000000.index").unlink()
    repair(store)
    assert json.loads(marker.read_text())["brokerEpoch"] == 7


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_a_directory_in_use_is_refused(store: Path, option: list[str]) -> None:
    lock = LocalFileSystem().lock(str(store / ".lock"))
    try:
        result = run("repair", *option, store, code=1)
    finally:
        lock.release()
    assert "error:" in result.stderr
    assert "Traceback" not in result.output


def test_a_dry_run_works_where_nothing_can_be_written(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / ".lock").write_text("left by a job that died")
    flip(store / "codecs-1" / LOG, 50_000)
    before = contents(store)
    opened = os.open

    def read_only(path: Any, flags: int, *others: Any, **named: Any) -> int:
        if str(path).startswith(str(store)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(path, flags, *others, **named)

    monkeypatch.setattr(os, "open", read_only)
    assert ("quarantined", LOG) in done(repair("--dry-run", store), "codecs-1")
    assert contents(store) == before


def test_dry_runs_of_several_processes_do_not_refuse_each_other(store: Path) -> None:
    (store / ".lock").touch()
    lock = LocalLock(str(store / ".lock"), shared=True)
    try:
        taken = subprocess.run([sys.executable, "-c", _LOCKING, str(store / ".lock")], capture_output=True, text=True)
    finally:
        lock.release()
    assert taken.stdout.split() == ["shared", "refused"], taken.stderr


_LOCKING = """
import sys
from duralog.errors import StoreLocked
from duralog.storage.disk.local_lock import LocalLock
LocalLock(sys.argv[1], shared=True).release()
print("shared")
try:
    LocalLock(sys.argv[1])
except StoreLocked:
    print("refused")
"""


def test_lines(store: Path) -> None:
    flip(store / "codecs-1" / LOG, 50_000)
    lines = run("repair", "--dry-run", store).stdout.splitlines()
    assert lines[0] == "codecs-1: log ends at offset 320"
    assert lines[1].split(maxsplit=2)[:2] == ["quarantined", LOG]
    assert any(line.startswith("#") and "--restore" in line for line in lines)
    assert lines[-1] == (
        "1 partition would be repaired, 19 sound, 67.5 KiB to quarantine, nothing left to do; nothing was changed"
    )
    assert run("repair", "--quiet", store).stdout == ""


def test_wrong_usage(tmp_path: Path) -> None:
    run("repair", tmp_path / "missing", "--dry-run", code=1)
    assert "no such directory" in run("repair", tmp_path / "missing", code=1).stderr
    run("repair", code=2)
    assert not (tmp_path / "missing").exists()


def test_files_that_belong_to_no_log_are_not_read(tmp_path: Path) -> None:
    for name in (LOG, "00000000000000000000.index", "leader-epoch-checkpoint", "a-backup-of-any-size.tar"):
        (tmp_path / name).write_bytes(b"")
    assert survey(LocalFileSystem(), str(tmp_path)).keys() == {
        LOG,
        "00000000000000000000.index",
        "leader-epoch-checkpoint",
    }
