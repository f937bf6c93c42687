"""Staged files: their unmistakable names, and what a failed task leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from duralog.errors import StorageError
from duralog.format.filenames import StagedFileName, parse_partition_folder, parse_segment_file, parse_staged_file
from duralog.spark.sink.staging import WriteTask, open_staged, read_run
from duralog.spark.sink.staging_task import stage_rows
from duralog.spark.sink.write_targets import store_targets
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.store import Store
from tests.support.spark.staged_writes import WRITER, options_of, rows_of, stage, write

NAME = StagedFileName(WRITER, 12, 3, "f" * 32)


def test_names_are_parsed_as_they_are_made() -> None:
    assert NAME.name == f"duralog-sink.{WRITER}.12.3.{'f' * 32}.staged"
    assert parse_staged_file(NAME.name) == NAME


@pytest.mark.parametrize(
    "name",
    [
        "duralog-sink.journal",
        "duralog-sink.committed",
        NAME.name + ".tmp",
        NAME.name.replace(".12.", ".012."),
        NAME.name.replace(".12.", ".99999999999999999999."),
        NAME.name.replace("f", "g"),
        "../" + NAME.name,
    ],
)
def test_other_names(name: str) -> None:
    assert parse_staged_file(name) is None


def test_nothing_takes_them_for_a_partition_or_a_segment(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")
    write(options, [rows_of(value=["x"])])
    stage(options, [[rows_of(value=["y"])]])
    (name,) = [file.name for file in tmp_path.glob("duralog-sink*")]
    assert parse_partition_folder(name) is None
    assert parse_segment_file(name) is None
    with Store(str(tmp_path)) as store:
        assert store.topics() == ["t"]
        assert not store.offline
    verified = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert verified.exit_code == 0, verified.output


def test_a_file_holds_runs_of_whole_batches(tmp_path: Path) -> None:
    options = options_of(tmp_path, partitions=2, batchSize=100)
    rows = rows_of(topic=["a", "b"] * 50, partition=[0, 1] * 50, value=[f"{number:03}" for number in range(100)])
    (task,) = stage(options, [[rows, rows]], gathered_bytes=1)
    assert task.name is not None
    assert task.records == 200
    staged = open_staged(LocalFileSystem(), str(tmp_path), task.name, task.size)
    assert [(run.topic, run.partition, run.records) for run in staged.runs] == [("a", 0, 50), ("b", 1, 50)] * 2
    for run in staged.runs:
        pieces = list(read_run(LocalFileSystem(), staged.path, run, check_crc=True))
        batches = [row for piece in pieces for row in piece.batches]
        assert len(batches) == run.batches > 1
        assert sum(int(row["record_count"]) for row in batches) == 50
        assert {int(row["base_offset"]) for row in batches} == {0}
        assert all(row["crc_ok"] for row in batches)


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    options = options_of(tmp_path, topic="t")

    def rows() -> Iterator[pa.RecordBatch]:
        yield rows_of(value=["x"])
        assert list(tmp_path.glob("*.staged"))
        raise RuntimeError("the executor's input broke")

    with pytest.raises(RuntimeError, match="input broke"):
        stage_rows(rows(), store_targets(options), options, WriteTask(WRITER, 0, 0), gathered_bytes=1)
    assert not list(tmp_path.glob("duralog-sink*"))


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file/store"):
        stage(options_of(tmp_path / "file" / "store", topic="t"), [[rows_of(value=["x"])]])
