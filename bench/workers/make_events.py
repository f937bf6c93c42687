"""Makes a log directory of events and closes it well.

`week DIRECTORY TOPIC RECORDS PARTITIONS`: the events of a week, as many each hour, in segments of 64 MB.
`keyed DIRECTORY TOPIC RECORDS PARTITIONS`: a compacted topic, of which a record in nine has the last value of its key.

`orders DIRECTORY TOPIC RECORDS PARTITIONS`: Avro values of ten fields with Confluent's schema ids, and the topic
`_schemas`. There are 100,000 different values of about 90 bytes.

An event has a key of 16 bytes and a value of about 155, JSON, of which zstd leaves a third.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import duralog
from bench.workers.avro import schema, values

FIRST_TIME_MS = 1_700_000_000_000
WEEK_MS = 7 * 24 * 3_600_000
_EVENTS_AT_ONCE = 250_000
_ORDERS = 100_000
ORDER_ID = 1
_STATES = ("placed", "paid", "packed", "shipped", "returned")
_CONFIGS: dict[str, dict[str, object]] = {
    "week": {"segment.bytes": 64 << 20},
    # The clock of the events is in the past: their tombstones, if they had any, would go at once.
    "orders": {"segment.bytes": 64 << 20},
    "keyed": {"segment.bytes": 64 << 20, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01},
}


def make(kind: str, directory: str, topic: str, records: int, partitions: int) -> None:
    keys = 1_000_000 if kind == "week" else records // partitions // 9
    # Nothing may be deleted for its age, or compacted before it is measured.
    settings = {"log.retention.ms": -1, "log.cleaner.enable": False}
    with duralog.open(directory, settings) as store:
        store.create_topic(topic, partitions, {"retention.ms": -1, **_CONFIGS[kind]})
        if kind == "orders":
            _register(store, topic)
        orders = pa.array(_framed()) if kind == "orders" else None
        each = records // partitions
        for number in range(partitions):
            log = store.partition(topic, number)
            for first in range(0, each, _EVENTS_AT_ONCE):
                numbers = np.arange(first, min(first + _EVENTS_AT_ONCE, each))
                rng = np.random.default_rng((number, first))
                if orders is None:
                    log.append_arrow(_events(numbers, each, keys, rng))
                else:
                    chosen = orders.take(pa.array(rng.integers(0, len(orders), len(numbers))))
                    log.append_arrow(pa.table({"key": pa.nulls(len(numbers), pa.binary()), "value": chosen}))


def _register(store: duralog.Store, topic: str) -> None:
    """As Confluent's registry writes it."""
    key = {"keytype": "SCHEMA", "subject": f"{topic}-value", "version": 1, "magic": 1}
    value = {"subject": f"{topic}-value", "version": 1, "id": ORDER_ID, "schema": json.dumps(schema(10))}
    store.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
    record = duralog.Record(key=json.dumps(key).encode(), value=json.dumps({**value, "deleted": False}).encode())
    store.partition("_schemas", 0).append([record])


def _framed() -> list[bytes]:
    return [b"\0" + ORDER_ID.to_bytes(4) + value for value in values(10, _ORDERS)]


def _events(numbers: NDArray[np.int64], each: int, keys: int, rng: np.random.Generator) -> pa.Table:
    def texts(low: int, high: int, digits: int) -> Any:
        return pc.utf8_lpad(pa.array(rng.integers(low, high, len(numbers))).cast(pa.string()), digits, "0")

    customers = texts(0, keys, 16)
    states = pa.array(_STATES).take(pa.array(rng.integers(0, len(_STATES), len(numbers))))
    parts = ['{"customer":"', customers, '","state":"', states, '","amount":"', texts(1, 100_000, 6)]
    for name in ("session", "request", "trace"):
        parts += [f'","{name}":"', texts(10**17, 10**18, 18)]
    values = pc.binary_join_element_wise(*parts, '"}', "")
    times = FIRST_TIME_MS + numbers * WEEK_MS // each
    return pa.table({"key": customers.cast(pa.binary()), "value": values.cast(pa.binary()), "timestamp": times})


if __name__ == "__main__":
    kind, directory, topic, records, partitions = sys.argv[1:]
    make(kind, directory, topic, int(records), int(partitions))
