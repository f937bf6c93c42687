"""A life of a partition: what a few producers, a cleaner of old data and an operator do to it, chosen by a seed.

Plain records, large batches, compressed ones, two idempotent and two transactional producers with transactions that
overlap, commits and aborts, rolls, flushes, deletions, now and then a clean stop and a new start. The ledger is told.
"""

from __future__ import annotations

from random import Random

from duralog.config import TopicConfig
from duralog.format.record import Record
from duralog.storage.log.partition_log import PartitionLog
from tests.support.faults.crashing_files import START_MS, CrashingFiles
from tests.support.faults.ledger import Ledger, Outcome
from tests.support.faults.partition import SMALL_SEGMENTS, Partition

_IDEMPOTENT = (11, 12)
_TRANSACTIONAL = (21, 22)
_CODECS = (None, None, None, "gzip", "snappy", "lz4", "zstd")


class Workload:
    """Steps on one partition. `log` changes when the partition is stopped and started."""

    def __init__(self, files: CrashingFiles, seed: int, config: TopicConfig = SMALL_SEGMENTS) -> None:
        self.ledger = Ledger()
        self.partition = Partition(files, config=config)
        self.log: PartitionLog = self.partition.open()
        self._random = Random(seed)
        self._time_ms = START_MS
        # As far as recovery knows, a log without a checkpoint may be any log, with gaps from compaction.
        self.append()
        self.flush()
        self.checkpoint()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        action = self._random.choices(
            [
                self.append,
                self.append_large,
                self.append_idempotent,
                self.append_transactional,
                self.end_transaction,
                self.roll,
                self.flush,
                self.catch_up,
                self.checkpoint,
                self.delete_records,
                self.delete_old_segments,
                self.restart,
            ],
            [6, 3, 4, 6, 3, 1, 2, 1, 1, 0.5, 0.5, 0.5],
        )[0]
        action()

    def append(self) -> None:
        self._append(self._records(self._random.randint(1, 4), 60))

    def append_large(self) -> None:
        self._append(self._records(self._random.randint(1, 3), 1500))

    def append_idempotent(self) -> None:
        self._append(self._records(self._random.randint(1, 3), 40), self._random.choice(_IDEMPOTENT))

    def append_transactional(self) -> None:
        producer_id = self._random.choice(_TRANSACTIONAL)
        self._append(self._records(self._random.randint(1, 3), 200), producer_id, is_transactional=True)

    def end_transaction(self) -> None:
        if self.ledger.open:
            producer_id = self._random.choice(sorted(self.ledger.open))
            outcome = self._random.choice((Outcome.COMMITTED, Outcome.ABORTED))
            marker = self.ledger.try_marker(producer_id)
            self.ledger.ending(producer_id, outcome)
            self.log.end_transaction(producer_id, 0, commit=outcome is Outcome.COMMITTED)
            self.ledger.appended(marker)
            self.ledger.ended(producer_id)

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()
        self.ledger.flushed()

    def catch_up(self) -> None:
        self.partition.catch_up()

    def checkpoint(self) -> None:
        self.partition.checkpoint(self.log)

    def delete_records(self) -> None:
        offset = self._random.randint(self.ledger.start_offset, self.ledger.end_offset)
        if self._random.random() < 0.7:
            offset = min(offset, self.ledger.start_offset + 10)
        self.ledger.start_offset = offset
        self.log.delete_records(offset)

    def delete_old_segments(self) -> None:
        self.partition.delete_old_segments(self.log)

    def restart(self) -> None:
        self.partition.close(self.log)
        self.ledger.flushed()
        self.log = self.partition.open()

    def _append(self, records: list[Record], producer_id: int = -1, *, is_transactional: bool = False) -> None:
        if producer_id < 0:
            entries = self.ledger.try_records(records)
            self.log.append(records, codec=self._random.choice(_CODECS))
        else:
            sent = self.ledger.sent.get(producer_id)
            sequence = 0 if sent is None else sent.next_sequence
            entries = self.ledger.try_records(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
            self.log.append(
                records,
                codec=self._random.choice(_CODECS),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        self.ledger.appended(entries)

    def _records(self, count: int, most_bytes: int) -> list[Record]:
        return [self._record(most_bytes) for _ in range(count)]

    def _record(self, most_bytes: int) -> Record:
        random = self._random
        self._time_ms += random.choice((-5, 0, 1, 10))
        value = random.randbytes(random.randint(0, most_bytes))
        return Record(
            key=random.choice((None, b"", b"key", random.randbytes(8))),
            value=random.choice((value, value, value[:1] * most_bytes, None)),
            timestamp_ms=self._time_ms,
            headers=random.choice(((), (), (("h", b"x"), ("i", None)))),
        )
