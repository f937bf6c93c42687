"""What the names of files in a folder say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duralog.format.filenames import FileKind, FileState
from duralog.storage.disk.found_files import Content, identify, list_folder


@pytest.mark.parametrize(
    ("name", "content", "offset", "state"),
    [
        ("00000000000000000042.log", Content.LOG, 42, FileState.LIVE),
        ("00000000000000000042.index.swap", Content.OFFSET_INDEX, 42, FileState.SWAP),
        ("00000000000000000042.timeindex.cleaned", Content.TIME_INDEX, 42, FileState.CLEANED),
        ("00000000000000000042.txnindex.deleted", Content.TRANSACTION_INDEX, 42, FileState.DELETED),
        ("00000000000000000042.snapshot", Content.PRODUCER_SNAPSHOT, 42, FileState.LIVE),
        ("00000000000000000042-0000000003.checkpoint", Content.METADATA_SNAPSHOT, 42, FileState.LIVE),
        ("bootstrap.checkpoint", Content.METADATA_SNAPSHOT, None, FileState.LIVE),
        ("recovery-point-offset-checkpoint", Content.OFFSET_CHECKPOINT, None, FileState.LIVE),
        ("leader-epoch-checkpoint", Content.LEADER_EPOCHS, None, FileState.LIVE),
        ("partition.metadata", Content.PARTITION_METADATA, None, FileState.LIVE),
        ("meta.properties", Content.META_PROPERTIES, None, FileState.LIVE),
        ("quorum-state", Content.JSON_STATE, None, FileState.LIVE),
        ("saved.log", Content.LOG, None, FileState.LIVE),
        ("saved.index.deleted", Content.OFFSET_INDEX, None, FileState.DELETED),
        ("notes.txt", Content.OTHER, None, FileState.LIVE),
        ("notes.deleted", Content.OTHER, None, FileState.LIVE),
    ],
)
def test_identification_by_name(name: str, content: Content, offset: int | None, state: FileState) -> None:
    found = identify(f"/data/orders-3/{name}")
    assert (found.content, found.offset, found.state) == (content, offset, state)
    assert found.partition is not None
    assert (found.partition.topic, found.partition.partition) == ("orders", 3)


def test_the_other_files_of_a_segment() -> None:
    live = identify("orders-0/00000000000000000042.log")
    assert live.sibling(FileKind.OFFSET_INDEX) == "orders-0/00000000000000000042.index"
    swap = identify("orders-0/00000000000000000042.index.swap")
    assert swap.sibling(FileKind.LOG) == "orders-0/00000000000000000042.log.swap"


def test_the_order_of_a_log_directory(tmp_path: Path) -> None:
    names = [
        "meta.properties",
        "readme",
        "b-10/00000000000000000000.log",
        "b-2/00000000000000000100.index",
        "b-2/00000000000000000100.log",
        "b-2/00000000000000000000.timeindex",
        "b-2/00000000000000000000.log",
        "b-2/leader-epoch-checkpoint",
        "a-0/00000000000000000000.log",
        "a-0/deeper/00000000000000000000.log",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    refusals: list[OSError] = []
    listed = list_folder(str(tmp_path), on_refusal=refusals.append)
    assert not refusals
    assert [os.path.relpath(file.path, tmp_path) for file in listed] == [
        "meta.properties",
        "readme",
        "a-0/00000000000000000000.log",
        "b-2/leader-epoch-checkpoint",
        "b-2/00000000000000000000.log",
        "b-2/00000000000000000000.timeindex",
        "b-2/00000000000000000100.log",
        "b-2/00000000000000000100.index",
        "b-10/00000000000000000000.log",
    ]
