"""Logs of formats v0 and v1, mixed with v2, as a life of many Kafka versions would have left them."""

from __future__ import annotations

from random import Random

from duralog.format import message_set, record_batch
from duralog.format.batches import decode_records, scan
from duralog.format.compression import Codec
from duralog.format.record import Record, TimestampType

START_MS = 1_600_000_000_000
_LEGACY_CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


class LegacyWriter:
    """Makes the bytes of one run of batches after the other; offsets go on, with gaps as compaction leaves them."""

    def __init__(self, seed: int, *, v2: bool = True) -> None:
        self._random = Random(seed)
        self._with_v2 = v2
        self.next_offset = 0

    def batches(self, count: int) -> bytes:
        return b"".join(self._run() for _ in range(count))

    def _run(self) -> bytes:
        random = self._random
        magic = random.choice((0, 1, 1, 2) if self._with_v2 else (0, 1))
        records = [self._record(magic) for _ in range(random.randint(1, 6))]
        append_time = START_MS + random.randrange(3) if random.random() < 0.3 and magic > 0 else None
        timestamp_type = TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME
        if magic == 2:
            return record_batch.encode(
                records,
                base_offset=records[0].offset,
                codec=random.choice(list(Codec)),
                timestamp_type=timestamp_type,
                append_time_ms=append_time,
            )
        return message_set.encode(
            records,
            magic=magic,
            base_offset=records[0].offset,
            codec=random.choice(_LEGACY_CODECS),
            timestamp_type=timestamp_type,
            append_time_ms=append_time,
        )

    def _record(self, magic: int) -> Record:
        random = self._random
        offset = self.next_offset + (random.randint(1, 5) if random.random() < 0.1 else 0)
        self.next_offset = offset + 1
        return Record(
            key=random.choice((None, b"", b"k%d" % random.randrange(5), random.randbytes(random.randrange(80)))),
            value=random.choice((None, b"", random.randbytes(random.randrange(300)))),
            timestamp_ms=-1 if magic == 0 or random.random() < 0.1 else START_MS + random.randrange(1000),
            headers=[("h", b"x")] if magic == 2 and random.random() < 0.5 else (),
            offset=offset,
        )


def records_in(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What a log's bytes hold, by the plain decoder: offset, timestamp, key, value."""
    return [
        (record.offset, record.timestamp_ms, record.key, record.value)
        for batch in scan(data)
        for record in decode_records(data, batch)
    ]
