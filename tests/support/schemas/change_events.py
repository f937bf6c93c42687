"""What `tests/golden/make_debezium.py` recorded: Debezium's events of a database, and its tables at several points."""

from __future__ import annotations

import base64
import json
import lzma
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from duralog.schemas import RegisteredSchema, SchemaCatalogue, SchemaType, SubjectVersion
from tests.support.places import ROOT

ENCODINGS = ("json_with_schemas", "json", "json_numeric", "avro_apicurio", "avro_confluent")
"""How the events were written: by Kafka Connect's JSON converter in three ways, by Apicurio's Avro converter in two."""
TABLES = ("items", "lines", "notes", "pages")
"""`notes` has no primary key. A column of `pages` is kept apart by PostgreSQL: updates of others do not have it."""


@dataclass(frozen=True, slots=True)
class Point:
    """A moment at which the database was read."""

    ends: dict[str, int]
    """How many records each topic had."""
    tables: dict[str, list[dict[str, Any]]]
    """The rows as PostgreSQL's `row_to_json` writes them; numbers with a fraction are decimals."""


def topic_of(table: str) -> str:
    return f"shop.public.{table}"


def change_events(encoding: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, in the order of the log."""
    found = _recorded()["events"][encoding][topic]
    return [(_data(key, encoding), _data(value, encoding)) for key, value in found]


def points() -> list[Point]:
    """After the snapshot, and after each of four steps."""
    return [
        Point(
            each["ends"],
            {name: [json.loads(row, parse_float=Decimal) for row in rows] for name, rows in each["tables"].items()},
        )
        for each in _recorded()["points"]
    ]


def recorded_schemas() -> list[dict[str, Any]]:
    """The Avro schemas of the registry: subject, version, id, and the text."""
    found: list[dict[str, Any]] = _recorded()["schemas"]
    return found


def avro_catalogue() -> SchemaCatalogue:
    """The schemas that Apicurio's registry had at the end."""
    return SchemaCatalogue(
        SubjectVersion(
            each["subject"],
            each["version"],
            RegisteredSchema(type=SchemaType.AVRO, text=each["schema"], id=each["id"]),
        )
        for each in recorded_schemas()
    )


def _data(text: str | None, encoding: str) -> bytes | None:
    if text is None:
        return None
    return text.encode() if encoding.startswith("json") else base64.b64decode(text)


@cache
def _recorded() -> dict[str, Any]:
    with lzma.open(ROOT / "tests" / "golden" / "debezium.json.xz", "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found
