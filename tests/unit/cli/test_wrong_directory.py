"""A folder without a log in it is not a log directory, whatever its folders are called: nothing calls it sound."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import duralog
from duralog import Record
from duralog.command_line import app
from duralog.console.sources.opening import open_source
from duralog.errors import DuralogError, StorageError
from duralog.storage.checks.verification import Verification

NO_LOG = "no log files in here"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == code, (result.exit_code, result.output)
    return result


def objects(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json", code=code).stdout.splitlines()]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """As the system's configuration folder: some of its folders are named like partitions."""
    folder = tmp_path / "etc"
    for name in ("dbus-1", "polkit-1", "systemd"):
        (folder / name / "rules.d").mkdir(parents=True)
    (folder / "dbus-1" / "system.conf").write_text("<busconfig/>\n")
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    (folder / "install.log").write_text("done\n")
    return folder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with duralog.open(path) as store:
        store.create_topic("orders", 2)
        for number in range(2):
            store.partition("orders", number).append([Record(key=b"k", value=b"v")] * 3)
    return path


def tree(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*"))


READS = [
    ("verify",),
    ("topic", "list"),
    ("topic", "describe"),
    ("consume", "--topic", "dbus"),
    ("stats",),
    ("lookup", "--topic", "dbus", "--offset", "0"),
    ("compact", "--explain"),
    ("retain", "--dry-run"),
    ("repair", "--dry-run"),
    ("group", "list"),
]


@pytest.mark.parametrize("command", READS, ids=lambda command: " ".join(command[:2]))
def test_commands_refuse_a_folder_without_a_log(settings: Path, command: tuple[str, ...]) -> None:
    before = tree(settings)
    told = run(*command, settings, code=1).stderr
    assert str(settings) in told
    assert NO_LOG in told
    assert tree(settings) == before


@pytest.mark.parametrize("command", READS, ids=lambda command: " ".join(command[:2]))
def test_commands_refuse_an_empty_folder(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert NO_LOG in run(*command, tmp_path, code=1).stderr
    assert tree(tmp_path) == []


def test_commands_that_write_refuse_it_too(settings: Path) -> None:
    before = tree(settings)
    for command in (("retain",), ("compact",), ("repair",), ("topic", "alter", "-t", "dbus", "-c", "retention.ms=1")):
        assert NO_LOG in run(*command, settings, code=1).stderr
    assert tree(settings) == before


def test_a_folder_that_is_named_like_a_partition_is_not_verified_without_a_log(settings: Path) -> None:
    assert NO_LOG in run("verify", settings / "dbus-1", code=1).stderr


def test_files_that_only_end_in_log_do_not_make_a_folder_a_partition(tmp_path: Path) -> None:
    (tmp_path / "install.log").write_text("done\n")
    assert NO_LOG in run("verify", tmp_path, code=1).stderr


def test_python_refuses_it_for_reading(settings: Path) -> None:
    with pytest.raises(DuralogError, match=NO_LOG):
        duralog.open(settings, read_only=True)
    with pytest.raises(DuralogError, match=NO_LOG):
        Verification(str(settings))


def test_the_console_refuses_it(settings: Path) -> None:
    with pytest.raises(DuralogError, match=NO_LOG):
        open_source(str(settings), start=False)


def test_a_new_directory_without_topics_is_one(tmp_path: Path) -> None:
    duralog.open(tmp_path / "new").close()
    assert "no topics yet" in run("topic", "list", tmp_path / "new").stdout
    assert "no findings" in run("verify", tmp_path / "new").stdout
    assert duralog.open(tmp_path / "new", read_only=True).topics() == []


def test_a_directory_of_partition_folders_alone_is_one(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory / "orders-0", tmp_path / "copy" / "orders-0")
    run("verify", tmp_path / "copy")
    assert objects("topic", "list", tmp_path / "copy")[0]["topic"] == "orders"


def test_topic_create_makes_a_directory_of_any_folder(settings: Path) -> None:
    """It says so itself, and takes no folder for a topic that is none."""
    run("topic", "create", settings, "--topic", "orders")
    assert [row["topic"] for row in objects("topic", "list", settings)] == ["orders"]
    with duralog.open(settings) as store:
        assert store.topics() == ["orders"]
        assert store.offline == {}


# Folders in a log directory that are not of a log


def test_a_folder_without_a_log_is_not_listed_as_a_topic(directory: Path) -> None:
    (directory / "photos-2024").mkdir()
    (directory / "photos-2024" / "beach.jpg").write_bytes(b"jpeg")
    assert [row["topic"] for row in objects("topic", "list", directory)] == ["orders"]
    rows = objects("verify", directory)
    assert [row["folder"] for row in rows if row.get("kind") == "partition" and "photos" in row["folder"]] == []
    (note,) = [row for row in rows if "photos" in row.get("file", "")]
    assert "without log files" in note["note"]
    with duralog.open(directory) as store:
        assert store.topics() == ["orders"]
        assert (directory / "photos-2024" / "beach.jpg").exists()
        store.create_topic("photos", 1)
    assert not [row for row in objects("verify", directory) if "error" in row]
    with duralog.open(directory) as store:
        assert store.offline == {}
    source = open_source(str(directory), start=False)
    assert [topic.name for topic in source.overview().topics] == ["orders", "photos"]
    assert source.overview().notes == ()
    source.close()


def test_names_that_are_suggested_are_topics(directory: Path) -> None:
    (directory / "photos-2024").mkdir()
    told = run("consume", directory, "--topic", "photos", code=1).stderr
    assert "there is only orders" in told


@pytest.mark.parametrize("named_by", ["metadata", "checkpoint"])
def test_a_partition_that_lost_its_log_is_a_finding(directory: Path, named_by: str) -> None:
    for file in (directory / "orders-1").iterdir():
        file.unlink()
    if named_by == "checkpoint":
        shutil.rmtree(directory / "__cluster_metadata-0")
    rows = objects("verify", directory, code=1)
    (finding,) = [row for row in rows if "error" in row and "orders-1" in row.get("file", "")]
    assert "no log" in finding["error"]
    assert named_by in finding["error"]
    lines = run("verify", directory, "--topic", "orders", "--partition", "1", code=1).stdout
    assert "1 finding" in lines
    source = open_source(str(directory), start=False)
    (note,) = source.overview().notes
    assert "orders-1" in note
    source.close()


def test_a_directory_that_lost_all_its_logs_is_a_finding(directory: Path) -> None:
    for number in range(2):
        shutil.rmtree(directory / f"orders-{number}")
        (directory / f"orders-{number}").mkdir()
    os.remove(directory / "meta.properties")
    run("verify", directory, code=1)


# Files


def test_dump_refuses_a_file_that_is_none_of_a_log(settings: Path) -> None:
    told = run("dump", settings / "hosts", code=1).stderr
    assert f"{settings / 'hosts'}" in told
    assert "not a file of a log" in told


def test_dump_shows_the_other_files_and_still_ends_with_1(directory: Path, settings: Path) -> None:
    result = run("dump", directory / "orders-0", settings / "hosts", code=1)
    assert "offset" in result.stdout
    assert "not a file of a log" in result.stderr


def test_dump_skips_other_files_of_a_folder_with_a_note(directory: Path) -> None:
    (directory / "orders-0" / "notes.txt").write_text("mine")
    assert "skipped" in run("dump", directory / "orders-0").stdout


# Offsets past the end


def consume(*arguments: object, code: int = 0) -> Result:
    return run("consume", *arguments, code=code)


@pytest.mark.parametrize("more", [(), ("--follow",), ("--partition", "1")], ids=lambda more: " ".join(more))
def test_consume_from_an_offset_past_the_end_says_so(directory: Path, more: tuple[str, ...]) -> None:
    told = consume(directory, "--topic", "orders", "--offset", "999", *more, code=1).stderr
    assert "offset 999 is past the end" in told
    assert "orders-1" in told
    assert "3" in told


def test_consume_past_the_end_of_some_partitions_reads_the_others(directory: Path) -> None:
    with duralog.open(directory) as store:
        store.partition("orders", 1).append([Record(value=b"more")] * 3)
    result = consume(directory, "--topic", "orders", "--offset", "4")
    assert len(result.stdout.splitlines()) == 2
    assert "offset 4 is past the end of orders-0, which is 3" in result.stderr
    assert "past the end" not in consume(directory, "--topic", "orders", "--offset", "4", "--quiet").stderr


def test_consume_from_the_end_itself_waits_for_nothing_and_is_well(directory: Path) -> None:
    result = consume(directory, "--topic", "orders", "--offset", "3")
    assert result.stderr.strip().endswith("0 records")


@pytest.mark.parametrize("name", ["broker-1", "backup-2024"])
def test_a_new_directory_whose_name_looks_like_a_partitions(tmp_path: Path, name: str) -> None:
    (tmp_path / "backup-2024").mkdir()
    run("topic", "create", tmp_path / name, "--topic", "orders")
    assert "orders" in run("topic", "list", tmp_path / name).stdout


def test_a_copy_of_partition_folders_whose_name_looks_like_a_partitions(tmp_path: Path, directory: Path) -> None:
    copy = tmp_path / "backup-2024"
    shutil.copytree(directory / "orders-0", copy / "orders-0")
    assert "orders" in run("topic", "list", copy).stdout
    assert run("consume", copy, "--topic", "orders", "--values", "--quiet").stdout == "v\nv\nv\n"
    assert {each["topic"] for each in objects("verify", copy) if each.get("kind") == "partition"} == {"orders"}
    assert duralog.open(str(copy), read_only=True).topics() == ["orders"]


def test_a_partition_that_is_opened_for_writing_stays_as_it_is(directory: Path) -> None:
    partition = directory / "orders-0"
    before = tree(partition)
    assert "this is one partition" in run("serve", partition, "--listen", "127.0.0.1:0", code=1).stderr
    with pytest.raises(StorageError, match="this is one partition: give the log directory that it is in"):
        duralog.open(partition)
    renamed = partition.rename(directory.parent / "renamed")
    with pytest.raises(StorageError, match="this is one partition"):
        duralog.open(renamed)
    assert tree(renamed) == before


def test_a_partition_that_has_lost_its_files_is_one(directory: Path) -> None:
    for file in (directory / "orders-1").iterdir():
        file.unlink()
    assert "orders-1" in run("verify", directory / "orders-1", code=1).stderr
    assert "this is one partition" in run("topic", "list", directory / "orders-1", code=1).stderr
