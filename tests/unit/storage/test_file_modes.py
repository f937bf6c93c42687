"""Permissions of the files of a directory: metadata for its owner only, logs by the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.errors import StorageError
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.disk.local_files import LocalFile
from duralog.storage.store import Store


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_the_metadata_is_private_and_logs_follow_the_umask(tmp_path: Path, umask: int) -> None:
    directory = tmp_path / "data"
    with duralog.open(directory, {}) as store:
        store.create_topic("orders", 1, {"retention.ms": "-1"})
        log = store.partition("orders", 0)
        log.append([Record(value=b"v")])
        log.roll()
    of_metadata = modes(directory / "__cluster_metadata-0")
    assert f"{0:020}.log" in of_metadata
    assert set(of_metadata.values()) == {0o600}
    of_log = modes(directory / "orders-0")
    assert {Path(name).suffix for name in of_log} >= {".log", ".index", ".timeindex", ".snapshot", ".metadata"}
    assert set(of_log.values()) == {0o666 & ~umask}


def test_what_is_taken_out_of_the_metadata_is_private_too(tmp_path: Path, umask: int) -> None:
    with duralog.open(tmp_path, {}) as store:
        store.create_topic("orders", 1)
    folder = tmp_path / "__cluster_metadata-0"
    path = folder / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + b"half a batch" * 20)
    (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with duralog.open(tmp_path, {}) as store:
        assert store.topics() == ["orders"]
    kept = modes(folder / "duralog-quarantine")
    assert {name.rsplit(".", 1)[1] for name in kept} == {"json", "bytes"}
    assert set(kept.values()) == {0o600}


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """It may be Kafka's, and its owner may have let others read it."""
    with duralog.open(tmp_path, {}) as store:
        store.create_topic("orders", 1)
    path = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    path.chmod(0o640)
    with duralog.open(tmp_path, {}) as store:
        store.create_topic("more", 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


class OfAnotherUser(LocalFileSystem):
    """What another user may read: not the metadata. (The user of a test may be root, who may read all.)"""

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> LocalFile:
        if stat.S_IMODE(os.stat(path).st_mode) & 0o004:
            return super().open(path, writable=writable, create=create)
        raise StorageError(f"{path}: cannot open: Permission denied")


def test_other_users_read_the_logs_without_the_metadata(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = os.umask(0o022)
    try:
        with duralog.open(tmp_path, {}) as store:
            store.create_topic("orders", 1)
            store.partition("orders", 0).append([Record(value=b"v")])
    finally:
        os.umask(before)
    with Store(str(tmp_path), read_only=True, file_system=OfAnotherUser()) as store:
        assert store.topics() == ["orders"]
        assert [record.value for record in store.partition("orders", 0).read(0)] == [b"v"]
    assert "the metadata cannot be read" in caplog.text
    assert "Permission denied" in caplog.text
