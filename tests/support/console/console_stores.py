"""Log directories to look at with the console, each with figures that the tests know."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import confluent_kafka

import duralog
from bench.workers import console_store
from duralog.format.filenames import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT
from duralog.testing import running_broker
from tests.support.places import GOLDEN

GOLDEN_STORE = GOLDEN / "store"
KEEP_EVERYTHING = {"log.retention.ms": -1, "log.cleaner.enable": False}

FIRST_MS = 1_700_000_000_000
MINUTE_MS = 60_000

ORDERS = 250
ORDERS_A_SEGMENT = 50
CUSTOMERS = 20
PROFILES_A_SEGMENT = 30
COMMITTED = 220
"""What the group `billing` has consumed of the orders."""

EVENTS = 1_200
EVENT_PARTITIONS = 3

MANY_PARTITIONS = 1000
MANY_SEGMENTS = 2

HARM = "window.harmed = 1"
HOSTILE_TEXTS = (
    f'<img src=x onerror="{HARM}">',
    f"<script>{HARM}</script>",
    f"\"><svg onload='{HARM}'>",
    f"{{{{ constructor.constructor('{HARM}')() }}}}",
    f"</script><script>{HARM}</script>",
    f"javascript:{HARM}",
    f"'); {HARM}; ('",
    f"`${{{HARM}}}`",
    "\u202egnp.exe \u2066right\u2069 to left",
    "\x00\x01\x1b[31m control \x7f characters",
    '<a href="http://elsewhere.invalid/">elsewhere</a><img src="http://elsewhere.invalid/pixel.png">',
    "-- :class=x v-html=y " * 20,
)
HOSTILE_JSON = (
    json.dumps({f":{name}": HARM for name in ("onclick", "style", "formatter", "data")}),
    json.dumps({"__proto__": {"harmed": 1}, "constructor": HARM, f"<b>{HARM}</b>": "<i>"}),
    "[" * 5_000 + "]" * 5_000,
    '{"surrogate": "\\ud800", "number": 1' + "0" * 400 + ', "nan": NaN, "twice": 1, "twice": 2}',
)
HOSTILE_BYTES = (b"\xff\xfe\x00\x80\xc3(", b"", bytes(range(256)))
LARGE_VALUE_BYTES = 1 << 20
HOSTILE_GROUP = '"><img src=x onerror="window.harmed=1"> %2F ../..'


def make_shop(directory: Path) -> None:
    """`orders` of two partitions, of which the second is empty; `profiles`, to be compacted; a group that lags."""
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        store.create_topic("orders", 2, {"retention.ms": -1})
        log = store.partition("orders", 0)
        for start in range(0, ORDERS, ORDERS_A_SEGMENT):
            if start:
                log.roll()
            log.append([order(number) for number in range(start, start + ORDERS_A_SEGMENT)], codec="zstd")
        store.create_topic("profiles", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.5})
        log = store.partition("profiles", 0)
        for start in range(0, 3 * PROFILES_A_SEGMENT, PROFILES_A_SEGMENT):
            if start:
                log.roll()
            log.append([profile(number) for number in range(start, start + PROFILES_A_SEGMENT)])
        log.roll()
    commit(directory, "billing", "orders", COMMITTED)


def make_events(directory: Path) -> None:
    """`events` of three partitions, whose times interleave: number 7 is the seventh in time, in partition 1."""
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        store.create_topic("events", EVENT_PARTITIONS, {"retention.ms": -1})
        for partition in range(EVENT_PARTITIONS):
            log = store.partition("events", partition)
            numbers = range(partition, EVENTS, EVENT_PARTITIONS)
            log.append([event(number) for number in numbers], codec="zstd")


def event(number: int) -> duralog.Record:
    value = {"number": number, "customer": {"id": number % 20}, "amount": number / 4, "tags": ["a", f"t{number % 3}"]}
    return duralog.Record(
        key=b"k%d" % (number % 10),
        value=b"\xff\xfe" if number == 13 else json.dumps(value).encode(),
        timestamp_ms=FIRST_MS + number * 1_000,
        headers=[("source", b"web" if number % 2 else b"shop")],
    )


def order(number: int) -> duralog.Record:
    return duralog.Record(
        key=b"customer-%d" % (number % CUSTOMERS),
        value=json.dumps({"order": number, "items": [{"name": "tea", "pieces": number % 3}]}).encode(),
        timestamp_ms=FIRST_MS + number * MINUTE_MS,
        headers=[("source", b"web"), ("number", b"%d" % number)],
    )


def profile(number: int) -> duralog.Record:
    """Every tenth one says that the customer has gone."""
    return duralog.Record(
        key=b"customer-%d" % (number % CUSTOMERS),
        value=None if number % 10 == 9 else b"version %d" % number,
        timestamp_ms=FIRST_MS + number * MINUTE_MS,
    )


def commit(directory: Path, group: str, topic: str, offset: int, metadata: str = "") -> None:
    with running_broker(KEEP_EVERYTHING, data=str(directory)) as broker:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0}
        )
        place = confluent_kafka.TopicPartition(topic, 0, offset, metadata)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()


def make_golden(directory: Path) -> None:
    """What Kafka wrote, without the files that describe it."""
    shutil.copytree(GOLDEN_STORE, directory, ignore=shutil.ignore_patterns("*.truth.jsonl.gz"))


def make_many(directory: Path) -> None:
    console_store.make(str(directory), "orders", MANY_PARTITIONS, MANY_SEGMENTS)


def make_damaged(directory: Path) -> None:
    """The shop after bad days: bytes in quarantine, a batch of a closed segment with a flipped bit, half an index."""
    make_shop(directory)
    with (directory / "orders-1" / f"{0:020}.log").open("ab") as log:
        log.write(b"torn by a loss of power" * 5)
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT):
        (directory / name).unlink()
    duralog.open(directory, KEEP_EVERYTHING).close()
    damaged = directory / "orders-0" / f"{ORDERS_A_SEGMENT:020}.log"
    contents = bytearray(damaged.read_bytes())
    contents[len(contents) // 2] ^= 0x10
    damaged.write_bytes(contents)
    index = directory / "profiles-0" / f"{PROFILES_A_SEGMENT:020}.timeindex"
    index.write_bytes(b"\xff" * 7)


def make_hostile(directory: Path) -> None:
    """Keys, values, headers and group names that would do harm if they were treated as more than text."""
    values = [*(text.encode() for text in (*HOSTILE_TEXTS, *HOSTILE_JSON)), *HOSTILE_BYTES]
    records = [
        duralog.Record(
            key=value[:200],
            value=value,
            timestamp_ms=FIRST_MS + number,
            headers=[(text[:100], text.encode()) for text in HOSTILE_TEXTS[:8]],
        )
        for number, value in enumerate(values)
    ]
    large = f'<img src=x onerror="{HARM}">'.encode()
    records.append(duralog.Record(key=b"large", value=large.ljust(LARGE_VALUE_BYTES, b"x"), timestamp_ms=FIRST_MS))
    records.append(duralog.Record(key=b"time", value=b"after all time", timestamp_ms=2**63 - 1))
    with duralog.open(directory, {**KEEP_EVERYTHING, "message.max.bytes": 2 * LARGE_VALUE_BYTES}) as store:
        store.create_topic("hostile", 1, {"message.timestamp.after.max.ms": 2**63 - 1})
        log = store.partition("hostile", 0)
        for record in records:
            log.append([record])
        store.create_topic("x" * 249, 1)
        store.create_topic("..-._", 1)
    commit(directory, HOSTILE_GROUP, "hostile", 3, metadata=HOSTILE_TEXTS[0])
