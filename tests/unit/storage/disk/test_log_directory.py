"""The files of a directory that belong to no partition: lock, owner, marker, checkpoints, and the list of folders."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from duralog.errors import CorruptRecord, StoreLocked
from duralog.format.properties import decode_meta_properties
from duralog.format.topic_partition import TopicPartition
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.log_directory import LogDirectory

NOW_MS = 1_794_726_070_000
CHECKPOINT = "recovery-point-offset-checkpoint"
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory(LocalFileSystem(), str(tmp_path))


def test_a_directory_is_locked_once(tmp_path: Path) -> None:
    first = LogDirectory(LocalFileSystem(), str(tmp_path / "new" / "data"))
    lock = first.lock()
    with pytest.raises(StoreLocked):
        LogDirectory(LocalFileSystem(), str(tmp_path / "new" / "data")).lock()
    lock.release()
    first.lock().release()


def test_folders_are_distinguished(directory: LogDirectory, tmp_path: Path) -> None:
    unique = "0123456789abcdef" * 2
    for name in (
        "orders-10",
        "orders-2",
        "a-b-0",
        f"old-1.{unique}-delete",
        f"moved-1.{unique}-future",
        f"lost-1.{unique}-stray",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "notes",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").touch()
    folders = directory.folders()
    assert list(folders.live) == [("a-b", 0), ("orders", 2), ("orders", 10)]
    assert [folder.topic for folder in folders.deleted] == ["old"]
    assert directory.folder_of(folders.live[0]) == str(tmp_path / "a-b-0")


def test_a_new_owner_is_written_as_kafka_does(directory: LogDirectory, tmp_path: Path) -> None:
    assert directory.read_meta() is None
    meta = directory.write_meta(None, None, NOW_MS)
    assert directory.read_meta() == meta
    assert (meta.version, meta.node_id) == (1, 1)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert lines == [
        "#",
        "#Sun Nov 15 07:01:10 UTC 2026",
        f"cluster.id={meta.cluster_id}",
        f"directory.id={meta.directory_id}",
        "node.id=1",
        "version=1",
    ]
    assert len({meta.cluster_id, meta.directory_id}) == 2
    assert decode_meta_properties((tmp_path / "meta.properties").read_bytes()) == meta


def test_a_damaged_owner_is_an_error_that_names_the_file(directory: LogDirectory, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=7\n")
    with pytest.raises(CorruptRecord, match=r"meta\.properties.*wrong version"):
        directory.read_meta()


def test_the_marker_is_taken_and_put_back_with_the_epoch_it_had(directory: LogDirectory, tmp_path: Path) -> None:
    marker = tmp_path / MARKER
    assert not directory.take_clean_shutdown()
    marker.write_bytes(b'{"version":0,"brokerEpoch":14}')
    assert directory.take_clean_shutdown()
    assert not marker.exists()
    directory.put_clean_shutdown()
    assert marker.read_bytes() == b'{"version":0,"brokerEpoch":14}'


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b'{"brokerEpoch":"x"}'])
def test_the_marker_counts_whatever_it_holds(directory: LogDirectory, tmp_path: Path, content: bytes) -> None:
    (tmp_path / MARKER).write_bytes(content)
    assert directory.take_clean_shutdown()
    directory.put_clean_shutdown()
    assert (tmp_path / MARKER).read_bytes() == b'{"version":0,"brokerEpoch":-1}'


def test_checkpoints_are_read_and_written(directory: LogDirectory, tmp_path: Path) -> None:
    assert directory.read_checkpoint(CHECKPOINT) == {}
    offsets = {TopicPartition("orders", 10): 5, TopicPartition("orders", 2): 7, TopicPartition("a-b", 0): 0}
    directory.write_checkpoint(CHECKPOINT, lambda: offsets)
    assert (tmp_path / CHECKPOINT).read_text() == "0\n3\na-b 0 0\norders 2 7\norders 10 5\n"
    assert LogDirectory(LocalFileSystem(), str(tmp_path)).read_checkpoint(CHECKPOINT) == offsets


def test_a_checkpoint_that_would_say_the_same_is_left_alone(directory: LogDirectory, tmp_path: Path) -> None:
    """Kafka's order of entries is another one, and means nothing."""
    (tmp_path / CHECKPOINT).write_text("0\n2\norders 1 7\norders 0 5\n")
    offsets = dict(directory.read_checkpoint(CHECKPOINT))
    directory.write_checkpoint(CHECKPOINT, lambda: offsets)
    assert (tmp_path / CHECKPOINT).read_text() == "0\n2\norders 1 7\norders 0 5\n"
    offsets[TopicPartition("orders", 0)] = 6
    directory.write_checkpoint(CHECKPOINT, lambda: offsets)
    assert (tmp_path / CHECKPOINT).read_text() == "0\n2\norders 0 6\norders 1 7\n"


def test_a_damaged_checkpoint_counts_as_missing_and_is_logged(
    directory: LogDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / CHECKPOINT).write_text("0\n2\norders 1 7\n")
    with caplog.at_level(logging.WARNING, "duralog"):
        assert directory.read_checkpoint(CHECKPOINT) == {}
    assert CHECKPOINT in caplog.text
    directory.write_checkpoint(CHECKPOINT, dict)
    assert (tmp_path / CHECKPOINT).read_text() == "0\n0\n"
