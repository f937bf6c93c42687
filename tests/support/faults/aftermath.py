"""What must be possible after any crash: open the partition, find what was promised, and go on."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random

import pytest

from duralog.config import TopicConfig
from duralog.errors import OutOfOrderSequence
from duralog.format.batches import scan
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog
from tests.support.faults.crashing_files import START_MS, CrashingFiles, PowerLost
from tests.support.faults.ledger import Ledger
from tests.support.faults.partition import SMALL_SEGMENTS, Partition


def check_aftermath(found: CrashingFiles, ledger: Ledger, random: Random, config: TopicConfig = SMALL_SEGMENTS) -> None:
    """Start on the disk that a crash has left. Nothing of what is passed in is to be used afterwards."""
    if random.random() < 0.3:
        found = crash_while_opening(found, random, config)
    partition = Partition(found, config=config)
    log = partition.open()
    ledger.check(log)
    check_log_files(found, partition, log)
    check_opens_alike(found, log, random, config)
    ledger.found(log)
    check_repeated_batches(log, ledger)
    check_takes_appends(partition, log, ledger, random)


def crash_while_opening(found: CrashingFiles, random: Random, config: TopicConfig) -> CrashingFiles:
    """Lose power again before the partition is open, or right after."""
    found.lose_power_after(random.randint(0, 20))
    with suppress(PowerLost):
        Partition(found, config=config).open()
    return found.after_power_loss(random.getrandbits(32))


def check_log_files(found: CrashingFiles, partition: Partition, log: PartitionLog) -> None:
    """Every log file holds valid batches from end to end, in the order of their offsets, none beyond the next file."""
    contents = {path: data for path, data in found.contents(partition.folder).items() if path.endswith(".log")}
    assert len(contents) == len(log.segments)
    last_offset = -1
    for (path, data), segment in zip(sorted(contents.items()), log.segments, strict=True):
        assert segment.base_offset > last_offset
        end = 0
        for batch in scan(data, end=segment.size_bytes):
            assert batch.crc_ok, f"{path}: position {batch.position}"
            assert batch.base_offset > last_offset
            last_offset = batch.last_offset
            end = batch.position + batch.size_bytes
        assert end == segment.size_bytes, f"{path}: {segment.size_bytes - end} bytes at the end are no batch"
        assert not any(data[end:])
        assert end == len(data) or partition.config.preallocate
    assert last_offset < log.end_offset


def check_opens_alike(found: CrashingFiles, log: PartitionLog, random: Random, config: TopicConfig) -> None:
    """A process that dies right after opening, or stops in order, leaves a log that opens the same."""
    again = found.after_kill()
    if random.random() < 0.5:
        stopping = Partition(again, config=config)
        stopping.close(stopping.open())
    reopened = Partition(again, config=config).open()
    before, after = summary(log), summary(reopened)
    assert {name: after[name] for name in before if name in after} == {
        name: before[name] for name in before if name in after
    }


def summary(log: PartitionLog) -> dict[str, object]:
    """What must not depend on how the log was closed."""
    start = log.start_offset
    told: dict[str, object] = {
        "start": start,
        "end": log.end_offset,
        "records": list(log.read(start)),
        "segments": [(segment.base_offset, segment.size_bytes) for segment in log.segments],
    }
    # What is below the start of the log is known as long as there is a snapshot from before, as with Kafka.
    producers = [entry for entry in log.producers() if entry.last_offset >= start]
    told["producers"] = sorted((entry.producer_id, entry.last_sequence, entry.last_offset) for entry in producers)
    if not any(0 <= entry.transaction_first_offset < start for entry in log.producers()):
        told["stable"] = log.last_stable_offset
        told["committed"] = list(log.read(start, isolation="read_committed"))
    return told


def check_repeated_batches(log: PartitionLog, ledger: Ledger) -> None:
    """A producer that did not get an answer sends its last batch again: it must not be stored twice."""
    end_offset = log.end_offset
    for batch in ledger.sent.values():
        if batch.base_offset < log.start_offset:
            continue
        send = partial(
            log.append,
            batch.records,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            is_transactional=batch.is_transactional,
        )
        result = send(base_sequence=batch.base_sequence)
        assert result.duplicate
        assert (result.base_offset, result.last_offset) == (batch.base_offset, batch.last_offset)
        with pytest.raises(OutOfOrderSequence):
            send(base_sequence=batch.next_sequence + 1)
    assert log.end_offset == end_offset


def check_takes_appends(partition: Partition, log: PartitionLog, ledger: Ledger, random: Random) -> None:
    """The log continues where it ended, and what is flushed now survives the next crash together with all before."""
    for number in range(3):
        records = [Record(key=b"after", value=bytes(100) + bytes([number]), timestamp_ms=START_MS)]
        entries = ledger.try_records(records)
        assert log.append(records).base_offset == ledger.end_offset
        ledger.appended(entries)
    log.flush()
    ledger.flushed()
    assert isinstance(partition.files, CrashingFiles)
    last = partition.files.after_power_loss(random.getrandbits(32))
    ledger.check(Partition(last, config=partition.config).open())
