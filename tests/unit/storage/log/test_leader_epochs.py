"""Leader epochs: which entries an assignment leaves, what they answer, and when the file is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from duralog.errors import CorruptRecord, StorageError
from duralog.format.checkpoints import EpochStart
from duralog.format.varint import Bytes
from duralog.kernels.columns import BATCH_DTYPE
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.leader_epochs import LeaderEpochs


class CountingFileSystem(LocalFileSystem):
    """Counts the files that are replaced, and can refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced = 0
        self.is_full = False

    def replace(self, path: str, data: Bytes) -> None:
        if self.is_full:
            raise StorageError(f"{path}: no space left")
        self.replaced += 1
        super().replace(path, data)


@pytest.fixture
def disk() -> CountingFileSystem:
    return CountingFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "leader-epoch-checkpoint")


@pytest.fixture
def epochs(disk: CountingFileSystem, path: str) -> LeaderEpochs:
    """Epoch 2 from offset 10 on, 4 from 20, 5 from 25."""
    made = LeaderEpochs.open(disk, path)
    for epoch, start_offset in ((2, 10), (4, 20), (5, 25)):
        made.assign(epoch, start_offset)
    return made


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def test_a_new_partition_has_an_empty_file(disk: CountingFileSystem, path: str) -> None:
    epochs = LeaderEpochs.open(disk, path)
    assert epochs.latest_epoch == -1
    assert not Path(path).exists()
    epochs.create_file()
    assert Path(path).read_bytes() == b""
    epochs.assign(0, 0)
    epochs.create_file()
    assert Path(path).read_text() == "0\n1\n0 0\n"


def test_entries_are_written_and_found_again(disk: CountingFileSystem, path: str, epochs: LeaderEpochs) -> None:
    assert Path(path).read_text() == "0\n3\n2 10\n4 20\n5 25\n"
    assert pairs(LeaderEpochs.open(disk, path)) == [(2, 10), (4, 20), (5, 25)]
    assert epochs.latest_epoch == 5


@pytest.mark.parametrize(
    ("epoch", "start_offset", "left"),
    [
        (5, 25, [(2, 10), (4, 20), (5, 25)]),
        (5, 99, [(2, 10), (4, 20), (5, 25)]),
        (6, 30, [(2, 10), (4, 20), (5, 25), (6, 30)]),
        (6, 25, [(2, 10), (4, 20), (6, 25)]),
        (6, 15, [(2, 10), (6, 15)]),
        (5, 22, [(2, 10), (4, 20), (5, 22)]),
        (3, 40, [(2, 10), (3, 40)]),
        (3, 15, [(2, 10), (3, 15)]),
        (1, 5, [(1, 5)]),
        (0, 0, [(0, 0)]),
    ],
)
def test_an_assignment_drops_what_contradicts_it(
    epochs: LeaderEpochs, disk: CountingFileSystem, epoch: int, start_offset: int, left: list[tuple[int, int]]
) -> None:
    before = disk.replaced
    epochs.assign(epoch, start_offset)
    assert pairs(epochs) == left
    assert disk.replaced - before == (left != [(2, 10), (4, 20), (5, 25)])


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_values_are_refused(epochs: LeaderEpochs, epoch: int, start_offset: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        epochs.assign(epoch, start_offset)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 25)),
        (5, (5, 77)),
        (6, (-1, -1)),
    ],
)
def test_where_an_epoch_ended(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset_for(asked, log_end_offset=77) == EpochStart(*answer)


def test_no_epochs_know_no_end(disk: CountingFileSystem, path: str) -> None:
    assert LeaderEpochs.open(disk, path).end_offset_for(0, 5) == EpochStart(-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 4), (24, 4), (25, 5), (10**9, 5)])
def test_which_epoch_wrote_an_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_for(offset) == epoch


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (0, [(2, 10), (4, 20), (5, 25)]),
        (10, [(2, 10), (4, 20), (5, 25)]),
        (15, [(2, 15), (4, 20), (5, 25)]),
        (20, [(4, 20), (5, 25)]),
        (24, [(4, 24), (5, 25)]),
        (90, [(5, 90)]),
    ],
)
def test_cutting_the_start(
    epochs: LeaderEpochs, disk: CountingFileSystem, start_offset: int, left: list[tuple[int, int]]
) -> None:
    before = disk.replaced
    epochs.truncate_from_start(start_offset)
    assert pairs(epochs) == left
    assert disk.replaced - before == (left != [(2, 10), (4, 20), (5, 25)])


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(99, 3), (26, 3), (25, 2), (21, 2), (20, 1), (11, 1), (10, 0), (0, 0)],
)
def test_cutting_the_end(epochs: LeaderEpochs, disk: CountingFileSystem, end_offset: int, left: int) -> None:
    before = disk.replaced
    epochs.truncate_from_end(end_offset)
    assert pairs(epochs) == [(2, 10), (4, 20), (5, 25)][:left]
    assert disk.replaced - before == (left < 3)


def test_clearing(epochs: LeaderEpochs, path: str) -> None:
    epochs.clear()
    assert epochs.entries == ()
    assert Path(path).read_text() == "0\n0\n"


def rows_of(*batches: tuple[int, int]) -> np.ndarray:
    rows = np.zeros(len(batches), BATCH_DTYPE)
    rows["leader_epoch"] = [epoch for epoch, _ in batches]
    rows["base_offset"] = [offset for _, offset in batches]
    return rows


def test_epochs_are_rebuilt_from_batches(disk: CountingFileSystem, path: str) -> None:
    epochs = LeaderEpochs.open(disk, path)
    epochs.observe(rows_of((-1, 3), (0, 5), (0, 8), (3, 9), (2, 11), (3, 12), (4, 14), (4, 20)))
    assert pairs(epochs) == [(0, 5), (3, 9), (4, 14)]
    assert disk.replaced == 1


def test_known_batches_change_nothing(epochs: LeaderEpochs, disk: CountingFileSystem) -> None:
    before = disk.replaced
    epochs.observe(rows_of((2, 10), (4, 20), (5, 25), (5, 30), (-1, 40)))
    epochs.observe(rows_of())
    assert disk.replaced == before
    epochs.observe(rows_of((5, 50), (7, 60)))
    assert pairs(epochs)[-2:] == [(5, 25), (7, 60)]


def test_a_refused_write_leaves_the_old_entries(epochs: LeaderEpochs, disk: CountingFileSystem) -> None:
    disk.is_full = True
    with pytest.raises(StorageError):
        epochs.assign(9, 99)
    assert epochs.latest_epoch == 5


@pytest.mark.parametrize("text", ["0\n2\n3 5\n", "junk", "0\n2\n3 5\n2 9\n", "0\n2\n3 5\n4 5\n", "0\n1\n-1 5\n"])
def test_a_damaged_file_is_named(disk: CountingFileSystem, path: str, text: str) -> None:
    Path(path).write_text(text)
    with pytest.raises(CorruptRecord) as caught:
        LeaderEpochs.open(disk, path)
    assert caught.value.file == path
    assert Path(path).read_text() == text
