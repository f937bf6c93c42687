"""A log compacted in the shuffled form is, file by file, the log that a store's compaction with a large map leaves."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from duralog.config import TopicConfig
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.compaction.cleanable import dirty_range
from oracle.random_histories import Stage, random_history
from tests.support.compaction.compaction_steps import fewer
from tests.support.spark.shuffled_side import Side, comparable, disk_without_waiting


def append(side: Side, stage: Stage) -> None:
    side.now_ms = stage.written_ms
    first = side.log.segments[-1].base_offset
    for batch in stage.batches:
        if batch is None:
            side.log.roll()
        else:
            side.log.append_batches(batch, origin=AppendOrigin.AS_IS)
    side.log.flush()
    if stage.log_start_offset > side.log.start_offset:
        side.log.delete_records(stage.log_start_offset)
    side.partition.catch_up()
    written = [segment.base_offset for segment in side.log.segments if segment.base_offset >= first]
    for number, base_offset in enumerate(written):
        side.set_modified_ms(base_offset, stage.written_ms - 700 * (len(written) - 1 - number))


def damage(sides: Sequence[Side], rng: random.Random) -> None:
    """The same bytes of both: anywhere, or in a header, where a length or an offset is."""
    segments = [segment for segment in sides[0].log.segments[:-1] if segment.size_bytes]
    for segment in rng.sample(segments, min(len(segments), rng.choice((1, 1, 2, 4)))):
        position = rng.randrange(segment.size_bytes if rng.random() < 0.7 else min(61, segment.size_bytes))
        bits = rng.randrange(1, 256)
        for side in sides:
            side.flip(segment.base_offset, position, bits)


def check_history(seed: int, folder: Path, *, is_damaged: bool = False) -> None:
    drawn, rng = random_history(seed), random.Random(seed)
    config = TopicConfig().with_overrides(drawn.configs)
    store, shuffled = Side(folder / "store", config), Side(folder / "shuffled", config)
    first_dirty_offset = drawn.first_dirty_offset
    for stage in drawn.stages:
        for side in (store, shuffled):
            append(side, stage)
            side.now_ms = stage.now_ms
        if is_damaged:
            damage((store, shuffled), rng)
        assert shuffled.contents() == store.contents()
        view = store.log.view
        dirty = dirty_range(
            view.segments,
            start_offset=view.start_offset,
            end_offset=view.end_offset,
            last_stable_offset=view.last_stable_offset,
            checkpoint=first_dirty_offset,
            config=config,
            now_ms=stage.now_ms,
        )
        if dirty.cleanable_bytes:
            place = dirty.first_dirty_offset, dirty.first_uncleanable.offset
            expected = store.compact(*place)
            report = shuffled.compact_shuffled(
                *place,
                memory_bytes=rng.choice((24 * 7, 24 * 40, 24 * 2000)),
                piece_bytes=rng.choice((300, 4 << 20)),
                rng=rng,
            )
            assert shuffled.contents() == store.contents()
            assert comparable(report, shuffled) == comparable(expected, store)
            first_dirty_offset = report.end_offset
        if rng.random() < 0.5 and not is_damaged:
            for side in (store, shuffled):
                side.restart()


@fewer(10)
@given(st.integers(0, 2**32 - 1))
def test_histories_come_to_the_same_in_both_forms(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, disk_without_waiting():
        check_history(seed, Path(folder))


@fewer(10)
@given(st.integers(0, 2**32 - 1))
def test_damaged_histories_come_to_the_same_in_both_forms(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder, disk_without_waiting():
        check_history(seed, Path(folder), is_damaged=True)
