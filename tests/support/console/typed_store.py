"""A directory with keys and values of every format that has schemas, the topic `_schemas`, and values that do harm."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro

import duralog
from tests.support.console.console_stores import FIRST_MS, HARM, KEEP_EVERYTHING, MINUTE_MS

ORDERS = 40
"""Of the topic `orders`: the first half was written with version 1."""
HOSTILE_SUBJECT = f'"><img src=x onerror="{HARM}">/..%2F'
HOSTILE_NAME = f'<img src=x onerror="{HARM}">'

MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "shop",
    "fields": [{"name": "cents", "type": "long"}, {"name": "currency", "type": "string"}],
}
ORDER_1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "gift", "type": "boolean"},
    ],
}
ORDER_2 = {
    **ORDER_1,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
ORDER_3 = {
    **ORDER_1,
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "customer", "type": "string"},
        {"name": "total", "type": "shop.Money"},
    ],
}
CLICK_1 = {"type": "object", "properties": {"page": {"type": "string"}, "x": {"type": "integer"}}, "required": ["page"]}
CLICK_2 = {
    "type": "object",
    "properties": {"page": {"type": "string"}, "x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["page", "y"],
}
PAYMENT_1 = 'syntax = "proto3";\nmessage Payment {\n  int64 id = 1;\n  string payer = 2;\n}\n'
PAYMENT_2 = (
    'syntax = "proto3";\nmessage Payment {\n  int64 id = 1;\n  string payer = 2;\n  repeated string tags = 3;\n}\n'
)


def registered(subject: str, version: int, number: int, schema: Any, **more: Any) -> duralog.Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    text = schema if isinstance(schema, str) else json.dumps(schema)
    value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}
    return duralog.Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())


def level(subject: str | None, name: str) -> duralog.Record:
    key = {"keytype": "CONFIG", "subject": subject, "magic": 0}
    return duralog.Record(key=json.dumps(key).encode(), value=json.dumps({"compatibilityLevel": name}).encode())


def schema_records() -> list[duralog.Record]:
    money = [{"name": "shop.Money", "subject": "money", "version": 1}]
    return [
        level(None, "FULL"),
        level("orders-value", "BACKWARD"),
        registered("money", 1, 9, MONEY),
        registered("orders-value", 1, 1, ORDER_1),
        registered("orders-value", 2, 2, ORDER_2),
        registered("orders-value", 3, 3, ORDER_3, references=money),
        registered("clicks-value", 1, 4, CLICK_1, schemaType="JSON"),
        registered("clicks-value", 2, 5, CLICK_2, schemaType="JSON"),
        registered("payments-value", 1, 6, PAYMENT_1, schemaType="PROTOBUF"),
        registered("payments-value", 2, 7, PAYMENT_2, schemaType="PROTOBUF"),
        registered("gone-value", 1, 8, ORDER_1, deleted=True),
        registered(HOSTILE_SUBJECT, 1, 10, {**ORDER_1, "doc": f"</pre><script>{HARM}</script>"}),
    ]


def framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + data


def avro(schema: Any, value: Any, number: int) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema), value)
    return framed(number, made.getvalue())


def order(number: int) -> duralog.Record:
    name = HOSTILE_NAME if number == 0 else f"customer-{number % 7}"
    if number < ORDERS // 2:
        value = avro(ORDER_1, {"id": number, "customer": name, "gift": number % 2 == 0}, 1)
    else:
        note = {"id": number, "customer": name, "note": f"note {number}", "placed": FIRST_MS + number * MINUTE_MS}
        value = avro(ORDER_2, note, 2)
    return duralog.Record(key=b"order-%d" % number, value=value, timestamp_ms=FIRST_MS + number * MINUTE_MS)


def make_typed(directory: Path) -> None:
    """`orders` of Avro, `clicks` of JSON Schema, `payments` of Protobuf, `numbers` that no one can be certain of."""
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        store.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
        store.partition("_schemas", 0).append(schema_records())
        store.create_topic("orders", 2, {"retention.ms": -1})
        log = store.partition("orders", 0)
        log.append([order(number) for number in range(ORDERS)], codec="zstd")
        store.create_topic("clicks", 1, {"retention.ms": -1})
        clicks = [framed(4, json.dumps({"page": f"/{number}", "x": number}).encode()) for number in range(5)]
        store.partition("clicks", 0).append(_at(clicks))
        store.create_topic("payments", 1, {"retention.ms": -1})
        payments = [framed(6, b"\0" + bytes((0x08, number, 0x12, 3)) + b"ana") for number in range(1, 6)]
        store.partition("payments", 0).append(_at(payments))
        store.create_topic("numbers", 1, {"retention.ms": -1})
        store.partition("numbers", 0).append(_at([number.to_bytes(8) for number in range(5)]))


def add_bad_ones(directory: Path) -> None:
    """To the orders: a value whose schema does not exist, one that is cut off, and a tombstone."""
    whole = order(30).value
    assert whole is not None
    with duralog.open(directory, KEEP_EVERYTHING) as store:
        late = FIRST_MS + ORDERS * MINUTE_MS
        store.partition("orders", 0).append(
            [
                duralog.Record(key=b"bad", value=framed(77, b"\x02\x04no"), timestamp_ms=late),
                duralog.Record(key=b"cut", value=whole[:-3], timestamp_ms=late + 1),
                duralog.Record(key=b"order-1", value=None, timestamp_ms=late + 2),
            ]
        )


def _at(values: list[bytes]) -> list[duralog.Record]:
    return [
        duralog.Record(value=value, timestamp_ms=FIRST_MS + number * MINUTE_MS) for number, value in enumerate(values)
    ]
