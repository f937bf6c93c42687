"""Debezium's change events in JSON: op, before, after, source, ts_ms and what else its envelope has.

The JSON converter writes either the event alone, or `{"schema": ..., "payload": <event>}`. Both are taken, row by row.
A sample gives the type: from the schema next to the payload if there is one, else from the events themselves. Events
in Avro or Protobuf need nothing of this: their schema is the envelope.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from duralog.errors import SchemaError
from duralog.schemas.column_types import pruned_type
from duralog.schemas.frames import MessagePlace
from duralog.schemas.json_payloads import JsonPayloads, parsed_sample
from duralog.schemas.json_types import connect_type, infer_type, text_field
from duralog.schemas.payloads import Payloads
from duralog.schemas.registered_schema import RegisteredSchema

ENVELOPE = ("before", "after", "source", "op", "ts_ms")
"""The columns that every event has."""


class DebeziumFormat:
    """The decoder of events of a type that a sample gave."""

    def __init__(self, columns: Sequence[str] | None, inferred: pa.Field | None) -> None:
        if inferred is None:
            raise SchemaError("format debezium needs a type that was inferred from a sample of the topic")
        wanted = inferred if columns is None else inferred.with_type(pruned_type(inferred.type, columns))
        self._payloads = JsonPayloads(wanted, unwrapped, whole=inferred)
        self.arrow_type = wanted.type

    def payloads(self, _writer: RegisteredSchema | None, _place: MessagePlace | None) -> Payloads:
        """The same for all writers."""
        return self._payloads


def unwrapped(value: object) -> object:
    """The event itself, without the JSON converter's wrapper."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def is_event(value: object) -> bool:
    """Whether a parsed payload is a change event."""
    event = unwrapped(value)
    return isinstance(event, dict) and "op" in event and "source" in event and bool(event.keys() & {"before", "after"})


def infer_debezium_type(payloads: pa.Array) -> pa.Field:
    """The column of a sample of events; raises `SchemaError` if there is none among them."""
    values = [value for value in parsed_sample(payloads) if is_event(value)]
    if not values:
        raise SchemaError("no payload of the sample is a Debezium event: none has op, source, and before or after")
    schemas = [value["schema"] for value in values if isinstance(value, dict) and isinstance(value.get("schema"), dict)]
    if schemas:
        # The newest: a column that was added is in it.
        field = connect_type(schemas[-1])
    else:
        # The table's columns are those of before and after together: a sample of inserts has never seen a before.
        field = infer_type(each for value in values for each in _both_ways(unwrapped(value)))
    if not pa.types.is_struct(field.type):
        raise SchemaError("the schema of the sample's Debezium events is not a struct")
    found = {each.name: each for each in field.type}
    for name in ENVELOPE:
        found.setdefault(name, pa.field(name, pa.int64()) if name == "ts_ms" else text_field(name))
    return pa.field("value", pa.struct(list(found.values())))


def _both_ways(event: object) -> list[object]:
    assert isinstance(event, dict)
    return [event, {**event, "before": event.get("after"), "after": event.get("before")}]
