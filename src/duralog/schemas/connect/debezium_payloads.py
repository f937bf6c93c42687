"""Debezium's change events in JSON: op, before, after, source, ts_ms and what else its envelope has.

They are written by Kafka Connect's JSON converter, with or without their schema (`connect_payloads`). Events in Avro or
Protobuf need nothing of this: their schema is the envelope.
"""

from __future__ import annotations

import pyarrow as pa

from duralog.errors import SchemaError
from duralog.schemas.connect.connect_payloads import column_of, unwrapped
from duralog.schemas.json_payloads import parsed_sample
from duralog.schemas.json_types import text_field

ENVELOPE = ("before", "after", "source", "op", "ts_ms")
"""The columns that every event has."""


def is_event(value: object) -> bool:
    """Whether a parsed payload is a change event."""
    event = unwrapped(value)
    return isinstance(event, dict) and "op" in event and "source" in event and bool(event.keys() & {"before", "after"})


def infer_debezium_type(payloads: pa.Array) -> pa.Field:
    """The column of a sample of events; raises `SchemaError` if there is none among them.

    The table's columns are those of before and after together: a sample of inserts has never seen a before.
    """
    values = [value for value in parsed_sample(payloads) if is_event(value)]
    if not values:
        raise SchemaError("no payload of the sample is a Debezium event: none has op, source, and before or after")
    field = column_of(values, _both_ways)
    if not pa.types.is_struct(field.type):
        raise SchemaError("the schema of the sample's Debezium events is not a struct")
    found = {each.name: each for each in field.type}
    for name in ENVELOPE:
        found.setdefault(name, pa.field(name, pa.int64()) if name == "ts_ms" else text_field(name))
    return pa.field("value", pa.struct(list(found.values())))


def _both_ways(event: object) -> list[object]:
    assert isinstance(event, dict)
    return [event, {**event, "before": event.get("after"), "after": event.get("before")}]
