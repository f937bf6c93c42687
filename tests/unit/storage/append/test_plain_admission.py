"""The short way into a log admits what the long way takes as it is, and does the same; all else it leaves to it."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from duralog.config import TopicConfig
from duralog.errors import DuralogError
from duralog.format import record_batch
from duralog.format.compression import Codec
from duralog.format.layout import BATCH_V2
from duralog.format.record import Record, TimestampType
from duralog.storage.append.batch_admission import Stamp
from duralog.storage.append.plain_admission import admit_plain, plain_rules
from duralog.storage.append.validation import ValidBatches, validate
from oracle.hostile_batches import batch as odd_batch
from oracle.hostile_batches import record as odd_record
from oracle.hostile_batches import seal

NOW_MS = 1_700_000_000_000
NEXT_OFFSET = 1234
EPOCH = 7


def _config(**values: object) -> TopicConfig:
    return TopicConfig().with_overrides({name.replace("_", "."): value for name, value in values.items()})


CONFIGS = {
    "default": _config(),
    "compacted": _config(cleanup_policy="compact"),
    "uncompressed": _config(compression_type="uncompressed"),
    "zstd": _config(compression_type="zstd"),
    "append time": _config(message_timestamp_type="LogAppendTime"),
    "small": _config(max_message_bytes=100),
    "strict": _config(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000),
}


def _batch(*records: Record, **options: Any) -> bytes:
    return record_batch.encode(records or [Record(key=b"k", value=b"v", timestamp_ms=NOW_MS)], **options)


def _changed(at: int, change: bytes) -> bytes:
    whole = bytearray(_batch())
    whole[at : at + len(change)] = change
    return seal(whole)


_RECORD = Record(key=b"k", value=b"v", timestamp_ms=NOW_MS)
BATCHES = {
    "one record": _batch(),
    "many records": _batch(*[Record(key=b"%d" % n, value=b"v" * n, timestamp_ms=NOW_MS + n) for n in range(50)]),
    "headers": _batch(Record(key=b"k", value=b"v", timestamp_ms=NOW_MS, headers=[("a", b"b"), ("c", None)])),
    "no key": _batch(_RECORD, Record(value=b"v", timestamp_ms=NOW_MS)),
    "no timestamp": _batch(Record(key=b"k", value=b"v", timestamp_ms=-1)),
    "one without timestamp": _batch(_RECORD, Record(key=b"k", value=b"v", timestamp_ms=-1)),
    "old": _batch(Record(key=b"k", value=b"v", timestamp_ms=NOW_MS - 5000)),
    "in the future": _batch(Record(key=b"k", value=b"v", timestamp_ms=NOW_MS + 7_200_000)),
    "idempotent": _batch(producer_id=5, producer_epoch=2, base_sequence=9),
    "transactional": _batch(producer_id=5, producer_epoch=2, base_sequence=9, is_transactional=True),
    "negative sequence": _batch(producer_id=5, producer_epoch=2, base_sequence=-1),
    "control": _batch(is_control=True),
    "append time": _batch(timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=NOW_MS),
    "gzip": _batch(codec=Codec.GZIP),
    "base offset": _batch(base_offset=3),
    "two batches": _batch() + _batch(),
    "half a batch more": _batch() + _batch()[:20],
    "half a batch": _batch()[:-1],
    "nothing": b"",
    "wrong checksum": _batch()[:-1] + b"X",
    "wrong maximum": _changed(BATCH_V2.at.max_timestamp, struct.pack(">q", NOW_MS + 1)),
    "unknown attributes": _changed(BATCH_V2.at.attributes, struct.pack(">h", 0x400)),
    "delete horizon": _changed(BATCH_V2.at.attributes, struct.pack(">h", 0x40)),
    "count": odd_batch(odd_record(), count=2, last_offset_delta=1, base_offset=0),
    "delta": odd_batch(odd_record(), last_offset_delta=3, base_offset=0),
    "no records": odd_batch(b"", count=0, last_offset_delta=-1, base_offset=0),
    "offset deltas": odd_batch(odd_record(offset_delta=4), base_offset=0),
    "attributes of a record": odd_batch(odd_record(attributes=1), base_offset=0),
    "record length": odd_batch(odd_record(length=b"\x01"), base_offset=0),
}


def _plain(data: bytearray, config: TopicConfig, next_offset: int = NEXT_OFFSET) -> ValidBatches | None:
    return admit_plain(data, plain_rules(config), next_offset, EPOCH, NOW_MS)


def _long(data: bytearray, config: TopicConfig, next_offset: int = NEXT_OFFSET) -> ValidBatches:
    return validate(data, config=config, stamp=Stamp(next_offset, EPOCH, NOW_MS))


def _told(batches: ValidBatches) -> tuple[object, ...]:
    whole = b"".join(bytes(buffer) for buffer in batches.buffers)
    return (whole, tuple(batches.extents), tuple(batches.producer_batches), *batches[3:])


def _same(data: bytes, config: TopicConfig, next_offset: int = NEXT_OFFSET) -> bool:
    """Whether the short way took it; both ways must agree on all that follows."""
    short, long = bytearray(data), bytearray(data)
    admitted = _plain(short, config, next_offset)
    if admitted is None:
        assert short == data
        return False
    expected = _long(long, config, next_offset)
    assert _told(admitted) == _told(expected)
    assert short == long
    return True


@pytest.mark.parametrize("data", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_both_ways_are_one(data: bytes, config: TopicConfig) -> None:
    _same(data, config)


TAKEN = {
    *("one record", "many records", "headers", "no key", "no timestamp", "one without timestamp", "old"),
    *("idempotent", "transactional", "attributes of a record"),
}


def test_what_goes_the_short_way() -> None:
    taken = {name for name, data in BATCHES.items() if _same(data, CONFIGS["default"])}
    assert taken == TAKEN
    assert {name for name, data in BATCHES.items() if _same(data, CONFIGS["uncompressed"])} == TAKEN
    assert {name for name, data in BATCHES.items() if _same(data, CONFIGS["compacted"])} == TAKEN - {"no key"}
    assert not any(_same(data, CONFIGS["zstd"]) or _same(data, CONFIGS["append time"]) for data in BATCHES.values())
    assert not _same(BATCHES["many records"], CONFIGS["small"])
    assert not _same(BATCHES["old"], CONFIGS["strict"])


def test_the_last_offsets_there_are() -> None:
    two = _batch(_RECORD, _RECORD)
    assert _same(two, CONFIGS["default"], 2**63 - 2)
    assert not _same(two, CONFIGS["default"], 2**63 - 1)


def test_bytes_that_cannot_be_written_to_are_for_the_long_way() -> None:
    rules = plain_rules(CONFIGS["default"])
    for data in (_batch(), memoryview(_batch())):
        assert admit_plain(data, rules, 0, 0, NOW_MS) is None


def test_any_bytes() -> None:
    """What was changed at random is refused by the long way wherever the short one does not take it as it is."""
    dice = random.Random(5)
    base = BATCHES["many records"]
    for number in range(4000):
        changed = bytearray(base)
        for _ in range(dice.randrange(1, 3)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        data = seal(changed) if number % 2 else bytes(changed)
        if not _same(data, CONFIGS["default"]):
            try:
                _long(bytearray(data), CONFIGS["default"])
            except DuralogError:
                continue
