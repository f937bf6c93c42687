"""Directories for `job compact`: compacted topics of several kinds, and what a store makes of a copy of them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from duralog import Record
from duralog.config import BrokerConfig
from duralog.format.filenames import CLEAN_SHUTDOWN
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store

WRITTEN_MS = 1_700_000_000_000
NOW_MS = WRITTEN_MS + 1000
RETENTION_MS = 60_000
LARGE_MAP_BYTES = 8 << 20

COMPACTED = [("changes", 0), ("changes", 1), ("ledger", 0)]


def open_store(path: Path, now_ms: int) -> Store:
    """What a command opens: no upkeep runs, and deleted files are removed at once."""
    return Store(
        str(path),
        config=BrokerConfig.of({"log.cleaner.enable": False, "log.segment.delete.delay.ms": 0}),
        clock=lambda: now_ms,
        scheduler=Scheduler(lambda: 0, threads=0),
    )


def make_directory(path: Path) -> Path:
    """`changes` with plain and packed batches and tombstones, `ledger` with transactions, `events` is not compacted."""
    rng = random.Random(7)
    with open_store(path, WRITTEN_MS) as store:
        compacted = {
            "cleanup.policy": "compact",
            "segment.bytes": 1 << 20,
            "delete.retention.ms": RETENTION_MS,
            "index.interval.bytes": 1024,
        }
        store.create_topic("changes", 2, compacted)
        store.create_topic("ledger", 1, compacted)
        store.create_topic("events", 1)
        for number, codec in ((0, None), (1, "zstd")):
            log = store.partition("changes", number)
            for _ in range(6):
                for _ in range(5):
                    log.append([_record(rng, 300 if number else 3000) for _ in range(60)], codec=codec)
                log.roll()
        _transactions(store, rng)
        store.partition("events", 0).append([_record(rng, 10)])
    return path


def _record(rng: random.Random, keys: int) -> Record:
    value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((5, 50, 400)))
    return Record(key=b"key-%d" % rng.randrange(keys), value=value, timestamp_ms=WRITTEN_MS)


def _transactions(store: Store, rng: random.Random) -> None:
    """Interleaved, over the borders of segments, committed and aborted."""
    log = store.partition("ledger", 0)
    sequences = {11: 0, 12: 0, 13: 0}
    for number in range(60):
        producer = rng.choice(list(sequences))
        records = [_record(rng, 40) for _ in range(rng.randrange(1, 6))]
        log.append(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            is_transactional=True,
            codec=rng.choice((None, "lz4")),
        )
        sequences[producer] += len(records)
        if rng.random() < 0.4:
            log.end_transaction(producer, 0, commit=rng.random() < 0.6)
        if number % 10 == 9:
            log.roll()
    for producer in sequences:
        log.end_transaction(producer, 0, commit=True)
    log.roll()


def copied(path: Path, name: str) -> Path:
    target = path.parent / name
    shutil.copytree(path, target)
    return target


def compacted_by_a_store(
    path: Path, *, now_ms: int = NOW_MS, memory_bytes: int = LARGE_MAP_BYTES, again: bool = False
) -> Path:
    with open_store(path, now_ms) as store:
        for topic, number in COMPACTED:
            store.compact(topic, number, memory_bytes=memory_bytes, again=again)
        store._scheduler.run_due()
    return path


def contents(path: Path) -> dict[str, bytes]:
    """All files, without those that are just deleted, and without what only the times of opening decide."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.suffix != ".deleted"
    }


def is_closed_in_order(path: Path) -> bool:
    return (path / CLEAN_SHUTDOWN).exists()


def latest_values(path: Path, topic: str, number: int) -> dict[bytes, bytes | None]:
    """Of each key, as a reader of committed data ends up with; None and gone are the same."""
    found: dict[bytes, bytes | None] = {}
    with Store(str(path), read_only=True) as store:
        for record in store.partition(topic, number).read(0, isolation="read_committed"):
            assert record.key is not None
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
    return found
