"""A store that opens logs of Kafka's compacts them by itself, and as far as Kafka's cleaner did."""

from __future__ import annotations

from pathlib import Path

from duralog.config import BrokerConfig
from duralog.format.checkpoints import decode_offset_checkpoint
from duralog.format.filenames import CLEAN_SHUTDOWN, CLEANER_OFFSET_CHECKPOINT
from duralog.format.properties import encode_clean_shutdown
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store
from tests.golden.test_golden_compaction import AT_HAND, COPIED, copy_before
from tests.support.places import GOLDEN

CONFIG = {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": 0.01, "log.segment.bytes": 1 << 20}


def test_the_checkpoint_is_kafkas(tmp_path: Path) -> None:
    cases = AT_HAND or [COPIED]
    for case in cases:
        copy_before(case, tmp_path)
    (tmp_path / CLEAN_SHUTDOWN).write_bytes(encode_clean_shutdown(-1))
    scheduler = Scheduler(lambda: 0, threads=0)
    with Store(str(tmp_path), config=BrokerConfig.of(CONFIG), scheduler=scheduler) as store:
        assert store.topics() == sorted(case.topic for case in cases)
        scheduler.run_due()
        assert store.background_errors == ()
        assert all(state.last_report is not None for state in store.cleaner.states())
    ours = decode_offset_checkpoint((tmp_path / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    kafkas = decode_offset_checkpoint((GOLDEN / "compaction" / "after" / CLEANER_OFFSET_CHECKPOINT).read_bytes())
    assert set(ours) == {entry for entry in kafkas if entry.topic in {case.topic for case in cases}}
