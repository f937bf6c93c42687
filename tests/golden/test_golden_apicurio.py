"""Avro payloads by Apicurio's own serializers, 2 and 3: ids of eight bytes and of four, two versions of a schema."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duralog
from duralog.schemas import (
    Framing,
    PayloadDecoder,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaType,
    SubjectVersion,
    detect_format,
)
from tests.support.schemas.presence import present
from tests.support.typed_log import schema_record

LINES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "apicurio.jsonl").read_text(encoding="utf-8").splitlines()
]
FRAMINGS = {
    "apicurio 2": Framing.APICURIO,
    # Avro's payloads of Apicurio 3 are those of Confluent's serializer.
    "apicurio 2, four bytes": Framing.CONFLUENT,
    "apicurio 3": Framing.CONFLUENT,
}
SCHEMAS = sorted({(line["id"], json.dumps(line["schema"])) for line in LINES})
CATALOGUE = SchemaCatalogue(
    SubjectVersion("orders-value", version, RegisteredSchema(type=SchemaType.AVRO, text=text, id=id_))
    for version, (id_, text) in enumerate(SCHEMAS, 1)
)


def lines_of(serializer: str) -> list[dict[str, Any]]:
    found = [line for line in LINES if line["serializer"] == serializer]
    assert len(found) == 6
    return found


@pytest.mark.parametrize("serializer", FRAMINGS)
def test_values_are_those_that_were_written(serializer: str) -> None:
    lines = lines_of(serializer)
    payloads = pa.array([base64.b64decode(line["payload"]) for line in lines])
    plan = present(detect_format(payloads, CATALOGUE, topic="orders").plan)
    assert plan.framing is FRAMINGS[serializer]
    decoded = PayloadDecoder(plan).decode(payloads)
    assert decoded.reasons.null_count == len(lines)
    assert decoded.values.to_pylist() == [{"note": None, **line["value"]} for line in lines]


@pytest.mark.parametrize("serializer", FRAMINGS)
def test_a_scan_reads_them_by_the_schemas_of_the_directory(serializer: str, tmp_path: Path) -> None:
    lines = lines_of(serializer)
    with duralog.open(tmp_path) as store:
        store.create_topic("_schemas", 1)
        store.partition("_schemas", 0).append(
            [
                schema_record("orders-value", number, id_, json.loads(text))
                for number, (id_, text) in enumerate(SCHEMAS, 1)
            ]
        )
        store.create_topic("orders", 1)
        store.partition("orders", 0).append([duralog.Record(value=base64.b64decode(line["payload"])) for line in lines])
    found = duralog.scan(tmp_path, topic="orders", decode="auto").to_arrow()
    assert found["value"].to_pylist() == [{"note": None, **line["value"]} for line in lines]
