"""The aborted transactions of a segment: kept in order, found by range, dropped from the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from duralog.errors import CorruptRecord, InvalidRecord, StorageError
from duralog.format.index_entries import AbortedTransaction, encode_transaction_index
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.segment.transaction_index import TransactionIndex

FS = LocalFileSystem()


def aborted(first: int, last: int, stable: int, producer: int = 7) -> AbortedTransaction:
    return AbortedTransaction(producer_id=producer, first_offset=first, last_offset=last, last_stable_offset=stable)


THREE = [aborted(10, 20, 15), aborted(15, 30, 25, producer=8), aborted(25, 40, 41)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000010.txnindex")


@pytest.fixture
def index(path: str) -> TransactionIndex:
    index = TransactionIndex(FS, path, 10)
    for transaction in THREE:
        index.append(transaction)
    return index


def test_the_file_comes_with_the_first_aborted_transaction(path: str) -> None:
    index = TransactionIndex(FS, path, 10)
    assert list(index.entries) == []
    index.truncate_to(0)
    index.reset()
    index.flush()
    assert not os.path.exists(path)
    index.append(THREE[0])
    index.flush()
    assert Path(path).read_bytes() == encode_transaction_index(THREE[:1])


def test_entries_are_read_back(path: str, index: TransactionIndex) -> None:
    assert Path(path).read_bytes() == encode_transaction_index(THREE)
    again = TransactionIndex(FS, path, 10)
    assert list(again.entries) == THREE
    again.append(aborted(45, 50, 51))
    assert Path(path).read_bytes() == encode_transaction_index([*THREE, aborted(45, 50, 51)])


@pytest.mark.parametrize(
    ("start", "end", "found", "is_complete"),
    [
        (10, 12, THREE[:1], True),
        (21, 25, THREE[1:2], True),
        (20, 26, THREE, True),
        (31, 41, THREE[2:], True),
        (31, 42, THREE[2:], False),
        (41, 99, [], False),
        (0, 10, [], True),
    ],
)
def test_what_a_range_overlaps(
    index: TransactionIndex, start: int, end: int, found: list[AbortedTransaction], is_complete: bool
) -> None:
    assert index.overlapping(start, end) == (found, is_complete)


def test_markers_must_rise_and_lie_in_the_segment(path: str, index: TransactionIndex) -> None:
    with pytest.raises(InvalidRecord, match="marker 40 after marker 40"):
        index.append(aborted(35, 40, 41))
    with pytest.raises(InvalidRecord, match="marker 9 after marker 9"):
        TransactionIndex(FS, path + "2", 10).append(aborted(5, 9, 10))
    assert Path(path).read_bytes() == encode_transaction_index(THREE)


@pytest.mark.parametrize(("offset", "kept"), [(41, 3), (40, 2), (21, 1), (20, 0), (0, 0)])
def test_truncation_drops_markers_at_the_offset_and_above(
    path: str, index: TransactionIndex, offset: int, kept: int
) -> None:
    index.truncate_to(offset)
    assert list(index.entries) == THREE[:kept]
    assert os.path.exists(path) == (kept > 0)
    index.append(aborted(50, 60, 61))
    assert Path(path).read_bytes() == encode_transaction_index([*THREE[:kept], aborted(50, 60, 61)])
    index.flush()


def test_half_an_entry_at_the_end_is_ignored_and_overwritten(path: str) -> None:
    Path(path).write_bytes(encode_transaction_index(THREE)[:-5])
    index = TransactionIndex(FS, path, 10)
    index.check()
    assert list(index.entries) == THREE[:2]
    index.append(THREE[2])
    assert Path(path).read_bytes() == encode_transaction_index(THREE)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (encode_transaction_index([THREE[1], THREE[0]]), "a transaction index rises"),
        (encode_transaction_index([aborted(1, 9, 10)]), "a transaction index rises"),
        (b"\x00\x01" + encode_transaction_index(THREE)[2:], "unknown version"),
    ],
)
def test_impossible_entries_are_refused_until_the_file_is_rewritten(path: str, data: bytes, told: str) -> None:
    Path(path).write_bytes(data)
    index = TransactionIndex(FS, path, 10)
    with pytest.raises(CorruptRecord, match=told) as caught:
        index.check()
    assert caught.value.file == path
    index.rewrite(THREE[:1])
    index.check()
    assert Path(path).read_bytes() == encode_transaction_index(THREE[:1])


def test_a_read_only_index_is_not_written(path: str, index: TransactionIndex) -> None:
    index.close()
    before = Path(path).read_bytes()
    reader = TransactionIndex(FS, path, 10, read_only=True)
    with pytest.raises(StorageError, match="opened for reading"):
        reader.append(aborted(50, 60, 61))
    with pytest.raises(StorageError, match="opened for reading"):
        reader.truncate_to(0)
    reader.reset()
    assert list(reader.entries) == []
    assert Path(path).read_bytes() == before
