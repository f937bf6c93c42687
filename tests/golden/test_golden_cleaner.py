"""A store that opens a directory of Kafka's compacts its logs by itself, and as far as Kafka's cleaner did."""

from __future__ import annotations

import shutil
from pathlib import Path

from duralog.config import BrokerConfig
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import CLEANER_OFFSET_CHECKPOINT
from duralog.storage.background import Scheduler
from duralog.storage.store import Store
from tests.golden.conftest import DATA

COMPACTION = DATA / "compaction"
CONFIG = {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": 0.01, "log.segment.bytes": 1 << 20}


def test_the_checkpoint_is_kafkas(tmp_path: Path) -> None:
    shutil.copytree(COMPACTION / "before", tmp_path / "data")
    scheduler = Scheduler(lambda: 0, threads=0)
    with Store(str(tmp_path / "data"), config=BrokerConfig.of(CONFIG), scheduler=scheduler) as store:
        topics = set(store.topics())
        scheduler.run_due()
        assert {state.topic for state in store.cleaner.states() if state.last_report is not None} == topics
        assert store.background_errors == ()
    ours = decode_offset_checkpoint((tmp_path / "data" / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    kafkas = decode_offset_checkpoint((COMPACTION / "after" / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    assert set(ours) == {entry for entry in kafkas if entry.topic in topics}
