"""A cluster metadata log damaged at its very start, or at its end: readers get a warning, writers lose nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duralog.command_line import app
from duralog.errors import CorruptRecord
from duralog.format import record_batch
from duralog.format.batches import scan
from duralog.format.record import Record
from oracle.hostile_batches import batch as odd_batch
from tests.support.storage.store_directory import MARKER, NOW_MS, Clock, Directory

LOG = "__cluster_metadata-0/00000000000000000000.log"
FIRST_LENGTH = slice(8, 12)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path / "data", Clock())
    with directory.open() as store:
        store.create_topic("orders", 1, {"retention.ms": 5000})
        store.create_topic("others", 1, {"retention.ms": 5000})
    yield directory
    for store in directory.opened:
        store.close()


def too_long(data: bytearray) -> None:
    data[FIRST_LENGTH] = (len(data) + 1).to_bytes(4)


def cut_short(data: bytearray) -> None:
    del data[100:]


def blank(data: bytearray) -> None:
    data[:] = bytes(len(data))


def empty(data: bytearray) -> None:
    data.clear()


def last_value(data: bytearray) -> None:
    data[-1] ^= 1


def change(path: Path, damage: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "told", "went_by"),
    [
        (
            too_long,
            f"{LOG}: position 0: the file ends inside a batch",
            "topics come from folders, with default configs",
        ),
        (
            cut_short,
            f"{LOG}: position 0: the file ends inside a batch",
            "the metadata before it, which ends at offset 0",
        ),
        (blank, f"{LOG}: position 0: a batch's length is too small", "the metadata before it, which ends at offset 0"),
        (empty, "__cluster_metadata-0: the metadata is empty", "topics come from folders, with default configs"),
        (last_value, "wrong checksum", "the metadata before it, which ends at offset 10"),
    ],
)
def test_a_reader_is_warned_of_damage_and_of_the_source_used_instead(
    directory: Directory,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytearray], None],
    told: str,
    went_by: str,
) -> None:
    change(directory.path / LOG, damage)
    with caplog.at_level(logging.WARNING, "duralog"), directory.open(read_only=True) as store:
        assert store.topics() == ["orders", "others"]
    assert len(caplog.messages) == 1
    assert told in caplog.text
    assert went_by in caplog.text


def test_a_reader_of_sound_metadata_gets_no_warning(directory: Directory, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "duralog"), directory.open(read_only=True) as store:
        assert store.topic_config("orders").retention_ms == 5000
    assert caplog.messages == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_length_that_hides_sound_batches_is_no_end_of_an_append(directory: Directory, is_clean: bool) -> None:
    change(directory.path / LOG, too_long)
    if not is_clean:
        (directory.path / MARKER).unlink()
    with directory.open() as store:
        assert {topic for topic, _ in store.offline} == {"orders", "others"}
        assert all("its configs are not known" in str(error) for error in store.offline.values())


@pytest.mark.parametrize("command", ["compact", "retain"])
def test_a_command_that_leaves_out_topics_of_lost_metadata_claims_no_success(
    directory: Directory, command: str
) -> None:
    assert CliRunner().invoke(app, [command, str(directory.path), "--quiet"]).exit_code == 0
    change(directory.path / LOG, too_long)
    result = CliRunner().invoke(app, [command, str(directory.path), "--quiet"])
    assert result.exit_code == 1
    assert "error: orders-0: it is offline" in result.stderr


def with_a_strange_record(data: bytearray) -> None:
    """Its checksum is right, and it ends inside of a topic's name."""
    *_, last = scan(data)
    value = Record(value=b"\1\2\0\5ab", timestamp_ms=NOW_MS)
    data += record_batch.encode([value], base_offset=last.last_offset + 1, leader_epoch=last.leader_epoch)


def test_a_record_that_cannot_be_loaded_locks_no_client_out(directory: Directory) -> None:
    change(directory.path / LOG, with_a_strange_record)
    damaged = (directory.path / LOG).read_bytes()
    asked = f"duralog repair --dry-run {directory.path} --topic __cluster_metadata"
    with pytest.raises(CorruptRecord, match="the string name has an impossible length") as caught:
        directory.open()
    assert f"; run {asked}, bring the folder back from a backup" in str(caught.value)
    refused = CliRunner().invoke(app, ["repair", str(directory.path)])
    assert refused.exit_code == 1
    assert "to do that, choose --topic __cluster_metadata" in refused.stdout
    assert (directory.path / LOG).read_bytes() == damaged

    rehearsed = CliRunner().invoke(app, asked.split()[1:])
    assert (rehearsed.exit_code, (directory.path / LOG).read_bytes()) == (0, damaged)
    assert "no controller can load the record at offset" in rehearsed.stdout
    repaired = CliRunner().invoke(app, ["repair", str(directory.path), "--topic", "__cluster_metadata"])
    assert repaired.exit_code == 0
    assert CliRunner().invoke(app, ["verify", str(directory.path)]).exit_code == 0
    with directory.open() as store:
        assert store.topics() == ["orders", "others"]
        assert store.offline == {}
        store.create_topic("more", 1)
    assert any(file.read_bytes() in damaged for file in directory.path.rglob("duralog-quarantine/*.bytes"))


def test_a_metadata_batch_that_unpacks_to_nonsense_is_for_a_backup(directory: Directory) -> None:
    def nonsense(data: bytearray) -> None:
        *_, last = scan(data)
        data += odd_batch(b"garbage", attributes=1, base_offset=last.last_offset + 1)

    change(directory.path / LOG, nonsense)
    result = CliRunner().invoke(app, ["repair", str(directory.path), "--topic", "__cluster_metadata"])
    assert result.exit_code == 1
    assert "bring the folder back from a backup" in result.stdout
