"""Transaction indexes that are missing, empty or too short: readers of committed records see exactly those."""

from __future__ import annotations

import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import duralog
from duralog.columnar.pieces import MemorySource, Piece, read_pieces
from duralog.command_line import app
from duralog.errors import StorageError
from duralog.format.record import Record
from duralog.scanning import far_markers, hidden_transactions
from duralog.storage.compaction.compact import compact_log
from duralog.storage.log.abort_markers import MustScan
from duralog.storage.log.isolation import Isolation, visible_rows
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView
from duralog.storage.store import Store
from tests.support.spark.planned_log import plan_all, read
from tests.support.storage.transaction_history import CONFIG, LOSSES, NOW_MS, lose_indexes, write_history

COMMITTED = "read_committed"
STEPS = 300


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    path = tmp_path_factory.mktemp("intact")
    with duralog.open(path, CONFIG) as store:
        store.create_topic("t", 1)
        values = write_history(store.partition("t", 0), seed=1, steps=STEPS)
    return path, values


@pytest.fixture(params=LOSSES)
def lost(request: pytest.FixtureRequest, intact: tuple[Path, list[bytes]], tmp_path: Path) -> tuple[Path, list[bytes]]:
    """The directory without what the indexes had, and what was committed."""
    path, values = intact
    shutil.copytree(path, tmp_path / "log")
    lose_indexes(tmp_path / "log" / "t-0", LOSSES[request.param])
    return tmp_path / "log", values


def opened(path: Path, *, read_only: bool = False) -> Store:
    return duralog.open(path, None if read_only else CONFIG, read_only=read_only)


def committed(log: PartitionLog, start_offset: int = 0) -> list[bytes]:
    return [record.value or b"" for record in log.read(start_offset, isolation=COMMITTED)]


def fetched(log: PartitionLog, max_bytes: int = 1000, start_offset: int = 0) -> list[bytes]:
    """What a client keeps that fetches slices and goes by their lists of aborted transactions."""
    values: list[bytes] = []
    offset = start_offset
    while offset < log.last_stable_offset:
        found = log.read_slice(offset, max_bytes, COMMITTED)
        (piece,) = read_pieces(MemorySource(found.read()), piece_bytes=1 << 20)
        aborted = found.aborted or ()
        rows = visible_rows(piece.batches, partial(tuple, aborted))
        for decoded in piece.decode(rows):
            columns = decoded.columns
            for at, position, length in zip(columns.offset, columns.value_position, columns.value_length, strict=True):
                if at >= offset:
                    values.append(np.asarray(decoded.data)[position : position + length].tobytes())
        offset = int(piece.batches["last_offset"][-1]) + 1
    return values


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("read_only", [False, True])
def test_the_store_hides_what_was_aborted(lost: tuple[Path, list[bytes]], read_only: bool) -> None:
    path, values = lost
    with opened(path, read_only=read_only) as store:
        log = store.partition("t", 0)
        assert committed(log) == values
        assert log.read_arrow(isolation=COMMITTED)["value"].to_pylist() == values
    with opened(path, read_only=read_only) as store:
        log = store.partition("t", 0)
        assert fetched(log) == values


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [False, True])
def test_any_range_by_itself(lost: tuple[Path, list[bytes]], intact: tuple[Path, list[bytes]], read_only: bool) -> None:
    """Also one that begins in the middle of a transaction, and ends before its marker."""
    with opened(intact[0], read_only=True) as store:
        log = store.partition("t", 0)
        end = log.last_stable_offset
        ranges = [(start, min(start + size, end)) for start in range(0, end, 37) for size in (1, 20, 300)]
        ranges.reverse()
        expected = [log.read_arrow(*one, isolation=COMMITTED)["offset"].to_pylist() for one in ranges]
        aborted = [_named(log, *one) for one in ranges]
    with opened(lost[0], read_only=read_only) as store:
        log = store.partition("t", 0)
        assert [log.read_arrow(*one, isolation=COMMITTED)["offset"].to_pylist() for one in ranges] == expected
        found = [_named(log, *one) for one in ranges]
        assert any(found)
        # An index has also transactions without records in the range, if only it begins before and ends after it.
        assert all(set(some) <= set(all_) for some, all_ in zip(found, aborted, strict=True))


def _named(log: PartitionLog, start: int, end: int) -> list[tuple[int, int]]:
    return [(found.producer_id, found.last_offset) for found in log.aborted_transactions(start, end)]


two_losses = pytest.mark.parametrize("lost", ["missing", "short"], indirect=True)


@two_losses
@pytest.mark.parametrize("slice_bytes", [2000, 1 << 20])
def test_slices_for_spark(lost: tuple[Path, list[bytes]], slice_bytes: int) -> None:
    path, values = lost
    with opened(path, read_only=True) as store:
        slices = plan_all(store, Isolation.READ_COMMITTED, max_slice_bytes=slice_bytes).slices
    assert read(slices)["value"].to_pylist() == values
    assert [value for found in slices for value in read([found])["value"].to_pylist()] == values


@two_losses
def test_slices_of_a_log_that_was_compacted_since(lost: tuple[Path, list[bytes]]) -> None:
    path, _ = lost
    with opened(path, read_only=True) as store:
        slices = plan_all(store, Isolation.READ_COMMITTED, max_slice_bytes=2000).slices
    with opened(path) as store:
        compact(store.partition("t", 0))
        values = committed(store.partition("t", 0))
    assert read(slices)["value"].to_pylist() == values


@pytest.fixture
def everything_is_far(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tasks share the search for all markers after what they read. Returns where these searches read the log."""
    monkeypatch.setattr(hidden_transactions, "NEAR_BYTES", 0)
    monkeypatch.setattr(far_markers, "_known", OrderedDict())
    scanned: list[int] = []
    scan = LogView.scanned_from

    def remember(view: LogView, offset: int, position: int = 0) -> Iterator[Piece]:
        for piece in scan(view, offset, position):
            scanned.append(int(piece.batches["base_offset"][0]))
            yield piece

    monkeypatch.setattr(LogView, "scanned_from", remember)
    return scanned


@two_losses
@pytest.mark.parametrize("order", [1, -1])
def test_transactions_that_end_far_after_a_slice(
    lost: tuple[Path, list[bytes]], everything_is_far: list[int], order: int
) -> None:
    path, values = lost
    with opened(path, read_only=True) as store:
        slices = plan_all(store, Isolation.READ_COMMITTED, max_slice_bytes=2000).slices
    found = [read([part])["value"].to_pylist() for part in slices[::order]]
    assert [value for part in found[::order] for value in part] == values
    assert everything_is_far


def test_tasks_of_a_process_share_the_search_for_a_far_end(
    tmp_path: Path, everything_is_far: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def append(log: PartitionLog, producer: int, sequence: int) -> None:
        records = [Record(value=b"%d" % producer * 100)] * 10
        log.append(records, producer_id=producer, producer_epoch=0, base_sequence=sequence * 10, is_transactional=True)

    with opened(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        for number in range(400):
            append(log, 1 + number % 2, number // 2)
            if number % 100 == 99:
                log.roll()
        log.end_transaction(1, 0, commit=False)
        log.end_transaction(2, 0, commit=True)
    (index,) = (tmp_path / "t-0").glob("*.txnindex")
    index.unlink()
    with opened(tmp_path, read_only=True) as store:
        slices = plan_all(store, Isolation.READ_COMMITTED, max_slice_bytes=5000).slices
    assert len(slices) > 50
    for part in slices:
        assert set(read([part])["value"].to_pylist()) <= {b"2" * 100}
    assert len(everything_is_far) == len(set(everything_is_far)) < 20
    assert sum("searching the rest of the log" in message for message in caplog.messages) == 1
    # Of files that were replaced since, nothing is known.
    everything_is_far.clear()
    log_file = tmp_path / "t-0" / f"{2000:020}.log"
    os.utime(log_file, (1, 1))
    assert set(read([slices[30]])["value"].to_pylist()) <= {b"2" * 100}
    assert len(everything_is_far) > 1


def test_readers_that_scan_at_once_lose_no_marker(tmp_path: Path, everything_is_far: list[int]) -> None:
    """Each has pieces of other sizes. One reader's piece overlaps what the other has added."""
    with opened(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        for number in range(1000):
            records = [Record(value=b"v" * 400)]
            log.append(records, producer_id=1, producer_epoch=0, base_sequence=number, is_transactional=True)
            log.end_transaction(1, 0, commit=False)
        markers = far_markers.FarMarkers(0)
        slow = markers.pieces_from(0, log.view)
        first = next(slow)
        added_by_slow = markers.next_offset
        # Another reader starts from here, with small pieces again. It adds a part of the slow reader's next piece.
        next(markers.pieces_from(added_by_slow, log.view))
        assert added_by_slow < markers.next_offset
        for _ in slow:
            pass
        assert everything_is_far[0] == first.batches["base_offset"][0]
        assert markers.next_offset == log.end_offset
        known = next(markers.pieces_from(0, log.view))
        assert known.batches["base_offset"].tolist() == list(range(1, 2000, 2))


def test_markers_of_a_log_that_was_truncated_are_not_used(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        log.append([Record(value=b"v")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        log.end_transaction(1, 0, commit=False)
        markers = far_markers.FarMarkers(0)
        assert list(markers.pieces_from(0, log.view))
        scanned = log.view
        log.append([Record(value=b"w")])
        assert markers.are_of(log.view)
        assert not markers.are_of(scanned._replace(end_position=scanned.end_position - 1))


def compact(log: PartitionLog) -> None:
    log.roll()
    end = log.view.segments.active.base_offset
    compact_log(log, first_dirty_offset=0, end=end, now_ms=NOW_MS)


def test_compaction_does_not_bring_aborted_records_back(
    lost: tuple[Path, list[bytes]], intact: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    shutil.copytree(intact[0], tmp_path / "intact")
    with opened(tmp_path / "intact") as store:
        compact(store.partition("t", 0))
        expected = [(record.offset, record.value) for record in store.partition("t", 0).read(0)]
    with opened(lost[0]) as store:
        compact(store.partition("t", 0))
        assert [(record.offset, record.value) for record in store.partition("t", 0).read(0)] == expected
    run("verify", lost[0])


def test_verify_finds_it_and_repair_builds_it_again(
    lost: tuple[Path, list[bytes]], intact: tuple[Path, list[bytes]]
) -> None:
    path, _ = lost
    assert "the transaction index lacks the aborted transaction" in run("verify", path, code=1)
    run("repair", path)
    run("verify", path)
    for index in (intact[0] / "t-0").glob("*.txnindex"):
        assert (path / "t-0" / index.name).read_bytes() == index.read_bytes()


@two_losses
def test_it_is_logged_once_for_each_index(lost: tuple[Path, list[bytes]], caplog: pytest.LogCaptureFixture) -> None:
    path, _ = lost
    with opened(path, read_only=True) as store, caplog.at_level(logging.WARNING):
        for _ in range(2):
            committed(store.partition("t", 0))
    told = [record.getMessage() for record in caplog.records if "aborted transaction" in record.getMessage()]
    assert len(told) == len({line.partition(" ")[0] for line in told}) > 1
    assert all(".txnindex: the aborted transaction of producer" in line for line in told)


def test_an_intact_index_is_not_complained_about(
    intact: tuple[Path, list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    path, values = intact
    for read_only in (True, False):
        with opened(path, read_only=read_only) as store:
            assert committed(store.partition("t", 0)) == fetched(store.partition("t", 0)) == values
    with opened(path, read_only=True) as store:
        slices = plan_all(store, Isolation.READ_COMMITTED, max_slice_bytes=2000).slices
    assert read(slices)["value"].to_pylist() == values
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("seed", range(2, 5))
def test_other_histories(tmp_path: Path, seed: int) -> None:
    with duralog.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        values = write_history(log, seed=seed, steps=150)
        assert committed(log) == values
    for path in (tmp_path / "t-0").glob("*.txnindex"):
        path.unlink()
    with opened(tmp_path) as store:
        log = store.partition("t", 0)
        assert fetched(log, 300) == values
        # What this process appends has its index from it.
        values += write_history(log, seed=seed, steps=50, first_producer=10)
        assert committed(log) == fetched(log, 300) == values
    with opened(tmp_path, read_only=True) as store:
        assert committed(store.partition("t", 0)) == values


# What it costs


class Scans:
    """Counts the bytes that are scanned for markers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from duralog.storage.log.view import LogView

        self.size_bytes = 0
        scanned_from = LogView.scanned_from

        def count(view: LogView, *arguments: int) -> Iterator[object]:
            for piece in scanned_from(view, *arguments):
                self.size_bytes += len(piece.data)
                yield piece

        monkeypatch.setattr(LogView, "scanned_from", count)


def test_nothing_is_scanned_for_plain_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", 1)
        for number in range(50):
            store.partition("t", 0).append([Record(value=b"%d" % number)])
    scans = Scans(monkeypatch)
    with opened(tmp_path, read_only=True) as store:
        assert len(committed(store.partition("t", 0))) == 50
    assert scans.size_bytes == 0


def test_nothing_is_scanned_that_this_process_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = Scans(monkeypatch)
    with opened(tmp_path) as store:
        store.create_topic("t", 1)
        log = store.partition("t", 0)
        values = write_history(log, seed=3, steps=100)
        assert committed(log) == fetched(log) == values
    assert scans.size_bytes == 0


def test_nothing_is_scanned_twice(intact: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    scans = Scans(monkeypatch)
    with opened(intact[0], read_only=True) as store:
        log = store.partition("t", 0)
        fetched(log)
        once = scans.size_bytes
        assert 0 < once <= 2 * log.size_bytes
        fetched(log)
        assert scans.size_bytes == once


def test_a_reader_that_cannot_wait_gets_an_error(intact: tuple[Path, list[bytes]]) -> None:
    from duralog.storage.log.reading import read_slice, scan_slice

    with opened(intact[0]) as store:
        view = store.partition("t", 0).view
        with pytest.raises(MustScan, match="were not scanned for abort markers yet"):
            read_slice(view, 0, 1000, Isolation.READ_COMMITTED, may_scan=False)
        assert read_slice(view, 0, 1000, Isolation.READ_UNCOMMITTED, may_scan=False).aborted is None
        scan_slice(view, 0, 1000, ahead_bytes=0)
        found = read_slice(view, 0, 1000, Isolation.READ_COMMITTED, may_scan=False)
        assert found == read_slice(view, 0, 1000, Isolation.READ_COMMITTED)


def test_a_file_that_cannot_be_read_is_an_error(
    intact: tuple[Path, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a reason to take the index at its word."""
    from duralog.storage.log.view import LogView

    def fail(*_: object) -> Iterator[object]:
        raise StorageError("the disk is broken")

    monkeypatch.setattr(LogView, "scanned_from", fail)
    with opened(intact[0], read_only=True) as store, pytest.raises(StorageError, match="the disk is broken"):
        fetched(store.partition("t", 0))
