"""Payloads by AWS Glue's own serializer: with and without compression, of two versions of a schema."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from duralog.schemas import Framing, PayloadDecoder, RegisteredSchema, SchemaCatalogue, SchemaType, detect_format
from tests.support.schemas.presence import present

LINES = [json.loads(line) for line in (Path(__file__).parent / "glue.jsonl").read_text(encoding="utf-8").splitlines()]
VERSIONS = {line["version"]: json.dumps(line["schema"]) for line in LINES}
CATALOGUE = SchemaCatalogue(
    (), [RegisteredSchema(type=SchemaType.AVRO, text=text, guid=UUID(guid)) for guid, text in VERSIONS.items()]
)
PAYLOADS = pa.array([base64.b64decode(line["payload"]) for line in LINES])


def test_values_are_those_that_were_written() -> None:
    assert {line["compression"] for line in LINES} == {"NONE", "ZLIB"}
    # Only the second version reads both: UUIDs have no order, so it is found by trying.
    plan = present(detect_format(PAYLOADS, CATALOGUE).plan)
    assert plan.framing is Framing.GLUE
    decoded = PayloadDecoder(plan).decode(PAYLOADS)
    assert decoded.reasons.null_count == len(LINES)
    assert decoded.values.to_pylist() == [{"note": None, **line["value"]} for line in LINES]


def test_a_file_for_unknown_versions() -> None:
    one = [row for row, line in enumerate(LINES) if "note" in line["value"]]
    writer = RegisteredSchema(type=SchemaType.AVRO, text=json.dumps(LINES[one[0]]["schema"]))
    found = detect_format(PAYLOADS.take(pa.array(one)), SchemaCatalogue(), reader=writer, writer=writer)
    decoded = PayloadDecoder(present(found.plan)).decode(PAYLOADS.take(pa.array(one)))
    assert decoded.values.to_pylist() == [LINES[row]["value"] for row in one]
