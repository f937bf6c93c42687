"""The directory that the pictures show: a shop's last day, made from a seed, with a log that was compacted half."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

import duralog
from duralog.testing import running_broker

TOPIC_OF_EVENTS = "orders"
TOPIC_OF_STATE = "customers"

_CONFIG = {"log.cleaner.enable": False, "log.retention.ms": -1}
_DAY_MS = 86_400_000
_CITIES = ("Lisbon", "Oslo", "Vienna", "Kraków", "Genoa", "Ghent", "Turku", "Split")
_GOODS = ("tea", "teapot", "strainer", "honey", "cups", "biscuits")
_OTHER_TOPICS = {
    "page-views": (6, "lz4", 9_000),
    "payments": (3, "zstd", 2_500),
    "shipments": (3, "none", 1_200),
    "search-queries": (4, "snappy", 4_000),
    "stock-levels": (2, "zstd", 1_500),
}
"""Partitions, codec and records of each partition."""
_GROWING = {"page-views": 40, "search-queries": 18, "payments": 6}
"""Records that come in at a time."""
GROUP = "search-index"
_LAGS = {"billing": 0, "fraud-check": 37, "search-index": 1_840, "data-lake": 12_400}


def make(directory: Path) -> None:
    chance = random.Random(8)
    now_ms = time.time_ns() // 1_000_000
    with duralog.open(directory, _CONFIG) as store:
        _write_customers(store, chance, now_ms)
        _write_orders(store, chance, now_ms)
        for topic, (partitions, codec, count) in _OTHER_TOPICS.items():
            store.create_topic(
                topic, partitions, {"cleanup.policy": "compact" if topic == "stock-levels" else "delete"}
            )
            for number in range(partitions):
                records = [_event(chance, topic, now_ms - _DAY_MS + i * _DAY_MS // count) for i in range(count)]
                store.partition(topic, number).append(records, codec=codec)
    _commit(directory)


def _write_customers(store: duralog.Store, chance: random.Random, now_ms: int) -> None:
    """Segments of changing size; the first ones compacted, the last ones too young for it."""
    lag = {"min.compaction.lag.ms": _DAY_MS // 4, "min.cleanable.dirty.ratio": 0.3}
    store.create_topic(TOPIC_OF_STATE, 2, {"cleanup.policy": "compact", **lag})
    log = store.partition(TOPIC_OF_STATE, 0)
    for number, count in enumerate((2_600, 1_900, 3_100, 2_200, 2_900, 1_400, 2_500, 1_700, 2_100, 900)):
        if number == 4:
            store.compact(TOPIC_OF_STATE, 0)
        if number:
            log.roll()
        first_ms = now_ms - _DAY_MS + number * _DAY_MS // 10
        records = [_customer(chance, first_ms + i * 1_000) for i in range(count)]
        for start in range(0, count, 200):
            log.append(records[start : start + 200], codec="zstd" if number % 3 else "lz4")


def _customer(chance: random.Random, at_ms: int) -> duralog.Record:
    number = chance.randrange(4_000)
    value = {"customer": number, "city": chance.choice(_CITIES), "points": chance.randrange(900), "since": 2019}
    return duralog.Record(
        key=b"customer-%04d" % number,
        value=None if chance.random() < 0.04 else json.dumps(value, ensure_ascii=False).encode(),
        timestamp_ms=at_ms,
    )


def _write_orders(store: duralog.Store, chance: random.Random, now_ms: int) -> None:
    store.create_topic(TOPIC_OF_EVENTS, 3)
    for partition in range(3):
        log = store.partition(TOPIC_OF_EVENTS, partition)
        for segment in range(4):
            if segment:
                log.roll()
            count = chance.randrange(900, 1_600)
            first_ms = now_ms - _DAY_MS + segment * _DAY_MS // 4
            records = [_order(chance, first_ms + i * (_DAY_MS // 4) // count) for i in range(count)]
            log.append(records, codec="zstd")


def _order(chance: random.Random, at_ms: int) -> duralog.Record:
    number = chance.randrange(4_000)
    items = [{"item": chance.choice(_GOODS), "pieces": chance.randrange(1, 4)} for _ in range(chance.randrange(1, 3))]
    value = {"order": chance.randrange(10**8), "customer": number, "items": items, "city": chance.choice(_CITIES)}
    return duralog.Record(
        key=b"customer-%04d" % number,
        value=None if chance.random() < 0.03 else json.dumps(value, ensure_ascii=False).encode(),
        timestamp_ms=at_ms,
        headers=[("source", chance.choice((b"web", b"app", b"phone"))), ("trace", b"%016x" % chance.getrandbits(64))],
    )


def _event(chance: random.Random, topic: str, at_ms: int) -> duralog.Record:
    value = {"kind": topic, "item": chance.choice(_GOODS), "city": chance.choice(_CITIES), "ms": chance.randrange(400)}
    return duralog.Record(
        key=b"%s-%d" % (topic.encode(), chance.randrange(500)), value=json.dumps(value).encode(), timestamp_ms=at_ms
    )


def _commit(directory: Path) -> None:
    with running_broker(_CONFIG, data=str(directory)) as broker:
        ends = {
            (topic, number): broker.store.partition(topic, number).end_offset
            for topic in ("orders", "page-views")
            for number in broker.store.partitions(topic)
        }
        for group, lag in _LAGS.items():
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
            )
            places = [
                confluent_kafka.TopicPartition(topic, number, max(end - lag // len(ends), 0))
                for (topic, number), end in ends.items()
            ]
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()


@contextmanager
def kept_growing(directory: Path) -> Iterator[str]:
    """A broker on the directory, whose topics grow for the time of the block, now faster and now slower."""
    leave = threading.Event()
    chance = random.Random(9)

    def write(store: duralog.Store) -> None:
        tick = 0
        while not leave.wait(0.25):
            tick += 1
            for topic, count in _GROWING.items():
                now_ms = time.time_ns() // 1_000_000
                size = round(count * (1 + 0.5 * math.sin(tick / 25)) + chance.randrange(count // 3))
                log = store.partition(topic, tick % len(store.partitions(topic)))
                log.append([_event(chance, topic, now_ms) for _ in range(size)], codec=_OTHER_TOPICS[topic][1])

    with running_broker(_CONFIG, data=str(directory)) as broker:
        writer = threading.Thread(target=write, args=(broker.store,))
        writer.start()
        try:
            yield broker.bootstrap_servers
        finally:
            leave.set()
            writer.join()
