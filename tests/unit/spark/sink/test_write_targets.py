"""What a write finds out about its topics before its tasks start."""

from __future__ import annotations

from pathlib import Path

from duralog.spark.sink.write_options import WriteOptions
from duralog.spark.sink.write_targets import store_targets
from duralog.storage.disk.file_system import Entry, LocalFileSystem
from duralog.storage.store import Store

PARTITIONS = 50


class CountedFiles(LocalFileSystem):
    """Counts the entries of listings, and the files that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0
        self.opened: list[str] = []

    def list(self, folder: str) -> list[Entry]:
        entries = super().list(folder)
        self.listed += len(entries)
        return entries

    def open(self, path, *, writable=False, create=False):
        self.opened.append(path)
        return super().open(path, writable=writable, create=create)


def test_the_directory_is_listed_once_and_no_partition_is_opened(tmp_path: Path) -> None:
    """A directory may have thousands of partitions, and the write a few rows."""
    with Store(str(tmp_path)) as store:
        store.create_topic("t", PARTITIONS, {"cleanup.policy": "compact"})
        store.create_topic("other", PARTITIONS)
    files = CountedFiles()
    targets = store_targets(WriteOptions.of({"path": str(tmp_path), "topic": "t"}, streaming=False), files)
    assert targets.of("t").partitions == PARTITIONS
    assert "compact" in targets.of("t").config.cleanup_policy
    assert 2 * PARTITIONS <= files.listed < 3 * PARTITIONS
    assert not [path for path in files.opened if "/t-" in path or "/other-" in path]
