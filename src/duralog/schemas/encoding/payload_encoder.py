"""Payloads of one topic's keys or values: a value becomes bytes by a schema, with the schema's id in front."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from duralog.errors import InvalidRecord, SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.exact_numbers import parse_json
from duralog.schemas.payload_decoder import FORMATS, Format
from duralog.schemas.plain_payloads import PLAIN_FORMATS
from duralog.schemas.registered_schema import RegisteredSchema
from duralog.schemas.wire_formats import Framing


@dataclass(frozen=True, kw_only=True)
class EncoderPlan:
    """What an encoder is made from."""

    format: Format
    framing: Framing = Framing.NONE
    part: Literal["key", "value"] = "value"
    schema: RegisteredSchema | None = None
    """With its id, unless the framing is none. The plain formats need none, nor does JSON."""
    catalogue: SchemaCatalogue = field(default_factory=SchemaCatalogue)
    """Where the schemas are that it references."""
    message: str | None = None
    """The full name of Protobuf's message type; the first of its file if not given."""


class PayloadEncoder:
    """Encodes values of one schema. Raises `SchemaError` if it cannot be made."""

    def __init__(self, plan: EncoderPlan) -> None:
        self.plan = plan
        self._prefix = b""
        self._encode, indexes = _encoder(plan)
        if plan.framing not in (Framing.NONE, Framing.CONFLUENT):
            raise SchemaError(f"payloads are not written in the framing {plan.framing}, only in confluent and none")
        if plan.framing is Framing.CONFLUENT:
            if plan.schema is None or plan.schema.id is None:
                raise SchemaError(f"format {plan.format} with Confluent's framing needs a schema that has an id")
            self._prefix = b"\x00" + plan.schema.id.to_bytes(4, "big") + indexes

    def encode(self, value: Any) -> bytes:
        """A value as JSON has it. Raises `InvalidRecord`, which names the field, its type and what was found."""
        try:
            return self._prefix + self._encode(value)
        except InvalidRecord as error:
            raise InvalidRecord(f"{self.plan.part}: {error}") from None

    def encode_text(self, text: bytes) -> bytes:
        """A value as a person types it: JSON; of the plain formats, the text itself."""
        try:
            found = text.decode()
        except UnicodeDecodeError as error:
            raise InvalidRecord(f"{self.plan.part}: not UTF-8: {error.reason} at byte {error.start}") from None
        if self.plan.format in PLAIN_FORMATS:
            return self.encode(found)
        try:
            value = parse_json(found)
        except ValueError as error:
            raise InvalidRecord(f"{self.plan.part}: not JSON: {error}") from None
        except RecursionError:
            raise InvalidRecord(f"{self.plan.part}: not JSON that can be read: it is nested too deeply") from None
        return self.encode(value)


def _encoder(plan: EncoderPlan) -> tuple[Callable[[Any], bytes], bytes]:
    """What encodes a value, and what a payload of Confluent's framing has after the id."""
    if plan.format in PLAIN_FORMATS:
        from duralog.schemas.encoding.plain import encode_plain

        if plan.schema is not None:
            raise SchemaError(f"format {plan.format} has no schema")
        return (lambda value: encode_plain(plan.format, value)), b""
    schema = plan.schema
    if schema is None:
        if plan.format is Format.JSON:
            return _json_bytes, b""
        raise SchemaError(f"payloads of format {plan.format} are not written without a schema")
    if FORMATS[schema.type] is not plan.format:
        raise SchemaError(f"{schema.name} is of type {schema.type}: format {plan.format} cannot use it")
    if plan.format is Format.PROTOBUF:
        from duralog.schemas.encoding.protobuf import ProtobufMessages

        messages = ProtobufMessages(schema, plan.catalogue, plan.message)
        return messages.encode, messages.indexes
    texts = {name: each.text for name, each in plan.catalogue.resolve(schema).items()}
    if plan.format is Format.AVRO:
        from duralog.schemas.avro.parsing import parse_schema
        from duralog.schemas.encoding.avro import encode_avro

        root = parse_schema(schema.text, texts).root
        return (lambda value: encode_avro(root, value)), b""
    from duralog.schemas.compatibility.json_schema import JsonSchema
    from duralog.schemas.encoding.json_schema import check_json

    parsed = JsonSchema(schema.text, texts)

    def checked(value: Any) -> bytes:
        check_json(parsed, value)
        return _json_bytes(value)

    return checked, b""


def _json_bytes(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair stays an escape.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise InvalidRecord("NaN and infinite numbers are not JSON") from None
