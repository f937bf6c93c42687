"""Producer state and leader epochs, rebuilt from the batches that Kafka wrote: exactly what Kafka's own files say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from duralog.columnar.pieces import Piece, read_pieces
from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT
from duralog.format.index_entries import AbortedTransaction, decode_transaction_index
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot
from duralog.storage.append.producer_snapshots import ProducerSnapshots
from duralog.storage.append.producer_state import ProducerState
from duralog.storage.disk.file_source import FileSource
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.leader_epochs import LeaderEpochs

PARTITIONS = (
    "store/txn-0",
    "store/trimmed-0",
    "store/plain-0",
    "store/appendtime-0",
    "store/recompress-0",
    "store/codecs-librdkafka-1",
    "store/codecs-librdkafka-3",
    "store/__transaction_state-0",
    "compaction/before/c-txn-0",
)
LARGE_PIECE, SMALL_PIECE = 4 << 20, 5_000


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def pieces_of(log: Path, piece_bytes: int = LARGE_PIECE) -> Iterator[tuple[FileSource, Piece]]:
    with FileSource(str(log)) as source:
        for piece in read_pieces(source, piece_bytes=piece_bytes):
            yield source, piece


def by_producer(entries: list[ProducerEntry] | tuple[ProducerEntry, ...]) -> list[ProducerEntry]:
    return sorted(entries, key=lambda entry: entry.producer_id)


def index_of(log: Path) -> list[AbortedTransaction]:
    path = log.with_suffix(".txnindex")
    return list(decode_transaction_index(path.read_bytes(), int(log.stem))) if path.exists() else []


@pytest.mark.parametrize("piece_bytes", [LARGE_PIECE, SMALL_PIECE])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_replaying_gives_kafkas_snapshots_and_transaction_indexes(
    golden: Path, partition: str, piece_bytes: int
) -> None:
    folder = golden / partition
    snapshots = {int(path.stem): path for path in folder.glob("*.snapshot")}
    compared = 0
    state = ProducerState()
    for log in logs_of(folder):
        if (path := snapshots.get(int(log.stem))) is not None:
            assert by_producer(state.entries()) == by_producer(decode_producer_snapshot(path.read_bytes()))
            compared += 1
        aborted: list[AbortedTransaction] = []
        for source, piece in pieces_of(log, piece_bytes):
            aborted += state.replay(piece.batches, source.read)
        assert aborted == index_of(log)
    if (path := snapshots.get(state.end_offset)) is not None:
        assert by_producer(state.entries()) == by_producer(decode_producer_snapshot(path.read_bytes()))
        compared += 1
    assert compared == len(snapshots) > 0


def test_the_last_stable_offset(golden: Path) -> None:
    """In the logs every transaction was ended; in all but the last segment of one, the last one is open."""
    for partition, segments, end_offset, last_stable_offset in (
        ("store/txn-0", None, 2480, 2480),
        ("compaction/before/c-txn-0", None, 9090, 9090),
        ("compaction/before/c-txn-0", -1, 6665, 6565),
    ):
        state = ProducerState()
        for log in logs_of(golden / partition)[:segments]:
            for source, piece in pieces_of(log):
                state.replay(piece.batches, source.read)
        assert state.end_offset == end_offset
        assert state.last_stable_offset(end_offset) == last_stable_offset


def test_a_snapshot_and_the_rest_of_the_log_give_the_same_state(golden: Path, tmp_path: Path) -> None:
    folder = golden / "store/txn-0"
    early, late = (int(path.stem) for path in sorted(folder.glob("*.snapshot")))
    copy = tmp_path / "txn-0"
    shutil.copytree(folder, copy)
    snapshots = ProducerSnapshots(LocalFileSystem(), str(copy))
    assert snapshots.offsets == (early, late)
    assert by_producer(snapshots.load(0, late, now_ms=0).entries()) == by_producer(
        decode_producer_snapshot((folder / f"{late:020}.snapshot").read_bytes())
    )
    snapshots.remove(late)
    state = snapshots.load(0, late, now_ms=0)
    assert state.end_offset == early
    for source, piece in pieces_of(logs_of(folder)[-1]):
        state.replay(piece.batches, source.read)
    assert snapshots.take(state, sync=True)
    written = (copy / f"{late:020}.snapshot").read_bytes()
    kafkas = (folder / f"{late:020}.snapshot").read_bytes()
    assert len(written) == len(kafkas)
    assert by_producer(decode_producer_snapshot(written)) == by_producer(decode_producer_snapshot(kafkas))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_batches_give_kafkas_leader_epochs(golden: Path, partition: str, tmp_path: Path) -> None:
    """Kafka also assigns an epoch when a leader is elected, so its file may name epochs that wrote nothing."""
    folder = golden / partition
    disk = LocalFileSystem()
    kafkas = LeaderEpochs.open(disk, str(folder / LEADER_EPOCH_CHECKPOINT))
    epochs = LeaderEpochs.open(disk, str(tmp_path / LEADER_EPOCH_CHECKPOINT))
    written: dict[int, int] = {}
    for log in logs_of(folder):
        for _, piece in pieces_of(log):
            epochs.observe(piece.batches)
            written |= zip(piece.batches["last_offset"].tolist(), piece.batches["leader_epoch"].tolist(), strict=True)
    log_start_offset = kafkas.entries[0].start_offset
    epochs.truncate_from_start(log_start_offset)
    for offset, epoch in written.items():
        if offset >= log_start_offset:
            assert epochs.epoch_for(offset) == kafkas.epoch_for(offset) == epoch
    assert set(epochs.entries) <= set(kafkas.entries)
