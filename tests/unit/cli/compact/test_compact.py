"""`duralog compact`: what it compacts, what it leaves, and what it says."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import duralog.storage.compaction.cleaner
from duralog import Record
from duralog.cli.voice.progress import ProgressBar
from duralog.command_line import app
from duralog.config.progress import Progress
from duralog.errors import StorageError
from duralog.format.topic_partition import TopicPartition
from duralog.operations.compacted_logs import CompactionMeter, PartitionProgress
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionPhase, CompactionProgress
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.store import Store
from tests.support import commands
from tests.support.compaction.compacted_directory import DAY_MS, LARGE, SMALL_SEGMENT, CompactedDirectory, damage, fill
from tests.support.storage.store_directory import contents


@pytest.fixture
def directory(tmp_path: Path) -> CompactedDirectory:
    return CompactedDirectory(tmp_path / "data")


compact = partial(commands.run, "compact")


objects = partial(commands.objects, "compact")


def offsets(directory: CompactedDirectory, topic: str = "orders") -> list[int]:
    with Store(str(directory.path), read_only=True) as store:
        return [record.offset for record in store.partition(topic, 0).read(0)]


def checkpoint(directory: CompactedDirectory) -> list[str]:
    return (directory.path / "cleaner-offset-checkpoint").read_text().splitlines()[2:]


def test_every_compacted_partition_and_no_other(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"))
        fill(directory.log(store, "carts", cleanup_policy="compact,delete"))
        fill(directory.log(store, "events", cleanup_policy="delete"))
    rows = objects(directory.path)
    assert [(row["topic"], row["records_before"], row["records_after"]) for row in rows[:-1]] == [
        ("carts", 30, 5),
        ("orders", 30, 5),
    ]
    assert rows[0]["freed_bytes"] == rows[0]["bytes_before"] - rows[0]["bytes_after"] > 0
    assert (rows[-1]["kind"], rows[-1]["compacted"], rows[-1]["idle"], rows[-1]["failed"]) == ("summary", 2, 0, 0)
    assert rows[-1]["freed_bytes"] == sum(row["freed_bytes"] for row in rows[:-1])
    assert offsets(directory) == offsets(directory, "carts") == list(range(25, 30))
    assert offsets(directory, "events") == list(range(30))
    assert checkpoint(directory) == ["carts 0 30", "orders 0 30"]
    assert CliRunner().invoke(app, ["verify", "-q", str(directory.path)]).exit_code == 0
    assert [path.name for path in directory.log_files("orders")] == [f"{0:020}.log", f"{30:020}.log"]
    assert not list(directory.path.rglob("*.deleted"))


def test_a_chosen_partition_by_name_and_by_its_folder(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        for topic in ("orders", "carts", "stock"):
            fill(directory.log(store, topic))
    assert objects(directory.path, "-t", "orders")[-1]["compacted"] == 1
    assert objects(directory.path / "carts-0")[-1]["compacted"] == 1
    assert [len(offsets(directory, topic)) for topic in ("orders", "carts", "stock")] == [5, 5, 30]


def test_lines(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        log = directory.log(store, "orders", cleanup_policy="delete")
        log.append([Record(key=None, value=b"1")] * 2)
        store.alter_topic_config("orders", {"cleanup.policy": "compact"})
        fill(log)
        directory.log(store, "carts")
    lines = compact(directory.path).stdout.splitlines()
    assert lines[0].split()[:6] == ["partition", "records", "kept", "bytes", "left", "freed"]
    cells = lines[1].split()
    assert cells[:3] == ["orders-0", "32", "5"]
    assert cells[-4:] == ["2", "-", "-", "1"]
    assert lines[2] == "# carts-0: nothing can be compacted from offset 0 on: the active segment starts at offset 0"
    assert lines[-1].startswith("1 partition compacted, 1 with nothing to do; 27 of 32 records removed, ")
    again = compact(directory.path).stdout.splitlines()
    assert again[-1] == "0 partitions compacted, 2 with nothing to do"
    assert compact("-q", directory.path).stdout == ""


def test_of_many_idle_partitions_only_some_are_listed(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        store.create_topic("orders", 12, {"cleanup.policy": "compact"})
    lines = compact(directory.path).stdout.splitlines()
    assert sum(line.startswith("# orders-") for line in lines) == 8
    assert "# and 4 more: nothing can be compacted; duralog compact --explain shows why" in lines


def test_the_active_segment_with_roll(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        directory.log(store, "orders").append([Record(key=b"k", value=b"1")] * 4)
    assert objects(directory.path)[0]["rounds"] == 0
    assert offsets(directory) == [0, 1, 2, 3]
    assert objects("--roll", directory.path)[0]["records_after"] == 1
    assert offsets(directory) == [3]


def test_old_tombstones_go_when_nothing_is_new(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        log = directory.log(store, "orders", delete_retention_ms=DAY_MS)
        fill(log, 1)
        log.append([Record(key=b"k1", value=None)])
        log.roll()
        store.compact("orders", 0)
    assert objects(directory.path)[0]["rounds"] == 0
    assert offsets(directory) == [5, 7, 8, 9, 10]
    explained = objects("--explain", "--again", directory.path)[0]
    assert (explained["checkpoint"], explained["first_dirty_offset"]) == (11, 0)
    row = objects("--again", directory.path)[0]
    assert explained["would"]["expired_tombstones"] == row["expired_tombstones"] == 1
    assert offsets(directory) == [5, 7, 8, 9]
    assert checkpoint(directory) == ["orders 0 11"]


def test_a_map_that_is_too_small_takes_rounds(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"), segments=4, keys=100, records=100)
    (row, _) = objects("--map-bytes", "1k", directory.path)
    assert (row["rounds"], row["records_after"]) == (11, 100)
    assert "log.cleaner.dedupe.buffer.size" in row["notes"][0]
    assert offsets(directory) == list(range(300, 400))
    assert checkpoint(directory) == ["orders 0 400"]


def test_configs_of_this_run(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        log = directory.log(store, "orders", cleanup_policy="delete", min_compaction_lag_ms=365 * 86_400_000)
        log.append([Record(key=None, value=b"1")] * 2)
        fill(log)
    told = compact(directory.path, "-t", "orders", code=1).stderr
    assert "cleanup.policy is delete" in told
    assert "--config cleanup.policy=compact" in told
    assert len(offsets(directory)) == 32
    lagging = objects(directory.path, "-t", "orders", "-c", "cleanup.policy=compact")[0]
    assert "min.compaction.lag.ms" in lagging["notes"][0]
    settings = ("-c", "cleanup.policy=compact", "-c", "min.compaction.lag.ms=0")
    row = objects(directory.path, "-t", "orders", *settings)[0]
    assert (row["records_after"], row["keyless_records"]) == (5, 2)
    with Store(str(directory.path), read_only=True) as store:
        assert store.topic_config("orders").text("cleanup.policy") == "delete"


def test_folders_without_metadata(directory: CompactedDirectory, tmp_path: Path) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"))
    backup = tmp_path / "backup"
    backup.mkdir()
    (directory.path / "orders-0").rename(backup / "orders-0")
    lines = compact(backup).stdout.splitlines()
    assert lines[0].endswith("to treat a topic as one, give --topic and --config cleanup.policy=compact")
    assert objects(backup / "orders-0", "-c", "cleanup.policy=compact")[0]["records_after"] == 5
    properties = tmp_path / "server.properties"
    properties.write_text("log.cleanup.policy=compact\n")
    assert objects(backup, "--server-properties", properties)[-1]["idle"] == 1


def test_a_partition_that_fails_costs_the_others_nothing(
    directory: CompactedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directory.open() as store:
        for topic in ("a", "b", "c", "d"):
            fill(directory.log(store, topic))

    def failing(log: Any, **settings: Any) -> Any:
        if log.topic == "b":
            raise StorageError("no space left")
        if log.topic == "c":
            raise ZeroDivisionError
        return compact_log(log, **settings)

    defaults = duralog.storage.compaction.cleaner.Cleaner.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "compact_log", failing)
    result = compact("--json", directory.path, code=1)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["failure"] for row in rows[:-1]] == [None, "no space left", "ZeroDivisionError()", None]
    assert (rows[-1]["compacted"], rows[-1]["failed"]) == (2, 2)
    assert "duralog: error: b-0: no space left" in result.stderr
    assert "duralog: error: c-0: ZeroDivisionError()" in result.stderr
    assert "Traceback" not in result.stderr
    assert [len(offsets(directory, topic)) for topic in ("a", "b", "c", "d")] == [5, 30, 30, 5]


def test_damage_is_reported_and_left(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"), segments=4)
        fill(directory.log(store, "carts"), segments=4)
    damage(directory.log_files("orders")[1], 80, b"\xff\xff")
    damage(directory.log_files("carts")[1], 8, b"\xff\xff\xff\xff")
    result = compact(directory.path, code=1)
    wrong = [line for line in result.stdout.splitlines() if line.startswith("! ")]
    assert len(wrong) == 2
    assert "carts-0/00000000000000000010.log stays as it is" in wrong[0]
    assert "orders-0/00000000000000000010.log: position 0: wrong checksum" in wrong[1]
    assert "2 with damage that was left as it is" in result.stdout
    assert result.stderr == ""
    assert len(directory.log_files("carts")) == 4


def test_old_segments_are_gone_before_the_next_ones_are_rewritten(
    directory: CompactedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders", segment_bytes=SMALL_SEGMENT), segments=6, value=LARGE)
    waiting: list[int] = []
    monkeypatch.setattr(
        ProgressBar, "show", lambda *_: waiting.append(len(list(directory.path.rglob("*.log.deleted"))))
    )
    assert objects(directory.path)[0]["segments_before"] == 6
    assert len(waiting) > 6
    assert set(waiting) == {0}


def test_an_interruption_leaves_a_directory_in_order(
    directory: CompactedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with directory.open() as store:
        fill(directory.log(store, "carts"))
        fill(directory.log(store, "orders", segment_bytes=SMALL_SEGMENT), segments=6, value=LARGE)
    shown = 0

    def interrupt(_bar: ProgressBar, progress: Progress) -> None:
        nonlocal shown
        if isinstance(progress, PartitionProgress):
            is_rewriting = progress.compaction.phase is CompactionPhase.REWRITING
            shown += is_rewriting and progress.total > SMALL_SEGMENT
        if shown == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "show", interrupt)
    result = compact(directory.path, code=130)
    assert "1 partition compacted" in result.stdout
    assert result.stderr == "duralog: interrupted\n"
    names = [path.name for path in directory.path.rglob("*")]
    assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".swap"))]
    assert ".kafka_cleanshutdown" in names
    monkeypatch.undo()
    objects(directory.path)
    assert offsets(directory) == list(range(55, 60))
    assert CliRunner().invoke(app, ["verify", "-q", str(directory.path)]).exit_code == 0


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_interruption_before_the_first_partition_shows_no_totals(
    directory: CompactedDirectory, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"))

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("duralog.operations.compact.chosen_logs", interrupt)
    result = compact(directory.path, *options, code=130)
    assert result.stdout == ""
    assert result.stderr == "duralog: interrupted\n"


def test_a_directory_in_use(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"))
    before = contents(directory.path)
    program = (
        "import sys; from duralog.storage.disk.file_system import LocalFileSystem;"
        "lock = LocalFileSystem().lock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory.path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        told = compact(directory.path, code=1).stderr
        assert f"in use by process {holder.pid} (python" in told or "in use by another process" in told
        assert "stop it first" in told
        compact("--explain", directory.path)
        holder.communicate("")
    assert contents(directory.path) == before


def test_a_lock_of_this_process(directory: CompactedDirectory) -> None:
    directory.open().close()
    lock = LocalFileSystem().lock(str(directory.path / ".lock"))
    try:
        assert "in use by" in compact(directory.path, code=1).stderr
    finally:
        lock.release()


def test_commands_do_not_compact_unasked(directory: CompactedDirectory) -> None:
    with directory.open() as store:
        fill(directory.log(store, "orders"))
    alter = ["topic", "alter", str(directory.path), "-t", "orders", "-c", "delete.retention.ms=5"]
    assert CliRunner().invoke(app, alter).exit_code == 0
    assert CliRunner().invoke(app, ["retain", str(directory.path)]).exit_code == 0
    assert len(offsets(directory)) == 30


def test_wrong_usage(directory: CompactedDirectory, tmp_path: Path) -> None:
    directory.open().close()
    assert "there is no partition in it" in compact(directory.path).stdout
    compact(tmp_path / "missing", code=1)
    assert not (tmp_path / "missing").exists()
    compact("--map-bytes", "100", directory.path, code=2)
    compact("--map-bytes", "much", directory.path, code=2)
    compact("--threads", 0, directory.path, code=2)
    compact("--config", "a=b", directory.path, code=2)
    compact("--config", "cleanup.policy", "-t", "orders", directory.path, code=2)
    compact("--explain", "--roll", directory.path, code=2)
    compact("--records", 3, directory.path, code=2)
    compact("--now", "1h", directory.path, code=2)
    assert "no topic orders" in compact("-t", "orders", directory.path, code=1).stderr
    with directory.open() as store:
        directory.log(store, "orders")
    assert "no partition 4 of orders" in compact("-t", "orders", "-p", 4, directory.path, code=1).stderr
    assert "no topic config" in compact("-t", "orders", "-c", "a.b=1", directory.path, code=1).stderr


def test_the_view_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr("duralog.cli.voice.progress._PATIENCE_SECONDS", 0)
        monkeypatch.setattr("duralog.cli.voice.progress._INTERVAL_SECONDS", 0)
        monkeypatch.setenv("COLUMNS", "200")
        with ProgressBar() as bar:
            view = CompactionMeter(2, bar.show)
            view.begin(TopicPartition("orders", 0))
            view.show(_progress(CompactionPhase.MAPPING, 1, 5, 0, 0))
            view.show(_progress(CompactionPhase.REWRITING, 2, 0, 100, 60))
            view.show(_progress(CompactionPhase.REWRITING, 2, 50, 130, 70))
    shown = _all_of(reader)
    assert "1/2 orders-0 mapping" in shown
    assert "1/2 orders-0 rewriting, round 2" in shown
    assert "map 25.0% full, kept 10 of 30" in shown


def _all_of(terminal: int) -> str:
    """The output on a terminal that no process writes to any more."""
    parts: list[bytes] = []
    with os.fdopen(terminal, "rb", buffering=0) as reader, suppress(OSError):
        while part := reader.read(4096):
            parts.append(part)
    return b"".join(parts).decode()


def _progress(phase: CompactionPhase, number: int, done: int, read: int, kept: int) -> CompactionProgress:
    return CompactionProgress(
        phase=phase,
        round=number,
        bytes_done=done,
        bytes_total=100,
        map_fill=0.25,
        records_read=read,
        records_kept=kept,
    )


def test_the_view_of_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr("duralog.cli.voice.progress._PATIENCE_SECONDS", 0)
        monkeypatch.setenv("COLUMNS", "200")
        with ProgressBar() as bar:
            view = CompactionMeter(1, bar.show, is_dry_run=True)
            view.begin(TopicPartition("orders", 0))
            view.show(_progress(CompactionPhase.REWRITING, 1, 50, 130, 70))
    shown = _all_of(reader)
    assert "orders-0 reading" in shown
    assert "rewriting" not in shown
