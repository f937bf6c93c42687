"""A log directory with typed payloads of two schema versions, bad ones, and the topic `_schemas`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro

import duralog

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "customer",
            "type": ["null", {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}],
            "default": None,
        },
    ],
}


def schema_record(subject: str, version: int, number: int, schema: Any) -> duralog.Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": number, "schema": json.dumps(schema), "deleted": False}
    return duralog.Record(key=json.dumps(key).encode(), value=json.dumps(value).encode())


def avro(schema: Any, value: Any, number: int) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4) + made.getvalue()


def write_typed_log(path: Path) -> None:
    """Topics: `orders` with both versions, `bad` with two bad values last, `texts`, `documents`, `plain` without ids,
    `contexts` with an id of another context, `foreign` with one that is not in `_schemas`, `nothing` without records.
    """
    with duralog.open(path) as store:
        store.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
        schemas = [
            schema_record("orders-value", 1, 3, FIRST),
            schema_record("orders-value", 2, 4, SECOND),
            schema_record(":.prod:contexts-value", 1, 1, SECOND),
            schema_record(":.prod:other-value", 1, 3, {"type": "string"}),
        ]
        store.partition("_schemas", 0).append(schemas)
        store.create_topic("orders", 1)
        log = store.partition("orders", 0)
        log.append([duralog.Record(key=b"a", value=avro(FIRST, {"id": n}, 3)) for n in range(5)])
        log.append(
            [duralog.Record(key=b"a", value=avro(SECOND, {"id": n, "customer": {"name": "x"}}, 4)) for n in range(5)]
        )
        log.append([duralog.Record(value=None)])
        store.create_topic("bad", 1)
        log = store.partition("bad", 0)
        log.append([duralog.Record(value=avro(SECOND, {"id": 1, "customer": None}, 4)) for _ in range(1100)])
        log.append([duralog.Record(value=b"\0\0\0\0\x09zz"), duralog.Record(value=b"\0\0\0\0\x04\x02\x09")])
        store.create_topic("texts", 1)
        store.partition("texts", 0).append([duralog.Record(key=b"k", value=b"plain words")])
        store.create_topic("documents", 1)
        store.partition("documents", 0).append([duralog.Record(value=b'{"a": 1}'), duralog.Record(value=b'{"a": 2}')])
        for topic, payload in (
            ("plain", avro(SECOND, {"id": 7, "customer": {"name": "y"}}, 0)[5:]),
            ("contexts", avro(SECOND, {"id": 7, "customer": {"name": "y"}}, 1)),
            ("foreign", avro(SECOND, {"id": 7, "customer": {"name": "y"}}, 99)),
        ):
            store.create_topic(topic, 1)
            store.partition(topic, 0).append([duralog.Record(key=b"k", value=payload)] * 3)
        store.create_topic("nothing", 1)
