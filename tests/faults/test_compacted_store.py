"""What compaction promises, asked of a whole store: ranges, checkpoints, starts after a stop and after a crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duralog.config import BrokerConfig
from duralog.format.record import Record
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store
from tests.support.compaction.compaction_life import RETENTION_MS, SETTINGS, Life
from tests.support.compaction.compaction_steps import Step, fewer, steps
from tests.support.faults.crashing_files import START_MS, CrashingFiles
from tests.support.faults.partition import DIRECTORY, Partition

CONFIG = BrokerConfig.of({"log.cleaner.enable": False, "num.recovery.threads.per.data.dir": 1})


def open_store(files: CrashingFiles) -> Store:
    return Store(
        DIRECTORY, config=CONFIG, file_system=files, clock=files.clock, scheduler=Scheduler(files.clock, threads=0)
    )


class LifeInStore(Life):
    """The store finds out by itself what is to be compacted, and remembers what was."""

    def _open(self) -> None:
        self.partition = Partition(self.files, config=self.config, clock=self.clock)
        self.store = open_store(self.files)
        if not self.store.topics():
            overrides = {**SETTINGS, "min.compaction.lag.ms": self.config.min_compaction_lag_ms}
            self.store.create_topic("t", partitions=1, config=overrides)
        self.log = self.store.partition("t", 0)

    def _close(self) -> None:
        self.store.close()

    def _compact_up_to(self, end: int, keys: int) -> CompactionReport:  # noqa: ARG002
        return self.store.compact("t", 0)


@fewer(4)
@given(steps(), st.sampled_from([0, 0, 400]))
def test_a_store_keeps_what_was_promised(drawn: list[Step], min_lag_ms: int) -> None:
    life = LifeInStore(min_lag_ms=min_lag_ms).live(drawn)
    life.log.roll()
    life.compact()
    before = life.files.contents(life.partition.folder)
    report = life.store.compact("t", 0)
    assert report.first_dirty_offset == report.end_offset == life.first_dirty_offset
    assert report.notes
    assert life.files.contents(life.partition.folder) == before
    life.check_repeated_batches()
    # Also of a log that nothing is written to any more.
    life.now_ms += RETENTION_MS
    life.store.compact("t", 0, again=True)
    assert not [record for record in life.log.read(0) if record.value is None and record.offset < life.end]
    life.store.close()


def test_a_topic_that_is_not_compacted_any_more_keeps_its_records_after_a_crash() -> None:
    """In a log that never was compacted, missing offsets are a loss, and end it: this one has them for good reason."""
    files = CrashingFiles(clock=lambda: START_MS)
    store = open_store(files)
    store.create_topic("t", partitions=1, config=SETTINGS)
    log = store.partition("t", 0)
    log.append([Record(key=b"first", value=b"x", timestamp_ms=START_MS)])
    log.flush()
    store.close()
    store = open_store(files)
    log = store.partition("t", 0)
    for number in range(60):
        log.append([Record(key=b"%d" % (number % 20), value=bytes(100), timestamp_ms=START_MS)])
    log.roll()
    store.compact("t", 0)
    expected = [record.offset for record in log.read(0)]
    assert len(expected) == 21
    store.alter_topic_config("t", {"cleanup.policy": "delete"})
    found = open_store(files.after_kill())
    assert [record.offset for record in found.partition("t", 0).read(0)] == expected
    found = open_store(files.after_power_loss(0))
    assert [record.offset for record in found.partition("t", 0).read(0)] == expected
