"""Power is lost, the process dies or the disk fails at every step of a heal: the next one ends with the same files.

Only the copy that is healed is on the disk that fails; the other ones are its sources.

`--randomised 20` tries twenty fates of each step.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import duralog
from duralog import Record
from duralog.format.batches import scan
from duralog.format.topic_partition import TopicPartition
from duralog.operations.cluster.heal import HealRequest, heal_cluster
from duralog.scanning.cluster.cluster import open_cluster
from duralog.scanning.cluster.heal_plan import PartitionPlan
from duralog.scanning.cluster.heal_planning import plan_heal
from duralog.scanning.cluster.healing_files import TargetDirectory, heal_partition
from tests.support.cluster.made import TOPIC, cut, flip, logs, three_nodes, write_meta
from tests.support.cluster.recorded import scanned
from tests.support.faults.crashing_files import START_MS, CrashingFiles

FOLDER = f"{TOPIC}-0"
DISK = "/disk"


def _damage_all_segments(node: Path) -> None:
    for path in logs(node):
        flip(path, 100)


def _lose_files(node: Path) -> None:
    logs(node)[0].unlink()
    cut(logs(node)[-1], 300)


def _empty_files(node: Path) -> None:
    for path in logs(node):
        cut(path, 0)


def _diverge(node: Path) -> None:
    with duralog.open(node) as store:
        log = store.partition(TOPIC, 0)
        log.truncate_to(20)
        log.become_leader(1)
        for number in range(9):
            log.append([Record(key=b"other", value=b"%d" % number)])
            if number % 4 == 3:
                log.roll()
    (node / ".kafka_cleanshutdown").unlink()
    write_meta(node, 3)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped bits": _damage_all_segments,
    "lost files": _lose_files,
    "empty files": _empty_files,
    "another history": _diverge,
}


@dataclass
class Heal:
    """The heal of node 3, on a disk that fails."""

    nodes: list[Path]
    plan: PartitionPlan
    whole: dict[str, bytes]
    records: list[tuple[int, bytes, bytes]]
    foreign: list[bytes]
    """The batches of another history that the copy has."""

    def disk(self, *, is_durable: bool = True) -> CrashingFiles:
        """With the files of the damaged copy, all of them durable, or none: their broker was killed."""
        files = CrashingFiles()
        folder = f"{DISK}/{FOLDER}"
        files.make_folder(folder)
        for path in sorted((self.nodes[2] / FOLDER).iterdir()):
            files.write(f"{folder}/{path.name}", path.read_bytes(), sync=is_durable)
        for each in (folder, DISK, "/"):
            files.sync_folder(each)
        return files

    def run(self, files: CrashingFiles) -> list[str | None]:
        (copy,) = self.plan.copies
        target = TargetDirectory(files=files, path=DISK, log_start_offset=0)
        return [outcome.failure for outcome in heal_partition(self.plan, {copy.location: target}, clock=_now)]

    def check(self, files: CrashingFiles, work: Path) -> None:
        """What is on the disk now is a copy that can be read, and that the next heal makes whole."""
        node = work / "broker-3"
        shutil.rmtree(node, ignore_errors=True)
        shutil.copytree(self.nodes[2], node, ignore=shutil.ignore_patterns(FOLDER))
        for path, data in files.contents(DISK).items():
            target = node / Path(path).relative_to(DISK)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        report = heal_cluster(HealRequest(paths=[*map(str, self.nodes[:2]), str(node)], truncate_acknowledged=True))
        assert report.is_well
        # A start finishes what was complete before the crash.
        duralog.open(node).close()
        assert scanned(str(node), TOPIC) == self.records
        assert _logs_of(node) == self.whole
        quarantined = [path.read_bytes() for path in (node / FOLDER).glob("duralog-quarantine/*.bytes")]
        assert all(any(batch in data for data in quarantined) for batch in self.foreign)


def _logs_of(node: Path) -> dict[str, bytes]:
    named = (path for path in (node / FOLDER).iterdir() if ".log" in path.name or "epoch" in path.name)
    return {path.name: path.read_bytes() for path in named if path.suffix != ".tmp"}


def _now() -> int:
    return START_MS


@pytest.fixture(params=DAMAGES)
def heal(request: pytest.FixtureRequest, tmp_path: Path) -> Heal:
    nodes = three_nodes(tmp_path, segments=3, batches=3)
    whole = _logs_of(nodes[0])
    records = scanned(str(nodes[0]), TOPIC)
    DAMAGES[request.param](nodes[2])
    foreign = []
    if request.param == "another history":
        for data in (path.read_bytes() for path in logs(nodes[2])):
            foreign += [data[each.position : each.position + each.size_bytes] for each in scan(data)]
        foreign = [batch for batch in foreign if b"other" in batch]
        assert len(foreign) == 9
    with open_cluster(nodes) as cluster:
        plan = plan_heal(cluster, cluster.copies(TopicPartition(TOPIC, 0)))
    return Heal(nodes, plan, whole, records, foreign)


def fates(randomised: int) -> Iterator[Random]:
    for seed in range(randomised):
        yield Random(seed)


def test_a_crash_at_any_step_of_a_heal_is_completed_by_the_next(heal: Heal, tmp_path: Path, randomised: int) -> None:
    for random in fates(randomised):
        files = heal.disk()
        crashes = 0

        def crash(random: Random = random, files: CrashingFiles = files) -> None:
            nonlocal crashes
            if random.random() < (0.12 if randomised == 1 else 1):
                crashes += 1
                loses_power = random.random() < 0.7
                heal.check(
                    files.after_power_loss(random.getrandbits(32)) if loses_power else files.after_kill(),
                    tmp_path / "crashed",
                )

        files.on_change = crash
        assert heal.run(files) == [None]
        files.on_change = None
        heal.check(files, tmp_path / "crashed")
        assert crashes > 2


def test_a_disk_that_refuses_one_operation_is_healed_by_the_next(heal: Heal, tmp_path: Path, randomised: int) -> None:
    for random in fates(randomised):
        refused = 0
        while True:
            files = heal.disk()
            files.refuse(errno.EIO, skip=refused)
            refused += random.randint(14, 20) if randomised == 1 else random.randint(1, 3)
            (failure,) = heal.run(files)
            has_refused = files.has_refused
            files.stop_refusing()
            heal.check(files.after_kill(), tmp_path / "refused")
            if not has_refused:
                break
            # Whatever was refused, a heal that says that it is done has done all of it.
            assert failure is not None or heal.run(files) == [None]
        assert failure is None
        assert refused > 30


def test_a_full_disk_leaves_what_was_there(heal: Heal, tmp_path: Path) -> None:
    files = heal.disk()
    files.capacity_bytes = files.used_bytes + 50
    (failure,) = heal.run(files)
    assert failure is not None
    files.capacity_bytes = None
    heal.check(files.after_kill(), tmp_path / "full")


def test_a_healed_copy_is_durable_also_where_nothing_was_changed(heal: Heal) -> None:
    """Its recovery point becomes the end of the log, so the next start looks at nothing before it."""
    files = heal.disk(is_durable=False)
    assert heal.run(files) == [None]
    expected = {path: data for path, data in files.contents(DISK).items() if path.endswith(".log")}
    for seed in range(5):
        found = files.after_power_loss(seed).contents(DISK)
        assert {path: data for path, data in found.items() if path.endswith(".log")} == expected
