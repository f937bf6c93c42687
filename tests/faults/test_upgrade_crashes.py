"""Power is lost, the process dies or the disk fails at every step of an upgrade: every segment is found old or new.

`--randomised 20` tries twenty lives, and twenty fates of each step.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

from duralog.errors import StorageError
from duralog.format.batches import scan
from duralog.format.filenames import FileState, parse_segment_file
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.repair.format_upgrade import upgrade_log
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost
from tests.support.faults.partition import Partition
from tests.support.storage.legacy_logs import LegacyWriter, records_in

SEGMENTS = 4


class History:
    """A log of old and new formats, closed in order, and what its segments hold before and after an upgrade."""

    def __init__(self, seed: int) -> None:
        self.files = CrashingFiles(seed=seed)
        self.partition = Partition(self.files)
        writer = LegacyWriter(seed)
        self._write(writer)
        # It was recovered, and has indexes now.
        self.partition.close(self.partition.open())
        self.records = records_in(b"".join(self.logs(self.files).values()))
        self.old = self.logs(self.files)
        found = self.files.after_kill()
        finished = Partition(found)
        log = finished.open()
        self.digest = str(upgrade_log(log).after)
        finished.close(log)
        self.new = self.logs(found)
        self.log = self.partition.open()

    def _write(self, writer: LegacyWriter) -> None:
        files, folder = self.files, self.partition.folder
        files.make_folder(folder)
        for _ in range(SEGMENTS):
            base_offset = writer.next_offset
            files.write(f"{folder}/{base_offset:020}.log", writer.batches(6), sync=True)
        files.sync_folder(folder)
        files.sync_folder(self.partition.directory.path)
        files.sync_folder("/")

    @staticmethod
    def logs(files: CrashingFiles) -> dict[str, bytes]:
        return {
            path: data
            for path, data in sorted(files.contents(Partition(files).folder).items())
            if path.endswith(".log") and data
        }


def check_aftermath(files: CrashingFiles, history: History, random: Random) -> None:
    if random.random() < 0.2:
        files.lose_power_after(random.randint(0, 20))
        with suppress(PowerLost):
            Partition(files).open()
        files = files.after_power_loss(random.getrandbits(32))
    partition = Partition(files)
    log = partition.open()
    files.capacity_bytes = None
    logs = History.logs(files)
    assert logs.keys() == history.old.keys()
    for path, data in logs.items():
        assert data in (history.old[path], history.new[path]), path
    check_records(log, history)
    for path in files.contents(partition.folder):
        file = parse_segment_file(path.rpartition("/")[2])
        assert file is None or file.state is FileState.LIVE, path
    log.append([Record(key=b"after", value=b"the crash", timestamp_ms=START_MS)])
    report = upgrade_log(log)
    assert not report.left
    assert {batch.magic for data in History.logs(files).values() for batch in scan(data)} == {2}
    check_records(log, history)


def check_records(log: PartitionLog, history: History) -> None:
    found = [(record.offset, record.timestamp_ms, record.key, record.value) for record in log.read(0)]
    assert found[: len(history.records)] == history.records


def lives(randomised: int) -> Iterator[tuple[History, Random]]:
    for seed in range(randomised):
        yield History(seed), Random(seed)


@pytest.mark.parametrize("loses_power", [True, False], ids=["power loss", "kill"])
def test_a_crash_at_any_step_leaves_every_segment_old_or_new(loses_power: bool, randomised: int) -> None:
    for history, random in lives(randomised):
        crashes = 0
        failures: list[Exception] = []

        def crash(history: History = history, random: Random = random, failures: list[Exception] = failures) -> None:
            nonlocal crashes
            for _ in range(randomised if loses_power else 1):
                crashes += 1
                fate = random.getrandbits(32)
                found = history.files.after_power_loss(fate) if loses_power else history.files.after_kill()
                try:
                    check_aftermath(found, history, Random(fate))
                except Exception as error:
                    error.add_note(f"change {history.files.changes}, fate {fate}")
                    failures.append(error)

        history.files.on_change = crash
        assert str(upgrade_log(history.log).after) == history.digest
        history.partition.catch_up()
        history.files.on_change = None
        if failures:
            raise failures[0]
        assert crashes > 50


def test_a_disk_that_refuses_one_operation_leaves_every_segment_old_or_new(randomised: int) -> None:
    for history, random in lives(randomised):
        refused = 0
        while True:
            files = history.files.after_kill()
            log = Partition(files).open()
            files.refuse(errno.EIO, skip=refused)
            refused += random.randint(1, 3)
            try:
                upgrade_log(log)
            except StorageError:
                files.stop_refusing()
            else:
                break
            check_records(log, history)
            check_aftermath(files.after_kill(), history, random)
        assert refused > 50


def test_a_full_disk_leaves_the_log_as_it_was(randomised: int) -> None:
    for history, random in lives(randomised):
        files = history.files.after_kill()
        partition = Partition(files)
        log = partition.open()
        log.roll()
        files.capacity_bytes = files.used_bytes + 100
        with pytest.raises(StorageError):
            upgrade_log(log)
        assert not log.in_doubt
        assert not any(path.endswith(FileState.CLEANED.value) for path in files.contents(partition.folder))
        check_records(log, history)
        check_aftermath(files.after_kill(), history, random)
        files.capacity_bytes = None
        assert str(upgrade_log(log).after) == history.digest
