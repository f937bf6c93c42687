"""More producer ids than honest clients have: how many are remembered, and that appends do not wait for snapshots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duralog.errors import StorageError
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot, encode_producer_snapshot
from duralog.format.record import Record
from duralog.format.varint import Bytes
from duralog.storage.append import producer_snapshots, producer_state
from duralog.storage.append.producer_batch import ProducerBatch
from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.append.producer_state import FrozenProducers, ProducerState
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.store import Store
from tests.support.storage.log_in_folder import LogInFolder, numbered

SECONDS = 60


def written(producer: int, offset: int, *, transactional: bool = False, time_ms: int = 1000) -> ProducerBatch:
    return ProducerBatch(producer, 0, 0, offset, offset, time_ms, transactional)


def ids(state: ProducerState) -> list[int]:
    return [entry.producer_id for entry in state.entries()]


def append(log: PartitionLog, producer: int, sequence: int = 0) -> None:
    log.append([Record(value=b"v")], producer_id=producer, producer_epoch=0, base_sequence=sequence)


class TestBound:
    def test_those_that_have_been_idle_for_longest_are_forgotten(self) -> None:
        state = ProducerState(most_producers=40)
        for offset in range(40):
            state.update([written(offset, offset)], offset + 1)
        state.update([ProducerBatch(0, 0, 1, 40, 40, 1000, False)], 41)
        assert (len(state), state.evicted) == (40, 0)
        state.update([written(99, 41)], 42)
        # One of twenty at once, and the surplus.
        assert state.evicted == 3
        assert ids(state) == [*range(4, 40), 0, 99]
        assert state.check(written(3, 50)) is None

    def test_times_of_records_do_not_matter(self) -> None:
        """They are the client's: one that dates its records to the future must not push out the others."""
        state = ProducerState(most_producers=3)
        for producer, time_ms in ((1, 10**15), (2, 5), (3, 5), (4, 5)):
            state.update([written(producer, producer, time_ms=time_ms)], producer + 1)
        assert ids(state) == [2, 3, 4]

    def test_open_transactions_are_kept_and_do_not_count(self) -> None:
        state = ProducerState(most_producers=3)
        for offset in range(5):
            state.update([written(offset, offset, transactional=True)], offset + 1)
        for offset in range(5, 9):
            state.update([written(offset, offset)], offset + 1)
        assert ids(state) == [0, 1, 2, 3, 4, 6, 7, 8]
        assert state.first_unstable_offset == 0

    def test_the_file_of_a_snapshot_may_have_more(self) -> None:
        """Kafka has no such bound, and its snapshots are in no order."""
        entries = [
            ProducerEntry(
                producer_id=number,
                producer_epoch=0,
                last_sequence=0,
                last_offset=(number * 7) % 50 if number else -1,
                offset_delta=0,
                timestamp_ms=0,
                coordinator_epoch=-1,
                transaction_first_offset=-1,
            )
            for number in range(50)
        ]
        data = encode_producer_snapshot(entries)
        state = ProducerState.from_snapshot(data, 50, now_ms=0, most_producers=20)
        kept = sorted(entries[1:], key=lambda entry: entry.last_offset)[-18:]
        assert ids(state) == [*(entry.producer_id for entry in kept), 0]

    def test_a_log_says_that_it_forgets(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        log = LogInFolder(tmp_path).open()
        log._writer.producers.most_producers = 20
        with caplog.at_level(logging.WARNING):
            for producer in range(22):
                append(log, producer)
        assert [record.getMessage() for record in caplog.records] == [
            f"{tmp_path}: evicted the 2 producer ids that have been idle for longest: a partition remembers at most 20"
        ]
        assert len(log.producers()) == 20
        log.close()

    def test_expiry_spares_who_writes_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Which of them have expired is found out while appends go on."""
        folder = LogInFolder(tmp_path)
        log = folder.open()
        append(log, 1)
        append(log, 2)
        folder.now_ms += 10**9
        find = FrozenProducers.expired

        def find_while_one_writes(self: FrozenProducers, now_ms: int, expiration_ms: int) -> Any:
            append(log, 2, 1)
            return find(self, now_ms, expiration_ms)

        monkeypatch.setattr(FrozenProducers, "expired", find_while_one_writes)
        assert log.expire_producers() == 1
        assert [entry.producer_id for entry in log.producers()] == [2]
        log.close()


class Watched(LocalFileSystem):
    """Notes on which threads snapshots are written, and lets a test hold one up."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []
        self.begun = threading.Event()
        self.before_write: Callable[[], object] = lambda: None

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        if path.endswith(".snapshot"):
            self.threads.append(threading.current_thread())
            self.begun.set()
            self.before_write()
        super().write(path, data, sync=sync)


class TestSnapshotsOfRolls:
    def test_they_are_made_and_written_on_a_thread_of_the_store_while_appends_go_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        encoded_by: list[threading.Thread] = []
        encode = FrozenProducers.snapshot

        def encode_and_tell(self: FrozenProducers) -> bytes:
            encoded_by.append(threading.current_thread())
            return encode(self)

        monkeypatch.setattr(FrozenProducers, "snapshot", encode_and_tell)
        files = Watched()
        go_on = threading.Event()
        with Store(str(tmp_path), file_system=files) as store:
            store.create_topic("orders", 1)
            log = store.partition("orders", 0)
            for producer in range(100):
                append(log, producer)
            files.threads.clear()
            encoded_by.clear()
            files.begun.clear()
            files.before_write = lambda: go_on.wait(SECONDS)
            log.roll()
            assert files.begun.wait(SECONDS)
            # The snapshot is being written: nothing here waits for that.
            append(log, 7, 1)
            log.roll()
            assert log.end_offset == 101
            go_on.set()
        me = threading.current_thread()
        assert encoded_by
        assert files.threads
        assert encoded_by[0] is files.threads[0] is not me
        assert files.threads[0].name.startswith("duralog")
        folder = tmp_path / "orders-0"
        sizes = {path.name: len(decode_producer_snapshot(path.read_bytes())) for path in folder.glob("*.snapshot")}
        assert sizes == {f"{100:020}.snapshot": 100, f"{101:020}.snapshot": 100}

    def test_a_snapshot_holds_what_was_true_at_the_roll(self, tmp_path: Path) -> None:
        folder = LogInFolder(tmp_path)
        log = folder.open()
        append(log, 1)
        log.roll()
        append(log, 2)
        append(log, 1, 1)
        folder.catch_up()
        (entry,) = decode_producer_snapshot((tmp_path / f"{1:020}.snapshot").read_bytes())
        assert (entry.producer_id, entry.last_sequence) == (1, 0)
        log.close()

    def test_one_whose_segment_is_deleted_before_is_not_written(self, tmp_path: Path) -> None:
        folder = LogInFolder(tmp_path)
        log = folder.open()
        for producer in (1, 2, 3):
            append(log, producer)
            log.roll()
        log.delete_segments([0, 1], "too old")
        folder.catch_up()
        assert [name for name in folder.names if "snapshot" in name] == [f"{2:020}.snapshot", f"{3:020}.snapshot"]
        log.close()

    def test_one_whose_segment_is_deleted_while_it_is_written_goes(self, tmp_path: Path) -> None:
        files = Watched()
        folder = LogInFolder(tmp_path, files=files)
        log = folder.open()
        append(log, 1)
        log.roll()
        append(log, 2)
        log.roll()
        files.before_write = lambda: log.delete_segments([0, 1], "too old") if len(files.threads) == 1 else None
        files.threads.clear()
        folder.catch_up()
        assert [name for name in folder.names if "snapshot" in name] == [f"{2:020}.snapshot"]
        log.close()

    def test_a_log_that_is_cut_does_not_keep_it(self, tmp_path: Path) -> None:
        folder = LogInFolder(tmp_path)
        log = folder.open()
        for producer in (1, 2, 3):
            append(log, producer)
            log.roll()
        log.truncate_to(2)
        folder.catch_up()
        assert [name for name in folder.names if "snapshot" in name] == [f"{1:020}.snapshot", f"{2:020}.snapshot"]
        assert [entry.producer_id for entry in log.producers()] == [1, 2]
        log.close()

    def test_closing_writes_what_is_left(self, tmp_path: Path) -> None:
        folder = LogInFolder(tmp_path)
        log = folder.open()
        append(log, 1)
        log.roll()
        log.close()
        assert f"{1:020}.snapshot" in folder.names
        again = folder.open()
        assert [entry.producer_id for entry in again.producers()] == [1]
        again.close()

    def test_an_append_that_fails_finds_the_producers_of_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = LogInFolder(tmp_path)
        log = folder.open()
        append(log, 1)
        log.roll()

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as failing:
            failing.setattr(ProducerState, "update", fail)
            with pytest.raises(ZeroDivisionError):
                append(log, 2)
        assert [entry.producer_id for entry in log.producers()] == [1]
        log.close()

    def test_a_disk_that_fails_costs_the_snapshot_and_nothing_else(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        files = Watched()
        folder = LogInFolder(tmp_path, files=files)
        log = folder.open()
        log.append(numbered(0, 3))
        log.roll()

        def fail() -> None:
            (tmp_path / f"{3:020}.snapshot").write_bytes(b"part")
            raise StorageError("no room")

        files.before_write = fail
        folder.catch_up()
        files.before_write = lambda: None
        assert "no room" in caplog.text
        assert log.recovery_point == 3
        assert [name for name in folder.names if "snapshot" in name] == [], "verify would find it damaged"
        log.append(numbered(3, 4))
        log.close()
        assert [name for name in folder.names if "snapshot" in name] == [f"{4:020}.snapshot"]

    def test_where_rolls_come_faster_than_snapshots_are_written_the_oldest_are_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(producer_snapshots, "_MOST_PLANNED_PRODUCERS", 25)
        state = ProducerState()
        state.update([written(number, number) for number in range(10)], 10)
        snapshots = ProducerSnapshots(LocalFileSystem(), str(tmp_path))
        for end_offset in (10, 11, 12, 13):
            state.update((), end_offset)
            snapshots.plan(state, log_start_offset=0)
        assert snapshots.write_planned()
        assert snapshots.offsets == (12, 13)
        assert not snapshots.write_planned()


def test_the_bound_is_above_honest_use() -> None:
    assert producer_state.MOST_PRODUCERS > 2 * 24 * 60 * 60
