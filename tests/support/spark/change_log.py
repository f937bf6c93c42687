"""A log directory with the recorded change events of a real PostgreSQL database, one record for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duralog
from tests.support.schemas.change_events import Point, change_events, recorded_schemas, topic_of
from tests.support.spark.lake_directory import START_MS
from tests.support.typed_log import schema_record


def write_events(
    path: Path, encoding: str, tables: Sequence[str], *, first: int = 0, end: int | None = None, step_ms: int = 1000
) -> None:
    """The events of some tables from the first number to the end; the first ones with their schemas."""
    with duralog.open(str(path), config={"log.cleaner.enable": "false"}) as store:
        if "_schemas" not in store.topics():
            store.create_topic("_schemas", 1)
            log = store.partition("_schemas", 0)
            log.append(
                [
                    schema_record(each["subject"], each["version"], each["id"], json.loads(each["schema"]))
                    for each in recorded_schemas()
                ]
            )
        for table in tables:
            topic = topic_of(table)
            if topic not in store.topics():
                store.create_topic(topic, 1)
            events = change_events(encoding, topic)
            records = [
                duralog.Record(key=key, value=value, timestamp_ms=START_MS + number * step_ms)
                for number, (key, value) in list(enumerate(events))[first:end]
            ]
            if records:
                store.partition(topic, 0).append(records)


def truth(point: Point, table: str, encoding: str) -> list[dict[str, Any]]:
    """The rows of the database, with what its events do not say in this encoding."""
    rows = [dict(row) for row in point.tables[table]]
    for row in rows if table == "items" else ():
        if row["id"] == 6 and encoding != "json_numeric":
            # Connect's converters write the default in place of null, unless they are asked not to.
            row["weight"] = Decimal("1.500")
        elif row["id"] in (1, 2, 5) and encoding.startswith("json") and "weight" in row:
            # PostgreSQL gave these rows the new column's default, and no event. Avro's schema has it.
            row["weight"] = None
    return rows
