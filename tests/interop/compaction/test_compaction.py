"""Random histories of keyed logs, compacted by Kafka's own cleaner and by duralog: the same files come out.

Both get a copy of the same folder, the same checkpoint and the same time. After each pass all that is in the two
folders is compared (`oracle.cleaned_folders`), then both logs go on from there.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from duralog.format.batch import Batch
from duralog.format.batches import decode_records, scan
from duralog.format.compression import Codec
from duralog.format.record import Record
from duralog.storage.compaction import settings as compaction_settings
from duralog.storage.compaction.cleanable import DirtyRange, dirty_range
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from duralog.storage.compaction.settings import CompactionSettings
from oracle.cleaned_folders import differences, open_log, quick_folder, same_bytes, write_stage
from oracle.cleaner import CleanerJob, CleanerPass, CleanerRound, clean_by_kafka
from oracle.kafka_process import KafkaProcess, KafkaRefusedError
from oracle.random_histories import MAP_ENTRY_BYTES, START_MS, History, Stage, random_history

pytestmark = pytest.mark.interop

HISTORIES = 100
KAFKA_DIES_OF = ("Empty batches are only supported for magic v2", "Attempt to append to a full")
"""What Kafka's cleaner cannot do: the partition would never be cleaned again. duralog must get through."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(HISTORIES * metafunc.config.getoption("--randomised")))


@dataclass
class Outcome:
    """What became of one history."""

    differences: list[str] = field(default_factory=list)
    kafka_died_of: str | None = None
    seen: Counter[str] = field(default_factory=Counter)
    """What there was to be right or wrong about."""


@pytest.fixture(scope="module")
def compacted(kafka: KafkaProcess) -> Iterator[Callable[[int], Outcome]]:
    outcomes: dict[int, Outcome] = {}
    with quick_folder() as work, pytest.MonkeyPatch.context() as patch:
        # Otherwise each of these small segments would be read at once.
        patch.setattr(compaction_settings, "PIECE_BYTES", 1)

        def compacted(seed: int) -> Outcome:
            if seed not in outcomes:
                folder = Path(work) / str(seed)
                outcomes[seed] = _live(kafka, random_history(seed), folder)
                shutil.rmtree(folder)
            return outcomes[seed]

        yield compacted


def _live(kafka: KafkaProcess, history: History, work: Path) -> Outcome:
    kafkas, ours = work / "kafka" / "orders-0", work / "duralog" / "orders-0"
    outcome = Outcome()
    first_dirty_offset = history.first_dirty_offset
    for number, stage in enumerate(history.stages):
        first_dirty_offset = max(first_dirty_offset, stage.log_start_offset)
        if number == 0:
            write_stage(kafkas, history.configs, stage)
            shutil.copytree(kafkas, ours)
        else:
            for folder in (kafkas, ours):
                write_stage(folder, history.configs, stage)
        rounds = _clean(kafka, history, stage, kafkas, first_dirty_offset)
        before = _state(ours, history, stage)
        dirty, report = _compact(history, stage, ours, first_dirty_offset)
        after = _state(ours, history, stage)
        if isinstance(rounds, KafkaRefusedError):
            outcome.kafka_died_of = str(rounds)
            outcome.differences = [] if after == before else ["a reader knows other values"]
            return outcome
        outcome.seen.update(_features(rounds, kafkas))
        found = [*_told_otherwise(rounds, dirty, report), *differences(kafkas, ours, history.configs)]
        if found:
            outcome.differences = [f"pass {number + 1}: {text}" for text in found]
            return outcome
        if not rounds:
            continue
        first_dirty_offset = rounds[-1].end_offset
        if not same_bytes(kafkas, ours):
            # Groups are chosen by sizes, which differ where a codec's bytes do: let both go on from the same.
            shutil.rmtree(ours)
            shutil.copytree(kafkas, ours)
    return outcome


def _clean(
    kafka: KafkaProcess, history: History, stage: Stage, folder: Path, first_dirty_offset: int
) -> list[CleanerRound] | KafkaRefusedError:
    one_pass = CleanerPass(
        now_ms=stage.now_ms,
        first_dirty_offset=first_dirty_offset,
        map_bytes=stage.map_bytes,
        load_factor=stage.load_factor,
        buffer_bytes=stage.buffer_bytes,
        rounds=0,
    )
    job = CleanerJob(folder=folder, configs=history.configs, passes=[one_pass], log_start_offset=stage.log_start_offset)
    (rounds,) = clean_by_kafka(kafka, [job])
    return rounds


def _compact(
    history: History, stage: Stage, folder: Path, first_dirty_offset: int
) -> tuple[DirtyRange, CompactionReport]:
    log = open_log(folder, history.configs, stage.now_ms, stage.log_start_offset)
    try:
        view = log.view
        dirty = dirty_range(
            view.segments,
            start_offset=view.start_offset,
            end_offset=view.end_offset,
            last_stable_offset=view.last_stable_offset,
            checkpoint=first_dirty_offset,
            config=log.config,
            now_ms=stage.now_ms,
        )
        report = compact_log(
            log,
            first_dirty_offset=first_dirty_offset,
            end=dirty.first_uncleanable.offset,
            now_ms=stage.now_ms,
            settings=CompactionSettings(
                memory_bytes=stage.map_bytes,
                load_factor=stage.load_factor,
                buffer_bytes=stage.buffer_bytes,
                workers=1 + history.seed % 2,
            ),
        )
        return dirty, report
    finally:
        log.close()


def _state(folder: Path, history: History, stage: Stage) -> dict[bytes, bytes]:
    """The last value of each key, as a reader from the start knows it."""
    log = open_log(folder, history.configs, stage.now_ms, stage.log_start_offset)
    known: dict[bytes, bytes] = {}
    for record in log.read(log.start_offset, isolation="read_committed"):
        if record.key is not None and record.value is not None:
            known[record.key] = record.value
        elif record.key is not None:
            known.pop(record.key, None)
    log.close()
    return known


def _told_otherwise(rounds: Sequence[CleanerRound], dirty: DirtyRange, report: CompactionReport) -> Iterator[str]:
    """Where duralog's range and report are not what Kafka found and counted."""
    told = {"rounds": (report.rounds, len(rounds))}
    if rounds:
        told |= {
            "first uncleanable offset": (dirty.first_uncleanable.offset, rounds[0].first_uncleanable_offset),
            "clean bytes": (dirty.clean_bytes, rounds[0].clean_bytes),
            "cleanable bytes": (dirty.cleanable_bytes, rounds[0].cleanable_bytes),
            "end offset": (report.end_offset, rounds[-1].end_offset),
            "records without a key": (report.keyless_records, sum(one.invalid_messages_read for one in rounds)),
        }
    yield from (f"{what}: {ours}, not {kafkas}" for what, (ours, kafkas) in told.items() if ours != kafkas)


def _features(rounds: Sequence[CleanerRound], folder: Path) -> Iterator[str]:
    if len(rounds) > 1:
        yield "several rounds"
    end = rounds[-1].end_offset if rounds else 0
    for path in folder.glob("*.log"):
        data = path.read_bytes()
        if int(path.stem) < end:
            for batch in scan(data):
                yield from _features_of_batch(batch, data)
        if path.with_suffix(".txnindex").exists():
            yield "abort marker that is needed"


def _features_of_batch(batch: Batch, data: bytes) -> Iterator[str]:
    yield Codec(batch.codec_id).label
    yield batch.timestamp_type.label
    if batch.is_control:
        yield "marker"
    if batch.is_transactional:
        yield "transaction"
    if batch.producer_id >= 0 and not batch.is_transactional:
        yield "idempotent producer"
    if batch.record_count == 0:
        yield "empty batch"
    if batch.last_offset - batch.base_offset > 100:
        yield "large batch"
    if batch.delete_horizon_ms is not None:
        yield "delete horizon of a marker" if batch.is_control else "delete horizon"
    if batch.magic == 2 and batch.record_count < batch.last_offset - batch.base_offset + 1:
        yield "batch with missing records"
    if any(record.headers for record in decode_records(data, batch)):
        yield "headers"


def test_both_make_the_same_of_it(compacted: Callable[[int], Outcome], seed: int) -> None:
    outcome = compacted(seed)
    assert outcome.differences == []
    assert outcome.kafka_died_of is None or any(text in outcome.kafka_died_of for text in KAFKA_DIES_OF)


def test_there_was_everything_to_be_compared(compacted: Callable[[int], Outcome]) -> None:
    """Guards the test above, which tame histories would pass."""
    outcomes = [compacted(seed) for seed in range(HISTORIES)]
    seen = sum((outcome.seen for outcome in outcomes), Counter[str]())
    assert sum(outcome.kafka_died_of is not None for outcome in outcomes) < HISTORIES / 10
    expected = {
        *(codec.label for codec in Codec),
        "abort marker that is needed",
        "batch with missing records",
        "delete horizon",
        "delete horizon of a marker",
        "empty batch",
        "headers",
        "idempotent producer",
        "large batch",
        "LogAppendTime",
        "marker",
        "several rounds",
        "transaction",
    }
    assert {what for what in expected if seen[what] < 5} == set()


def test_a_deleted_key_that_comes_back_in_kafka_alone(kafka: KafkaProcess, tmp_path: Path) -> None:
    """Where Kafka is not followed. The second round starts behind the marker of an aborted transaction.

    Kafka does not see the marker, takes what the producer committed later for aborted, and does not map it: so the
    tombstone stays with the value that it has deleted, and when its time has passed it goes without it.
    """
    configs: dict[str, int | str] = {
        "cleanup.policy": "compact",
        "index.interval.bytes": 0,
        "delete.retention.ms": 1000,
    }
    history = History(seed=0, configs=configs, first_dirty_offset=0, stages=[])

    def stage(now_ms: int) -> Stage:
        return Stage(
            batches=[],
            written_ms=START_MS,
            now_ms=now_ms,
            log_start_offset=0,
            map_bytes=3 * MAP_ENTRY_BYTES,
            load_factor=1.0,
            buffer_bytes=4096,
        )

    kafkas, ours = tmp_path / "kafkas-0", tmp_path / "ours-0"
    log = open_log(kafkas, configs, START_MS)
    producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
    log.append([Record(key=b"key", value=b"deleted")])
    log.append([Record(key=b"x", value=b"aborted")], base_sequence=0, is_transactional=True, **producer)
    log.end_transaction(**producer, commit=False)
    for key in (b"a", b"b", b"c"):
        log.append([Record(key=key, value=b"v")])
    log.append([Record(key=b"key")], base_sequence=1, is_transactional=True, **producer)
    log.end_transaction(**producer, commit=True)
    log.roll()
    end = log.end_offset
    log.close()
    shutil.copytree(kafkas, ours)

    _clean(kafka, history, stage(START_MS), kafkas, 0)
    _compact(history, stage(START_MS), ours, 0)
    for folder in (kafkas, ours):
        log = open_log(folder, configs, START_MS)
        log.append([Record(key=b"later", value=b"v")])
        log.roll()
        log.close()
        assert b"key" not in _state(folder, history, stage(START_MS))
    _clean(kafka, history, stage(START_MS + 1000), kafkas, end)
    _compact(history, stage(START_MS + 1000), ours, end)
    assert _state(kafkas, history, stage(START_MS))[b"key"] == b"deleted"
    assert b"key" not in _state(ours, history, stage(START_MS))
