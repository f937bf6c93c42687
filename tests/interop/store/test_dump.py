"""Kafka's dump tool on every file that the store writes: after a clean stop, after deletions, after a kill."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import duralog
from duralog import Record
from duralog.format.compression import Codec
from duralog.format.index_entries import (
    decode_offset_index,
    decode_time_index,
    encode_offset_index,
    encode_time_index,
)
from duralog.format.layout import BATCH_V2
from oracle.dump_check import dump_complaints
from oracle.kafka_process import KafkaProcess
from oracle.random_records import random_records
from tests.support.places import ROOT

pytestmark = pytest.mark.interop

START_MS = 1_700_000_000_000
SMALL: dict[str, object] = {
    "internal.segment.bytes": 100_000,
    "retention.ms": -1,
    "message.timestamp.after.max.ms": 2**62,
}
TOPICS: dict[str, dict[str, object]] = {
    "usual": {},
    "every-batch-indexed": {"index.interval.bytes": 0},
    "small-indexes": {"index.interval.bytes": 0, "segment.index.bytes": 100},
    "preallocated": {"preallocate": True},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recompressed": {"compression.type": "lz4"},
}
CODECS = [codec.label for codec in Codec]

FILLING = """
import sys
import duralog
from tests.interop.store.test_dump import fill

store = duralog.open(sys.argv[1])
fill(store, seed=2)
print("filled", flush=True)
sys.stdin.read()
"""


def fill(store: duralog.Store, seed: int) -> None:
    """Segments and batches of all sizes, times that jump, transactions of two producers that overlap."""
    for topic in store.topics():
        rng = random.Random(f"{seed} {topic}")
        log = store.partition(topic, 0)
        for turn in range(40):
            records = random_records(rng, rng.choice((1, 1, 3, 40)), base_offset=0, largest_value_bytes=300)
            log.append([_soon(rng, turn, record) for record in records], codec=rng.choice(CODECS))
            if turn % 10 == 5:
                log.roll()
            if turn % 6 == 0:
                in_transactions(log, turn)
        if seed % 2:
            log.flush()


def _soon(rng: random.Random, turn: int, record: Record) -> Record:
    return replace(record, offset=-1, timestamp_ms=START_MS + 100 * turn + rng.randrange(-250, 250))


def in_transactions(log: duralog.PartitionLog, turn: int) -> None:
    producers = (11, 12)
    epoch = max([one.producer_epoch for one in log.producers()], default=-1) + 1
    for producer_id in producers:
        for sequence in range(2):
            log.append(
                [Record(value=b"in a transaction", timestamp_ms=START_MS + 100 * turn)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
    for producer_id in producers:
        log.end_transaction(producer_id, epoch, commit=(turn + producer_id) % 3 == 0)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "store"
    with duralog.open(path) as store:
        for name, configs in TOPICS.items():
            store.create_topic(name, 1, SMALL | configs)
        fill(store, seed=1)
    return path


@pytest.fixture
def directory(filled: Path, tmp_path: Path) -> Path:
    return shutil.copytree(filled, tmp_path / "store")


def files(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(f"*-0/{pattern}"))


def test_after_a_clean_stop(kafka: KafkaProcess, directory: Path) -> None:
    assert dump_complaints(kafka, directory) == []
    assert len(files(directory, "*.log")) > 20
    assert len([path for path in files(directory, "*.txnindex") if path.stat().st_size]) > 12
    assert sum(path.stat().st_size for path in files(directory, "*.index")) > 8 * 100
    # Written on with, then stopped again.
    with duralog.open(directory) as store:
        fill(store, seed=3)
    assert dump_complaints(kafka, directory) == []


def test_after_deletions(kafka: KafkaProcess, directory: Path) -> None:
    with duralog.open(directory) as store:
        for name in store.topics():
            log = store.partition(name, 0)
            log.delete_records(log.end_offset // 3)
            log.truncate_to(log.end_offset * 2 // 3)
        removed = store.apply_retention()
        assert {removal.topic for removal in removed.removals} == {*TOPICS}
        fill(store, seed=4)
    assert dump_complaints(kafka, directory) == []


def test_after_a_kill_and_recovery(kafka: KafkaProcess, directory: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FILLING, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    answer = process.stdout.readline()
    process.kill()
    process.communicate()
    assert (answer, process.returncode) == ("filled\n", -signal.SIGKILL)
    # Indexes stay as large as they may become until somebody closes them.
    assert max(path.stat().st_size for path in files(directory, "*.index")) > 1_000_000
    with duralog.open(directory):
        pass
    assert dump_complaints(kafka, directory) == []
    assert max(path.stat().st_size for path in files(directory, "*.index")) < 10_000


def test_wrong_entries_are_seen(kafka: KafkaProcess, directory: Path) -> None:
    """Guards the tests above: the check does notice one entry that is off by one."""
    index, time_index, log = (
        max(files(directory, pattern), key=lambda path: path.stat().st_size)
        for pattern in ("*.index", "*.timeindex", "*.log")
    )
    entries = list(decode_offset_index(index.read_bytes(), int(index.stem)))
    entries[1] = replace(entries[1], offset=entries[1].offset - 1)
    index.write_bytes(encode_offset_index(entries, int(index.stem)))
    times = list(decode_time_index(time_index.read_bytes(), int(time_index.stem)))
    times[-1] = replace(times[-1], timestamp_ms=times[-1].timestamp_ms + 1)
    time_index.write_bytes(encode_time_index(times, int(time_index.stem)))
    data = bytearray(log.read_bytes())
    data[BATCH_V2.at.producer_epoch] ^= 1
    log.write_bytes(data)
    complaints = "\n".join(dump_complaints(kafka, directory))
    assert f"Index offset: {entries[1].offset}, log offset: {entries[1].offset + 1}" in complaints
    assert f"Index timestamp: {times[-1].timestamp_ms}, log timestamp: {times[-1].timestamp_ms - 1}" in complaints
    assert "isvalid: false" in complaints
