"""Debezium's events of a PostgreSQL database, in the bytes of five converters: they add up to the database's tables.

`make_debezium.py` recorded them, with what PostgreSQL itself has at each point.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duralog.schemas import (
    DecoderPlan,
    Format,
    Framing,
    PayloadDecoder,
    detect_format,
    find_schema,
    infer_debezium_type,
    infer_json_type,
)
from tests.support.schemas.change_events import (
    ENCODINGS,
    TABLES,
    avro_catalogue,
    change_events,
    points,
    topic_of,
)
from tests.support.schemas.database_values import in_truth, of_truth
from tests.support.schemas.presence import present

NOT_AVAILABLE = "__debezium_unavailable_value"
UNTYPED = {"price", "huge", "any_scale", "made", "made_ms", "day", "at", "prices", "raw", "bits", "weight"}
"""Columns that are numbers or base64 in JSON without schemas."""


def decoded(encoding: str, topic: str, part: str = "value", columns: tuple[str, ...] | None = None) -> list[Any]:
    payloads = pa.array([each[part == "value"] for each in change_events(encoding, topic)], pa.binary())
    if payloads.null_count == len(payloads):
        return [None] * len(payloads)
    if encoding.startswith("avro"):
        catalogue = avro_catalogue()
        plan = DecoderPlan(
            format=Format.AVRO,
            framing=Framing.APICURIO if encoding == "avro_apicurio" else Framing.CONFLUENT,
            reader=find_schema(catalogue, f"{topic}-{part}"),
            catalogue=catalogue,
            columns=columns,
        )
    elif part == "key":
        plan = DecoderPlan(format=Format.JSON, json_type=infer_json_type(payloads), columns=columns)
    else:
        plan = DecoderPlan(format=Format.DEBEZIUM, json_type=infer_debezium_type(payloads), columns=columns)
    found = PayloadDecoder(plan).decode(payloads)
    found.values.validate(full=True)
    assert found.reasons.null_count == len(payloads), found.reasons
    return list(found.values.to_pylist())


class Replayed:
    """A table, from its change events."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.without_key: list[dict[str, Any]] = []

    def apply(self, key: Any, event: Any) -> None:
        if event is None:
            # A tombstone: compaction's, after the delete.
            return
        if event["op"] == "t":
            self.rows.clear()
            self.without_key.clear()
        elif key is None:
            if event["before"] is not None:
                self.without_key.remove(event["before"])
            if event["after"] is not None:
                self.without_key.append(event["after"])
        elif event["op"] == "d":
            del self.rows[json.dumps(key)]
        else:
            before = self.rows.get(json.dumps(key), {})
            after = event["after"]
            self.rows[json.dumps(key)] = {
                name: before[name] if value == NOT_AVAILABLE else value for name, value in after.items()
            }

    def all(self) -> list[dict[str, Any]]:
        return [*self.rows.values(), *self.without_key]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_events_add_up_to_the_table(encoding: str, table: str) -> None:
    topic = topic_of(table)
    keys, events = decoded(encoding, topic, "key"), decoded(encoding, topic)
    if encoding in ("json_with_schemas", "json_numeric"):
        keys = [None if key is None else key["payload"] for key in keys]
    replayed, applied = Replayed(), 0
    for point in points():
        end = point.ends.get(topic, 0)
        for key, event in zip(keys[applied:end], events[applied:end], strict=True):
            replayed.apply(key, event)
        applied = end
        truth = point.tables[table]
        names = set(truth[0]) if truth else set()
        if table == "items":
            known = set(events[-2]["before"])
            # The column that was dropped is not in the newest schema.
            assert names - known <= {"small"}
            names &= known
            if encoding == "json":
                names -= UNTYPED
            for row in truth:
                if row["id"] == 6 and encoding != "json_numeric":
                    # Connect's converters write the default in place of null, unless they are asked not to.
                    row["weight"] = Decimal("1.500")
                elif row["id"] in (1, 2, 5) and encoding.startswith("json") and "weight" in row:
                    # PostgreSQL gave these rows the new column's default, and no event. Avro's schema has it.
                    row["weight"] = None
        found = [{name: in_truth(name, row[name]) for name in names} for row in replayed.all()]
        expected = [{name: of_truth(name, row[name]) for name in names} for row in truth]
        assert Counter(map(repr, map(sorted_items, found))) == Counter(map(repr, map(sorted_items, expected)))
    assert applied == len(events)


def sorted_items(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_format_is_detected(encoding: str) -> None:
    topic = topic_of("items")
    values = pa.array([value for _, value in change_events(encoding, topic)], pa.binary())
    plan = present(detect_format(values, avro_catalogue(), topic=topic).plan)
    assert plan.format is (Format.DEBEZIUM if encoding.startswith("json") else Format.AVRO)
    found = PayloadDecoder(plan).decode(values)
    assert [each and each["op"] for each in found.values.to_pylist()] == [
        *["r", "r", "c", "c", "c", "u", "u", "u", "d", None, "u", "c", "c"],
        *["d", None] * 5,
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_chosen_columns(encoding: str) -> None:
    rows = decoded(encoding, topic_of("pages"), columns=("after.title", "op"))
    assert rows[:3] == [{"after": {"title": title}, "op": op} for title, op in PAGES]


PAGES = [("long", "c"), ("short", "c"), ("still long", "u")]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_messages_have_no_row(encoding: str) -> None:
    """`pg_logical_emit_message` makes an event of another shape."""
    [(key, value)] = change_events(encoding, "shop.message")
    assert key
    assert value
    if encoding.startswith("avro"):
        [event] = decoded(encoding, "shop.message")
        assert (event["op"], event["message"]["prefix"], event["message"]["content"]) == ("m", "audit", b"a message")
    else:
        # Not a change of a table.
        found = detect_format(pa.array([value]), avro_catalogue())
        assert present(found.plan).format is (Format.JSON if encoding == "json" else Format.CONNECT)
