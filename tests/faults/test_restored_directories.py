"""Power is lost or the process dies at every change of a restore: there is no new directory, or all of it.

The next restore to the same place makes it. `--randomised 20` tries twenty times as many fates.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import duralog
from duralog import Record
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.transaction_log import encode
from duralog.errors import DuralogError
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.topic_partition import TopicPartition
from duralog.operations.groups.stored_groups import StoreGroups, groups_of_store
from duralog.operations.restore.report import RestoreReport, RestoreRequest
from duralog.operations.restore.restore import restore
from duralog.operations.workers import Threads
from duralog.storage.store import Store
from tests.support.faults.crashing_files import CrashingFiles, PowerLost

TOPIC = "orders"
MODULES = (
    "duralog.operations.restore.new_directory",
    "duralog.operations.restore.coordinators",
    "duralog.storage.store",
)
SAMPLED = 0.06
"""Of the changes, without `--randomised`."""
Contents = Mapping[str, object]


@dataclass
class Restoring:
    source: Path
    place: Path
    """Of the new directory, which is on the disk that fails only."""
    contents: Contents
    """Of a restore that was not stopped."""
    patch: pytest.MonkeyPatch

    def disk(self) -> CrashingFiles:
        files = CrashingFiles()
        files.make_folder(str(self.place.parent))
        for folder in self.place.parents:
            files.sync_folder(str(folder))
        return files

    def run(self, files: CrashingFiles) -> RestoreReport:
        for module in MODULES:
            self.patch.setattr(f"{module}.LocalFileSystem", lambda: files)
        return restore(RestoreRequest(paths=[str(self.source)], target=str(self.place)), Threads(1))

    def contents_of(self, files: CrashingFiles) -> Contents:
        found: dict[str, object] = {
            # The marker of the open transaction has the time of the restore.
            path: data if f"/{TOPIC}-0/" in path else None
            for path, data in files.contents(str(self.place)).items()
        }
        with Store(str(self.place), read_only=True, file_system=files.after_kill()) as store:
            found["groups"] = [
                (view.group, [each.committed for each in view.offsets]) for view in groups_of_store(store)
            ]
            for number in store.partitions(TOPIC):
                log = store.partition(TOPIC, number)
                found[f"read {number}"] = list(log.read(log.start_offset, isolation="read_committed"))
        return found

    def check(self, crash: CrashingFiles) -> bool:
        """Whether the directory was there."""
        if crash.exists(str(self.place)):
            assert self.contents_of(crash) == self.contents
            return True
        assert self.run(crash).is_made
        assert self.contents_of(crash) == self.contents
        assert [entry.name for entry in crash.list(str(self.place.parent))] == [self.place.name]
        return False


@pytest.fixture
def restoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Restoring:
    """Two partitions, a group, and a transaction that its coordinator has decided to commit."""
    source = tmp_path / "source"
    with duralog.open(source, config={"offsets.topic.num.partitions": 1}) as store:
        store.create_topic(TOPIC, partitions=2)
        for number in range(2):
            log = store.partition(TOPIC, number)
            for batch in range(4):
                log.append([Record(key=b"k", value=b"%d" % batch)] * 2)
                if batch % 2:
                    log.roll()
        log = store.partition(TOPIC, 1)
        log.append([Record(value=b"open")], producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True)
        StoreGroups(str(source), store, evicts=False).set_offsets("billing", {(TOPIC, 0): 5, (TOPIC, 1): 7})
        store.create_topic("__transaction_state", partitions=1)
        transaction = Transaction(
            producer_id=7,
            producer_epoch=3,
            timeout_ms=1000,
            status=TransactionStatus.PREPARE_COMMIT,
            partitions=frozenset({TopicPartition(TOPIC, 1)}),
            updated_ms=1,
        )
        store.partition("__transaction_state", 0).append([encode("writer", transaction, 2)])
    made = Restoring(source, tmp_path / "away" / "new", {}, monkeypatch)
    disk = made.disk()
    assert made.run(disk).is_made
    made.contents = made.contents_of(disk)
    assert made.contents["groups"] == [("billing", [5, 7])]
    return made


def test_a_restored_directory_is_durable_when_the_restore_ends(restoring: Restoring) -> None:
    for seed in range(5):
        files = restoring.disk()
        restoring.run(files)
        found = files.after_power_loss(seed)
        assert restoring.check(found)
        assert [entry.name for entry in found.list(str(restoring.place.parent))] in (
            ["new"],
            [".new.incomplete", "new"],
        )


def test_a_crash_at_any_change_leaves_nothing_or_all_of_it(restoring: Restoring, randomised: int) -> None:
    whole = restoring.disk()
    before = whole.changes
    restoring.run(whole)
    changes = whole.changes - before
    random = Random(0)
    were_there = crashes = 0
    for after in range(changes):
        for _ in range(randomised):
            # The last steps give the directory its name.
            if randomised == 1 and after < changes - 12 and random.random() > SAMPLED:
                continue
            files = restoring.disk()
            files.lose_power_after(after)
            with suppress(PowerLost):  # One change more or less comes from how fast the machine is.
                restoring.run(files)
            seed = random.getrandbits(32)
            crash = files.after_power_loss(seed) if random.random() < 0.6 else files.after_kill()
            try:
                were_there += restoring.check(crash)
            except BaseException as error:
                error.add_note(f"after change {after} of {changes}, seed {seed}")
                raise
            crashes += 1
    assert 0 < were_there < crashes


def test_a_disk_that_refuses_one_operation_leaves_nothing_or_all_of_it(restoring: Restoring, randomised: int) -> None:
    random = Random(1)
    refused = 0
    is_made = False
    while not is_made:
        files = restoring.disk()
        files.refuse(errno.EIO, skip=refused)
        refused += random.randint(1, 200 // randomised + 1)
        try:
            is_made = restoring.run(files).is_made and not files.has_refused
        except DuralogError:
            assert files.has_refused
        files.stop_refusing()
        restoring.check(files.after_kill())
    assert refused > 200
