"""A log with transactions of several producers, some aborted, over several segments; and what was committed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
PRODUCERS = 4
CONFIG = {"log.index.interval.bytes": 500, "log.retention.ms": -1, "log.cleaner.enable": False, "log.roll.ms": 10**15}
"""Of a store that holds it."""


def write_history(log: PartitionLog, *, seed: int, steps: int, first_producer: int = 0) -> list[bytes]:
    """Append at random. Returns the values that a reader of committed records is to see, in order."""
    chance = random.Random(seed)
    sequences = dict.fromkeys(range(first_producer, first_producer + PRODUCERS), 0)
    values: list[tuple[bytes, int | None]] = []
    """Each value, and the number of its transaction."""
    open_transactions: dict[int, int] = {}
    aborted: set[int] = set()
    transactions = 0

    def end(producer: int, *, commit: bool) -> None:
        log.end_transaction(producer, 0, commit=commit)
        number = open_transactions.pop(producer, None)
        if number is not None and not commit:
            aborted.add(number)

    for step in range(steps):
        producer = chance.choice([*sequences])
        records = [
            Record(key=b"%d" % chance.randrange(20), value=b"%d/%d" % (step, number), timestamp_ms=NOW_MS + step)
            for number in range(chance.randint(1, 4))
        ]
        match chance.randrange(20):
            case 0:
                log.roll()
            case 1:
                log.append(records)
                values += [(record.value or b"", None) for record in records]
            case 2 | 3 | 4 | 5:
                # Also of a producer that has no records here.
                end(producer, commit=chance.random() < 0.6)
            case _:
                log.append(
                    records,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                    is_transactional=True,
                )
                sequences[producer] += len(records)
                if producer not in open_transactions:
                    transactions += 1
                    open_transactions[producer] = transactions
                values += [(record.value or b"", open_transactions[producer]) for record in records]
    for producer in list(open_transactions):
        end(producer, commit=chance.random() < 0.5)
    assert aborted
    return [value for value, number in values if number not in aborted]


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    """By its last entry."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 34])


def tear(path: Path) -> None:
    """In the middle of its first entry."""
    path.write_bytes(path.read_bytes()[:20])


LOSSES: dict[str, Callable[[Path], None]] = {"missing": remove, "empty": empty, "short": shorten, "torn": tear}


def lose_indexes(folder: Path, loss: Callable[[Path], None]) -> None:
    indexes = sorted(folder.glob("*.txnindex"))
    assert len(indexes) > 1
    for path in indexes:
        loss(path)
