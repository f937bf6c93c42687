"""Batches that no ordinary client writes, compacted by both: what Kafka's cleaner takes, duralog makes the same of.

Each stands at the beginning of a log, with a record before the odd one that a later batch supersedes: so the batch has
to be built anew around it. Where Kafka's cleaner dies of the batch, and would never clean the partition again, duralog
copies it as it is, says so, and cleans the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from duralog.format import record_batch
from duralog.format.batches import decode_records, scan
from duralog.format.compression import Codec, compress
from duralog.format.record import Record
from duralog.format.varint import encode_varint
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.compaction.compact import compact_log
from duralog.storage.compaction.report import CompactionReport
from oracle.cleaned_folders import differences, open_log, quick_folder
from oracle.cleaner import CleanerJob, CleanerPass, clean_by_kafka
from oracle.hostile_batches import batch, message, record, wrapper
from oracle.kafka_process import KafkaProcess, KafkaRefusedError

pytestmark = pytest.mark.interop

NOW_MS = 1_700_000_100_000
CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": 1 << 20, "index.interval.bytes": 0}
GONE = record(key=b"\x08gone")
HEADER = b"\x02\x02h\x02x"

NOT_UTF8 = {
    "a header key that is not UTF-8": b"\x02\x06\xff\xfeh\x02x",
    "a header key that is cut UTF-8": b"\x02\x04\xe4\xb8\x02x",
    "a header key that is a surrogate": b"\x02\x06\xed\xa0\x80\x02x",
}
"""Readers see replacement characters there. Kafka's cleaner writes them into the log, duralog keeps the bytes."""
ONLY_KAFKA_DIES_OF = [
    "a timestamp long ago",
    "a timestamp that overflows",
    "a transaction without a producer",
    "an offset before the batch",
]
"""Kafka reads them, and refuses to write them."""


def _odd_records() -> dict[str, bytes]:
    """Records at offset 1 of a batch."""
    length = len(record(offset_delta=1)) - 1
    return {
        "nothing odd": record(offset_delta=1),
        "record attributes": record(offset_delta=1, attributes=0xFF),
        "a length in five bytes": record(offset_delta=1, length=bytes([0x80 | length * 2, 0x80, 0x80, 0x80, 0])),
        "a key length in two bytes": record(offset_delta=1, key=b"\x86\x00key"),
        "a value length in two bytes": record(offset_delta=1, value=b"\x8a\x00value"),
        "a header count in two bytes": record(offset_delta=1, headers=b"\x82\x00" + HEADER[1:]),
        "a key length of -2": record(offset_delta=1, key=encode_varint(-2)),
        "a value length of -100": record(offset_delta=1, value=encode_varint(-100)),
        "a header": record(offset_delta=1, headers=HEADER),
        "a header value length of -5": record(offset_delta=1, headers=b"\x02\x02h" + encode_varint(-5)),
        "a header with an empty key": record(offset_delta=1, headers=b"\x02\x00\x02x"),
        **{name: record(offset_delta=1, headers=headers) for name, headers in NOT_UTF8.items()},
        "a timestamp long ago": record(offset_delta=1, timestamp_delta=-(10**15)),
        "a timestamp that overflows": record(offset_delta=1, timestamp_delta=2**63 - 1),
        "an offset past the last": record(offset_delta=5),
        "an offset before the batch": record(offset_delta=-1),
        "an offset that falls back": record(offset_delta=0),
        "a header count that is too large": record(offset_delta=1, headers=encode_varint(100) + HEADER[1:]),
        "a header without a key": record(offset_delta=1, headers=b"\x02" + encode_varint(-1) + b"\x02x"),
        "a value that ends early": record(offset_delta=1, value=encode_varint(3) + b"value"),
        "a value past the record": record(offset_delta=1, value=encode_varint(50) + b"value"),
    }


def _odd_batches() -> Iterator[tuple[str, bytes]]:
    for name, odd in _odd_records().items():
        yield name, batch(GONE + odd, count=2, last_offset_delta=1, base_offset=0)
    two = GONE + record(offset_delta=1)
    fields = {"count": 2, "last_offset_delta": 1, "base_offset": 0}
    yield "unused attribute bits", batch(two, attributes=0x7F80, **fields)
    yield "negative attributes", batch(two, attributes=-0x80, **fields)
    yield "a transaction without a producer", batch(two, attributes=0x10, **fields)
    yield "a control batch with any key", batch(two, attributes=0x30, **fields)
    yield "log append time without a time", batch(two, attributes=0x08, max_timestamp_ms=-1, **fields)
    yield "the largest timestamp too small", batch(two, max_timestamp_ms=3, **fields)
    yield "the largest timestamp too large", batch(two, max_timestamp_ms=2**60, **fields)
    yield "a last offset far behind", batch(two, count=2, last_offset_delta=8, base_offset=0)
    yield "a last offset too small", batch(two, count=2, last_offset_delta=0, base_offset=0)
    yield "a record count too large", batch(two, count=3, last_offset_delta=1, base_offset=0)
    yield "a record count too small", batch(two, count=1, last_offset_delta=1, base_offset=0)
    yield "codec 7", batch(two, attributes=7, **fields)
    for codec in list(Codec)[1:]:
        packed = compress(codec, two)
        yield codec.label, batch(packed, attributes=codec, **fields)
        yield f"{codec.label}, cut", batch(packed[: len(packed) // 2], attributes=codec, **fields)
        yield (
            f"{codec.label} of nothing",
            batch(compress(codec, b""), attributes=codec, count=0, last_offset_delta=1, base_offset=0),
        )
    yield "kept whole", batch(record(), base_offset=0)
    yield "kept whole with unused attribute bits", batch(record(), attributes=0x7F80, base_offset=0)
    yield (
        "a horizon in the past",
        batch(record(value=encode_varint(-1)), attributes=0x40, base_timestamp_ms=NOW_MS - 1, base_offset=0),
    )
    yield (
        "a horizon now",
        batch(record(value=encode_varint(-1)), attributes=0x40, base_timestamp_ms=NOW_MS, base_offset=0),
    )
    yield (
        "a horizon in the future",
        batch(record(value=encode_varint(-1)), attributes=0x40, base_timestamp_ms=NOW_MS + 1, base_offset=0),
    )
    for magic in (0, 1):
        plain = message(magic, b"gone", b"1") + message(magic, b"key", b"2", offset=1)
        yield f"v{magic}", plain
        yield f"v{magic}, a tombstone", message(magic, b"gone", b"1") + message(magic, b"key", None, offset=1)
        yield f"v{magic}, no key", message(magic, b"gone", b"1") + message(magic, None, b"1", offset=1)
        yield f"v{magic}, attributes", message(magic, b"key", b"1", attributes=0x70)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            yield f"v{magic} {codec.label}", wrapper(magic, plain, codec=codec)
        yield f"v{magic}, a wrapper with a key", wrapper(magic, plain, key=b"key")
        yield f"v{magic}, a wrapper far behind", wrapper(magic, plain, offset=7)


ODD_BATCHES = dict(_odd_batches())


@dataclass
class Compacted:
    kafkas: Path
    ours: Path
    kafka_died_of: str | None
    report: CompactionReport
    before: bytes


@pytest.fixture(scope="module")
def compacted(kafka: KafkaProcess) -> Iterator[dict[str, Compacted]]:
    with quick_folder() as work:
        pairs = {
            name: (Path(work) / f"kafkas{number}-0", Path(work) / f"ours{number}-0")
            for number, name in enumerate(ODD_BATCHES)
        }
        for name, (kafkas, ours) in pairs.items():
            _write(kafkas, ODD_BATCHES[name])
            shutil.copytree(kafkas, ours)
        cleaner_pass = CleanerPass(now_ms=NOW_MS, map_bytes=2400)
        jobs = [CleanerJob(folder=kafkas, configs=CONFIGS, passes=[cleaner_pass]) for kafkas, _ in pairs.values()]
        compacted = {}
        for (name, (kafkas, ours)), rounds in zip(pairs.items(), clean_by_kafka(kafka, jobs), strict=True):
            before = (ours / f"{0:020}.log").read_bytes()
            died_of = str(rounds) if isinstance(rounds, KafkaRefusedError) else None
            compacted[name] = Compacted(kafkas, ours, died_of, _compact(ours), before)
        yield compacted


def _write(folder: Path, odd: bytes) -> None:
    log = open_log(folder, CONFIGS, NOW_MS)
    log.append_batches(odd, origin=AppendOrigin.AS_IS)
    for offset, key in ((10, b"gone"), (11, b"else")):
        later = record_batch.encode([Record(key=key, value=b"v", timestamp_ms=NOW_MS)], base_offset=offset)
        log.append_batches(later, origin=AppendOrigin.AS_IS)
    log.roll()
    log.close()


def _compact(folder: Path) -> CompactionReport:
    log = open_log(folder, CONFIGS, NOW_MS)
    try:
        return compact_log(log, first_dirty_offset=0, end=12, now_ms=NOW_MS)
    finally:
        log.close()


def _records(folder: Path) -> list[Record]:
    data = (folder / f"{0:020}.log").read_bytes()
    return [record for found in scan(data) for record in decode_records(data, found)]


@pytest.mark.parametrize("name", [name for name in ODD_BATCHES if name not in (*NOT_UTF8, *ONLY_KAFKA_DIES_OF)])
def test_both_make_the_same_of_it_or_duralog_leaves_it(compacted: dict[str, Compacted], name: str) -> None:
    found = compacted[name]
    if found.kafka_died_of is None:
        assert differences(found.kafkas, found.ours, CONFIGS) == []
        assert found.report.corrupt_batches == []
    else:
        assert (found.ours / f"{0:020}.log").read_bytes() == found.before
        assert len(found.report.corrupt_batches) == 1


@pytest.mark.parametrize("name", NOT_UTF8)
def test_header_keys_keep_their_bytes(compacted: dict[str, Compacted], name: str) -> None:
    found = compacted[name]
    kept = [NOT_UTF8[name] in (folder / f"{0:020}.log").read_bytes() for folder in (found.ours, found.kafkas)]
    assert kept == [True, False]
    assert [replace(one, headers=()) for one in _records(found.ours)] == [
        replace(one, headers=()) for one in _records(found.kafkas)
    ]


@pytest.mark.parametrize("name", ONLY_KAFKA_DIES_OF)
def test_what_can_be_read_can_be_cleaned(compacted: dict[str, Compacted], name: str) -> None:
    found = compacted[name]
    assert found.kafka_died_of is not None
    assert [(record.key, record.value) for record in _records(found.ours)] == [
        (b"key", b"value"),
        (b"gone", b"v"),
        (b"else", b"v"),
    ]
    (first, *_) = scan(found.before)
    assert _records(found.ours)[0] == decode_records(found.before, first)[1]
