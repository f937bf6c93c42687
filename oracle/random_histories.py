"""Random histories of a keyed log, to be compacted by Kafka and by duralog: batches, rolls, and when the cleaner runs.

Everything that meets a cleaner is in them: few keys and many, empty and long ones, tombstones, headers, all codecs side
by side, batches of one record and of hundreds, log append time, idempotent producers, transactions that commit, abort,
interleave, span segments or stay open, the old formats alone and between new batches, offsets that are missing,
records without a key, maps that hold a handful of keys, and clocks that run past the delete horizons. A history is the
same for the same seed, and known in advance: compaction does not move the end of a log.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from duralog.format import control_records, message_set, record_batch
from duralog.format.compression import Codec
from duralog.format.control_records import ControlType, EndTransactionMarker, LeaderChange
from duralog.format.record import Header, Record, TimestampType

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
MAP_ENTRY_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What is appended, and how the log is cleaned afterwards."""

    batches: Sequence[bytes | None]
    """To be appended as they are, one after the other; None starts a new segment."""
    written_ms: int
    """When: what the files of new segments are dated, and what the clock of the log says."""
    now_ms: int
    """When the cleaner runs."""
    map_bytes: int
    load_factor: float
    buffer_bytes: int
    log_start_offset: int
    """What is below was deleted, and its segments have not gone yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    seed: int
    configs: dict[str, int | str]
    """Of the topic."""
    first_dirty_offset: int
    """Up to here the log counts as compacted before the first stage."""
    stages: Sequence[Stage]


def random_history(seed: int) -> History:
    rng = random.Random(seed)
    segment_bytes = rng.choice((1_500, 4_000, 12_000, 60_000))
    delete_retention_ms = rng.choice((0, 1000, 3_600_000, DAY_MS, DAY_MS, 2**63 - 1))
    configs: dict[str, int | str] = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": segment_bytes,
        "index.interval.bytes": rng.choice((0, 100, 1000, 4096)),
        "segment.index.bytes": rng.choice((120, 1200, 1200, 1 << 20, 1 << 20)),
        "delete.retention.ms": delete_retention_ms,
        "min.compaction.lag.ms": rng.choice((0, 0, 0, 2000)),
    }
    maker = _Maker(rng, segment_bytes)
    map_entries = rng.choice(((20, 40, 100), (20_000,)))
    is_small = max(map_entries) < 20_000
    if is_small:
        # Each round groups segments by their sizes, which the round before made: sizes must be the same for both.
        maker.codecs = [codec for codec in maker.codecs if codec not in (Codec.SNAPPY, Codec.ZSTD)] or [Codec.NONE]
    stages = []
    now_ms = START_MS
    log_start_offset = first_dirty_offset = 0
    for number in range(rng.choice((1, 2, 3))):
        batches = list(maker.batches(150 if is_small else 400, is_first=number == 0))
        written_ms = max(now_ms, maker.time_ms) + rng.randrange(1000)
        retained_ms = min(delete_retention_ms, DAY_MS)
        now_ms = written_ms + rng.choice((1, 1, 1000, retained_ms, retained_ms + 1, 2 * DAY_MS))
        if number == 0 and rng.random() < 0.25:
            first_dirty_offset = rng.choice(maker.first_offsets)
        if rng.random() < 0.1:
            log_start_offset = max(log_start_offset, rng.choice(maker.first_offsets))
        stages.append(
            Stage(
                batches=batches,
                written_ms=written_ms,
                now_ms=now_ms,
                map_bytes=MAP_ENTRY_BYTES * rng.choice(map_entries),
                load_factor=rng.choice((0.5, 0.9, 0.9, 1.0)),
                buffer_bytes=rng.choice((300, 4096, 256 << 10)),
                log_start_offset=log_start_offset,
            )
        )
        maker.time_ms = now_ms
    if maker.transactional and (is_small or first_dirty_offset or log_start_offset):
        # A cleaning that starts in the middle of a segment reads it from an entry of the offset index on. Where the
        # marker of an aborted transaction lies before that, Kafka takes what was committed after it for aborted, and
        # leaves old values; duralog does not. Without entries both read the segment from its start.
        configs["index.interval.bytes"] = 1 << 20
    return History(seed=seed, configs=configs, first_dirty_offset=first_dirty_offset, stages=stages)


_Encode = Callable[[Sequence[Record]], bytes]


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False


@dataclass
class _Maker:
    """Makes batches, and remembers what the next ones must fit to: offsets, times, producers."""

    rng: random.Random
    segment_bytes: int
    offset: int = 0
    time_ms: int = START_MS
    leader_epoch: int = 0
    codecs: Sequence[Codec] = ()
    magics: Sequence[int] = ()
    keys: Sequence[bytes] = ()
    first_offsets: list[int] = field(default_factory=list)
    """Of all batches."""
    idempotent: list[_Producer] = field(default_factory=list)
    transactional: list[_Producer] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng
        self.codecs = rng.choice(((Codec.NONE,), rng.sample(list(Codec), rng.randint(1, 5))))
        self.magics = rng.choice(((2,), (2,), (2,), (0, 1), (0, 1, 2), (1, 2)))
        self.keys = [_key(rng, number) for number in range(rng.choice((1, 5, 30, 200)))]
        sequence = rng.choice((0, 0, 2**31 - 20))
        self.idempotent = [_Producer(number, sequence=sequence) for number in range(rng.choice((0, 1, 3)))]
        self.transactional = [_Producer(1000 + number) for number in range(rng.choice((0, 0, 1, 3)))]
        self._keyless_share = rng.choice((0.0, 0.0, 0.0, 0.05))
        self._tombstone_share = rng.choice((0.0, 0.1, 0.4))
        self._gap_share = rng.choice((0.0, 0.0, 0.2))
        self._largest_batch = rng.choice((1, 5, 40, 300))
        self._records_made = 0

    def batches(self, most_records: int, *, is_first: bool) -> Iterator[bytes | None]:
        """One stage. The old formats are over after the first one."""
        rng = self.rng
        if not is_first:
            self.magics = (2,)
        enough = self._records_made + rng.choice((20, 150, most_records))
        while self._records_made < enough:
            if rng.random() < self._gap_share:
                self.offset += rng.choice((1, 7, 1000, 1000, 2**31 - 5))
            if rng.random() < 0.02:
                yield None
            if rng.random() < 0.02:
                self.leader_epoch += rng.randrange(1, 3)
            self.first_offsets.append(self.offset)
            yield self._batch()
        if rng.random() < 0.7:
            for producer in self.transactional:
                if producer.in_transaction and rng.random() < 0.8:
                    yield self._end(producer)
        if rng.random() < 0.8:
            yield None
            if rng.random() < 0.5:
                yield self._plain(max(self.magics))

    def _batch(self) -> bytes:
        rng = self.rng
        self.time_ms += rng.randrange(400)
        magic = rng.choice(self.magics)
        kind = rng.random()
        if magic < 2 or kind < 0.3:
            return self._plain(magic)
        if kind < 0.31:
            return self._leader_change()
        if kind < 0.6 and self.idempotent:
            producer = rng.choice(self.idempotent)
            if rng.random() < 0.05:
                producer.epoch, producer.sequence = producer.epoch + 1, 0
            return self._of_producer(producer)
        if self.transactional:
            producer = rng.choice(self.transactional)
            if producer.in_transaction and rng.random() < 0.4:
                return self._end(producer)
            if not producer.in_transaction and rng.random() < 0.04:
                # A marker without a transaction, as a coordinator sends when the partition got no record of it.
                return self._end(producer)
            producer.in_transaction = True
            return self._of_producer(producer, is_transactional=True)
        return self._plain(magic)

    def _plain(self, magic: int) -> bytes:
        if magic == 2:
            return self._fitting(self._encoded)
        codec = self.rng.choice([codec for codec in self.codecs if codec <= Codec.LZ4] or [Codec.NONE])
        timestamp_type = TimestampType.LOG_APPEND_TIME if self.rng.random() < 0.1 else TimestampType.CREATE_TIME
        first = self.offset
        return self._fitting(
            lambda records: message_set.encode(
                [_without_headers(record) for record in records],
                magic=magic,
                base_offset=first,
                codec=codec,
                timestamp_type=timestamp_type,
                append_time_ms=self.time_ms,
            )
        )

    def _of_producer(self, producer: _Producer, *, is_transactional: bool = False) -> bytes:
        first = self.offset
        encoded = self._fitting(
            lambda records: self._encoded(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
                is_transactional=is_transactional,
            )
        )
        producer.sequence = (producer.sequence + self.offset - first) % 2**31
        return encoded

    def _encoded(self, records: Sequence[Record], **fields: int) -> bytes:
        rng = self.rng
        timestamp_type = TimestampType.LOG_APPEND_TIME if rng.random() < 0.1 else TimestampType.CREATE_TIME
        return record_batch.encode(
            records,
            base_offset=records[0].offset,
            codec=rng.choice(self.codecs),
            leader_epoch=self.leader_epoch,
            timestamp_type=timestamp_type,
            append_time_ms=self.time_ms,
            **fields,  # type: ignore[arg-type]
        )

    def _fitting(self, encode: _Encode) -> bytes:
        """Records of the next offsets, as many as a segment takes."""
        rng = self.rng
        records: list[Record] = []
        offset = self.offset
        for _ in range(rng.randint(1, self._largest_batch)):
            records.append(self._record(offset))
            offset += 1 if rng.random() >= self._gap_share / 10 else rng.choice((2, 50))
        while len(encoded := encode(records)) > self.segment_bytes and len(records) > 1:
            records = records[: len(records) // 2]
        self.offset = records[-1].offset + 1
        self._records_made += len(records)
        return encoded

    def _end(self, producer: _Producer) -> bytes:
        """The marker that ends a transaction; with a new epoch for the next one now and then."""
        rng = self.rng
        producer.in_transaction = False
        if rng.random() < 0.3:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        control_type = rng.choice((ControlType.COMMIT, ControlType.ABORT))
        marker = EndTransactionMarker(type=control_type, coordinator_epoch=rng.randrange(3))
        return self._control(
            control_records.encode(marker), producer_id=producer.producer_id, producer_epoch=producer.epoch
        )

    def _leader_change(self) -> bytes:
        return self._control(control_records.encode(LeaderChange(leader_id=1, voters=(), granting_voters=())))

    def _control(self, encoded: tuple[bytes, bytes | None], **producer: int) -> bytes:
        key, value = encoded
        record = Record(key=key, value=value, timestamp_ms=self.time_ms)
        batch = record_batch.encode(
            [record],
            base_offset=self.offset,
            leader_epoch=self.leader_epoch,
            is_transactional=bool(producer),
            is_control=True,
            **producer,  # type: ignore[arg-type]
        )
        self.offset += 1
        return batch

    def _record(self, offset: int) -> Record:
        rng = self.rng
        self.time_ms += rng.randrange(5)
        return Record(
            offset=offset,
            timestamp_ms=self.time_ms - rng.choice((0, 0, 0, 50, 5000)) if rng.random() > 0.01 else rng.choice((-1, 0)),
            key=None if rng.random() < self._keyless_share else rng.choice(self.keys),
            value=None if rng.random() < self._tombstone_share else _value(rng),
            headers=_headers(rng),
        )


def _key(rng: random.Random, number: int) -> bytes:
    """Of every length that makes a difference to MD5, which works on blocks of 64 bytes."""
    if number == 0:
        return b""
    length = rng.choice((3, 8, 8, 8, 20, 55, 56, 57, 63, 64, 65, 119, 120, 128, 300))
    return (b"%d-" % number + rng.randbytes(length))[:length]


def _value(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.05:
        return b""
    if kind < 0.1:
        return rng.randbytes(rng.randrange(1, 700))
    return b"value %d " % rng.randrange(1000) * rng.randrange(1, 6)


def _headers(rng: random.Random) -> Sequence[Header]:
    if rng.random() > 0.1:
        return ()
    return [(rng.choice(("", "h", "ä" * 20)), rng.choice((None, b"", b"x" * 70))) for _ in range(rng.randrange(1, 4))]


def _without_headers(record: Record) -> Record:
    return replace(record, headers=())
