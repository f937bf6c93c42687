"""Protobuf payloads by the serializers of AWS Glue and of Apicurio 2 and 3: their ids and their message types."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from duralog.schemas import (
    DecoderPlan,
    Format,
    Framing,
    PayloadDecoder,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaType,
    detect_format,
)
from tests.support.schemas.presence import present

pytest.importorskip("ptars", reason="it needs the compiled form of protobuf")
pytest.importorskip("grpc_tools")

FIRST, *LINES = [
    json.loads(line)
    for line in (Path(__file__).parent / "protobuf_framings.jsonl").read_text(encoding="utf-8").splitlines()
]
GUID = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
SCHEMA = RegisteredSchema(type=SchemaType.PROTOBUF, text=FIRST["schema"], id=7, guid=GUID)
CATALOGUE = SchemaCatalogue((), [SCHEMA])
FRAMINGS = {"glue": Framing.GLUE, "apicurio 2": Framing.APICURIO, "apicurio 3": Framing.APICURIO3}


def lines_of(serializer: str) -> list[dict[str, Any]]:
    found = [line for line in LINES if line["serializer"] == serializer]
    assert len(found) >= 5, serializer
    return found


@pytest.mark.parametrize("serializer", FRAMINGS)
def test_each_type_is_read_as_itself_and_as_no_other(serializer: str) -> None:
    lines = lines_of(serializer)
    payloads = pa.array([base64.b64decode(line["payload"]) for line in lines])
    for wanted in {line["message"] for line in lines}:
        plan = DecoderPlan(
            format=Format.PROTOBUF,
            framing=FRAMINGS[serializer],
            reader=SCHEMA,
            catalogue=CATALOGUE,
            message=wanted,
        )
        decoded = PayloadDecoder(plan).decode(payloads)
        for line, value, reason in zip(lines, decoded.values.to_pylist(), decoded.reasons.to_pylist(), strict=True):
            if line["message"] == wanted:
                assert reason is None
                assert value.get("id") == (None if wanted == "shop.Empty" else 300)
            else:
                assert reason is not None
                assert reason.endswith(f": the message type is {line['message']}, not {wanted}")


@pytest.mark.parametrize("serializer", FRAMINGS)
def test_framing_and_message_type_are_found_out(serializer: str) -> None:
    for line in lines_of(serializer):
        if line["message"] == "shop.Empty":
            continue
        payloads = pa.array([base64.b64decode(line["payload"])])
        found = detect_format(payloads, CATALOGUE)
        plan = present(found.plan)
        assert (plan.framing, plan.message) == (FRAMINGS[serializer], line["message"]), found.finding
        assert PayloadDecoder(plan).decode(payloads).values.to_pylist()[0]["id"] == 300
