"""Power is lost or the process dies at every change of a whole heal: folders, checkpoints and markers, of all nodes.

What is found afterwards can be opened at once, and shows no record at the wrong place. The next heal ends with the same
logs. Checkpoints may then say less than after a heal that was not stopped, and never more.

`--randomised 20` tries twenty times as many fates.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import duralog
from duralog import Record
from duralog.errors import CorruptRecord, DuralogError
from duralog.format.checkpoints import PartitionOffset, decode_offset_checkpoint, encode_offset_checkpoint
from duralog.format.filenames import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from duralog.format.properties import encode_partition_metadata
from duralog.format.uuids import random_uuid
from duralog.operations.cluster.heal import HealReport, HealRequest, heal_cluster
from duralog.operations.opened_store import immediate_tasks
from duralog.operations.workers import Threads
from duralog.scanning.cluster.cluster import Cluster
from duralog.storage.metadata.cluster_metadata import PartitionRegistration
from duralog.storage.store import Store
from tests.support.cluster.made import TOPIC, cut, flip, logs, three_nodes
from tests.support.cluster.recorded import scanned
from tests.support.faults.crashing_files import CrashingFiles, PowerLost

FOLDER = f"{TOPIC}-0"
END = 27
SERVED = 24
"""The high watermark."""
CHECKPOINTS = (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
SAMPLED = 0.2
"""Of the changes, without `--randomised`."""
Entries = Mapping[str, int]


def write_checkpoint(node: Path, name: str, offset: int) -> None:
    """The partition, and another one that nothing may change."""
    entries = [PartitionOffset(TOPIC, 0, offset), PartitionOffset("other", 7, 77)]
    (node / name).write_bytes(encode_offset_checkpoint(entries))


def _flip_and_lose(nodes: list[Path]) -> None:
    flip(logs(nodes[2])[0], 100)
    logs(nodes[2])[1].unlink()
    cut(logs(nodes[0])[2], 200)


def _diverge(nodes: list[Path]) -> None:
    node = nodes[2]
    write_checkpoint(node, RECOVERY_POINT_CHECKPOINT, END)
    with duralog.open(node) as store:
        log = store.partition(TOPIC, 0)
        log.truncate_to(18)
        log.become_leader(1)
        for number in range(9):
            log.append([Record(key=b"foreign", value=b"%d" % number)])
            if number % 4 == 3:
                log.roll()
    # More than what the log has served: the copy was a leader, and had an ISR of its own.
    write_checkpoint(node, HIGH_WATERMARK_CHECKPOINT, END)


def _other_topic(nodes: list[Path]) -> None:
    node = nodes[2]
    shutil.rmtree(node / FOLDER)
    with duralog.open(nodes[0].parent / "other") as store:
        store.create_topic(TOPIC, partitions=1)
        log = store.partition(TOPIC, 0)
        # The topic with the newest record is the one that counts.
        log.append([Record(key=b"foreign", value=b"%d" % number, timestamp_ms=1) for number in range(40)])
    shutil.copytree(nodes[0].parent / "other" / FOLDER, node / FOLDER)
    (node / FOLDER / "partition.metadata").write_bytes(encode_partition_metadata(random_uuid()))
    for name, offset in zip(CHECKPOINTS, (18, 26, 15, 40), strict=True):
        write_checkpoint(node, name, offset)


def _no_folder(nodes: list[Path]) -> None:
    """The log starts within a batch. The checkpoints still have what the folder was once."""
    shutil.rmtree(nodes[2] / FOLDER)
    for node in nodes:
        write_checkpoint(node, LOG_START_OFFSET_CHECKPOINT, 4)
        epochs = node / FOLDER / "leader-epoch-checkpoint"
        if epochs.exists():
            epochs.write_text(epochs.read_text().replace("0 0\n", "0 4\n"))
    for name, offset in zip(CHECKPOINTS, (18, 26, 21, 40), strict=True):
        write_checkpoint(nodes[2], name, offset)


DAMAGES: dict[str, Callable[[list[Path]], None]] = {
    "damage and loss": _flip_and_lose,
    "another history": _diverge,
    "another topic": _other_topic,
    "no folder": _no_folder,
}


@dataclass
class Healing:
    nodes: list[Path]
    records: list[tuple[int, bytes, bytes]]
    """What consumers were served."""
    start_offset: int
    healed: CrashingFiles
    """The disk after a heal that was not stopped."""
    patch: pytest.MonkeyPatch

    def disk(self) -> CrashingFiles:
        files = CrashingFiles()
        for node in self.nodes:
            for path in sorted(node.rglob("*")):
                if path.is_dir():
                    files.make_folder(str(path))
                else:
                    files.make_folder(str(path.parent))
                    files.write(str(path), path.read_bytes(), sync=True)
            for folder in (node, *filter(Path.is_dir, node.rglob("*")), *node.parents):
                files.sync_folder(str(folder))
        return files

    def run(self, files: CrashingFiles) -> HealReport:
        for module in ("operations.cluster.locked_directories", "operations.cluster.heal_tasks", "scanning.locations"):
            self.patch.setattr(f"duralog.{module}.LocalFileSystem", lambda: files)
        request = HealRequest(paths=[str(node) for node in self.nodes], truncate_acknowledged=True)
        return heal_cluster(request, Threads(1))

    def check(self, crash: CrashingFiles) -> None:
        for node in self.nodes:
            self.check_marker(crash, node)
            self.check_open(crash.after_kill(), node)
        report = self.run(crash)
        assert report.is_well
        assert not self.run(crash).healed
        for node in self.nodes:
            assert logs_on(crash, node) == logs_on(self.healed, node)
            for name in CHECKPOINTS:
                found, expected = entries_on(crash, node, name), entries_on(self.healed, node, name)
                assert found.get("other") == expected.get("other")
                if name == LOG_START_OFFSET_CHECKPOINT:
                    assert found.get(TOPIC, 0) == expected.get(TOPIC, 0)
                else:
                    assert found.get(TOPIC, 0) <= expected.get(TOPIC, 0), name
        assert foreign_on(crash, self.nodes) == foreign_on(self.healed, self.nodes)

    def check_marker(self, crash: CrashingFiles, node: Path) -> None:
        """A directory counts as closed cleanly only before its first change, and after the last."""
        if crash.exists(f"{node}/{CLEAN_SHUTDOWN}"):
            found = logs_on(crash, node)
            assert found == logs_on(self.disk(), node) or found == logs_on(self.healed, node)

    def check_open(self, crash: CrashingFiles, node: Path) -> None:
        """As a broker would that starts now, without another heal."""
        if not logs_on(crash, node):
            return
        served = {record[0]: record for record in self.records}
        try:
            store = Store(str(node), file_system=crash, scheduler=immediate_tasks())
        except DuralogError as error:
            raise AssertionError(f"{node} cannot be opened") from error
        with store:
            log = store.partition(TOPIC, 0)
            found: list[tuple[int, bytes | None, bytes | None]] = []
            with suppress(CorruptRecord):  # It is still damaged.
                found += ((record.offset, record.key, record.value) for record in log.read(log.start_offset))
            if all(key != b"foreign" for _, key, _ in found):
                assert log.start_offset >= self.start_offset
                assert all(record == served[record[0]] for record in found)
                # What is at its place in the files is shown.
                first = min(int(Path(path).stem) for path in logs_on(crash, node) if path.endswith(".log"))
                assert log.start_offset == max(first, self.start_offset)


def logs_on(files: CrashingFiles, node: Path) -> dict[str, bytes]:
    found = files.contents(str(node / FOLDER)) if files.exists(str(node / FOLDER)) else {}
    return {
        path: data
        for path, data in found.items()
        if "quarantine" not in path and (path.endswith(".log") or "epoch" in path) and not path.endswith(".tmp")
    }


def entries_on(files: CrashingFiles, node: Path, name: str) -> dict[str, int]:
    path = f"{node}/{name}"
    found = decode_offset_checkpoint(files.read_all(path)) if files.exists(path) else []
    return {entry.topic: entry.offset for entry in found}


def foreign_on(files: CrashingFiles, nodes: list[Path]) -> set[bytes]:
    """Records that are not of the log: in quarantine, or in a folder that was set aside."""
    found: set[bytes] = set()
    for path, data in files.contents(str(nodes[2])).items():
        if "quarantine" in path or "stray" in path:
            found |= set(re.findall(rb"foreign[\x02\x04](\d+)", data))
    return found


@pytest.fixture(params=DAMAGES)
def healing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Healing:
    nodes = three_nodes(tmp_path, segments=3, batches=3)
    records = scanned(str(nodes[0]), TOPIC)
    for node in nodes:
        write_checkpoint(node, HIGH_WATERMARK_CHECKPOINT, SERVED)
        (node / CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":17}')
    DAMAGES[request.param](nodes)
    registration = PartitionRegistration(
        partition=0, replicas=(1, 2, 3), isr=(), leader=-1, leader_epoch=9, partition_epoch=0
    )
    monkeypatch.setattr(Cluster, "_registration", lambda *_: registration)
    start = 4 if request.param == "no folder" else 0
    found = Healing(nodes, [each for each in records if each[0] >= start], start, CrashingFiles(), monkeypatch)
    disk = found.disk()
    assert found.run(disk).healed
    found.healed = disk
    return found


def test_a_heal_that_was_not_stopped(healing: Healing) -> None:
    for node in healing.nodes:
        assert entries_on(healing.healed, node, HIGH_WATERMARK_CHECKPOINT)[TOPIC] == SERVED
        assert healing.healed.exists(f"{node}/{CLEAN_SHUTDOWN}")
        with Store(str(node), file_system=healing.healed.after_kill(), read_only=True) as store:
            log = store.partition(TOPIC, 0)
            found = [(record.offset, record.key, record.value) for record in log.read(log.start_offset)]
            assert found == healing.records


def test_a_crash_at_any_change_of_a_heal_is_completed_by_the_next(healing: Healing, randomised: int) -> None:
    whole = healing.disk()
    before = whole.changes
    healing.run(whole)
    changes = whole.changes - before
    random = Random(0)
    crashes = 0
    for after in range(changes):
        for _ in range(randomised):
            if randomised == 1 and random.random() > SAMPLED:
                continue
            files = healing.disk()
            files.lose_power_after(after)
            with pytest.raises(PowerLost):
                healing.run(files)
            seed = random.getrandbits(32)
            crash = files.after_power_loss(seed) if random.random() < 0.6 else files.after_kill()
            try:
                healing.check(crash)
            except BaseException as error:
                error.add_note(f"after change {after} of {changes}, seed {seed}")
                raise
            crashes += 1
    assert crashes > 5


def test_a_disk_that_refuses_one_operation_is_healed_by_the_next(healing: Healing, randomised: int) -> None:
    random = Random(1)
    refused = 0
    while True:
        files = healing.disk()
        files.refuse(errno.EIO, skip=refused)
        refused += random.randint(1, 40 // randomised + 1)
        try:
            is_well = healing.run(files).is_well
        except DuralogError:
            is_well = False
        has_refused = files.has_refused
        files.stop_refusing()
        healing.check(files.after_kill())
        if not has_refused:
            break
    assert is_well
    assert refused > 200
