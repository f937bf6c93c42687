"""Which part of a log can be compacted: Kafka's cleaner manager and duralog say the same of random logs.

The logs have open transactions, gaps, empty segments, and a `min.compaction.lag.ms` that falls between two of their
segments or exactly on one. Half of the looks are taken after a first round that ended somewhere in the middle.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from duralog.storage.compaction.cleanable import DirtyRange, dirty_range
from oracle.cleaned_folders import open_log, write_stage
from oracle.cleaner import CleanerJob, CleanerPass, CleanerRound, clean_by_kafka
from oracle.kafka_process import KafkaProcess, KafkaRefusedError
from oracle.random_histories import random_history

pytestmark = pytest.mark.interop

HISTORIES = 60
IN_MEMORY = Path("/dev/shm")
"""Where there is no disk to wait for: both sides sync every file."""


@pytest.fixture
def work() -> Iterator[Path]:
    with TemporaryDirectory(prefix="duralog-", dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None) as work:
        yield Path(work)


def look(folder: Path, configs: dict[str, int | str], checkpoint: int | None, now_ms: int) -> DirtyRange:
    log = open_log(folder, configs, now_ms)
    view = log.view
    found = dirty_range(
        view.segments,
        start_offset=view.start_offset,
        end_offset=view.end_offset,
        last_stable_offset=view.last_stable_offset,
        checkpoint=checkpoint,
        config=log.config,
        now_ms=now_ms,
    )
    log.close()
    return found


def lag_for(folder: Path, configs: dict[str, int | str], rng: random.Random, now_ms: int) -> int:
    """None, or one by which a segment is exactly old enough, or a millisecond too young."""
    log = open_log(folder, configs, now_ms)
    ages = [now_ms - segment.largest_timestamp_ms for segment in log.view.segments]
    log.close()
    return rng.choice([0, max(0, rng.choice(ages)), max(0, rng.choice(ages) + 1)])


def assert_same(rounds: list[CleanerRound], ours: DirtyRange, where: str) -> bool:
    """Returns whether there was something to compact."""
    if not rounds:
        assert ours.first_dirty_offset >= ours.first_uncleanable.offset, where
        assert ours.cleanable_bytes == 0, where
        return False
    kafkas = rounds[0]
    assert (
        ours.first_dirty_offset,
        ours.first_uncleanable.offset,
        ours.clean_bytes,
        ours.cleanable_bytes,
        ours.dirty_ratio,
    ) == (
        kafkas.first_dirty_offset,
        kafkas.first_uncleanable_offset,
        kafkas.clean_bytes,
        kafkas.cleanable_bytes,
        kafkas.cleanable_ratio,
    ), where
    return True


def test_both_find_the_same_range(kafka: KafkaProcess, work: Path, pytestconfig: pytest.Config) -> None:
    something, limits = 0, set()
    for seed in range(HISTORIES * pytestconfig.getoption("--randomised")):
        rng = random.Random(seed)
        history = random_history(seed)
        stage = history.stages[0]
        once, twice = work / f"{seed}" / "once" / "orders-0", work / f"{seed}" / "twice" / "orders-0"
        write_stage(once, history.configs, stage)
        configs = {**history.configs, "min.compaction.lag.ms": lag_for(once, history.configs, rng, stage.now_ms)}
        shutil.copytree(once, twice)
        before = look(once, configs, None, stage.now_ms)
        first = CleanerPass(now_ms=stage.now_ms, map_bytes=24 * rng.choice((12, 100, 10_000)), rounds=1)
        second = CleanerPass(now_ms=stage.now_ms + rng.choice((0, 1, 10_000)), rounds=1)
        answers = clean_by_kafka(
            kafka,
            [
                CleanerJob(folder=once, configs=configs, passes=[first]),
                CleanerJob(folder=twice, configs=configs, passes=[first, second]),
            ],
        )
        if any(isinstance(answer, KafkaRefusedError) for answer in answers):
            continue  # Of some logs of the old formats, Kafka's cleaner dies.
        after_one, after_both = answers
        assert not isinstance(after_one, KafkaRefusedError)
        assert not isinstance(after_both, KafkaRefusedError)
        limits.add(before.first_uncleanable.limit)
        something += assert_same(after_one, before, f"seed {seed}")
        checkpoint = after_one[-1].end_offset if after_one else before.first_dirty_offset
        between = look(once, configs, checkpoint, second.now_ms)
        something += assert_same(after_both[len(after_one) :], between, f"seed {seed}, from {checkpoint}")
        shutil.rmtree(work / f"{seed}")
    assert something > HISTORIES // 2
    assert len(limits) == 3
