"""Plans how keys and values of a topic are encoded: the requested schema, its id, and the source of both.

| the schema | its id |
|---|---|
| `latest`, a subject, `subject:version`, `id:7` | that of the registry, or of the topic `_schemas` |
| a file or text, and a registry | the registry registers it under `<topic>-value` or finds it there |
| a file or text, without a registry | the version of `<topic>-value` in `_schemas` that has the same text |

With framing none, payloads have no id, and nothing is looked up for a file or text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from duralog.errors import SchemaError
from duralog.schemas.catalogue import LATEST, SchemaCatalogue
from duralog.schemas.compatibility.identity import same_schema
from duralog.schemas.decode_options import Decode, ReadRecords, read_catalogue
from duralog.schemas.encoding.payload_encoder import EncoderPlan, PayloadEncoder
from duralog.schemas.payload_decoder import FORMATS, WRAPPED_JSON, Format
from duralog.schemas.payload_planning import AUTO, PayloadRequest, is_schema_file, is_schema_text, named_schema
from duralog.schemas.plain_payloads import PLAIN_FORMATS
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType
from duralog.schemas.registry import register_schema
from duralog.schemas.schema_files import read_schema_file
from duralog.schemas.typed_columns import Part
from duralog.schemas.wire_formats import Framing


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoders:
    """For the keys and values of one topic. None if bytes are written unchanged."""

    key: PayloadEncoder | None = None
    value: PayloadEncoder | None = None


def plan_encoders(
    asked: Decode,
    topic: str,
    records: ReadRecords,
    *,
    may_register: bool = True,
    on_finding: Callable[[str], None] = lambda _: None,
) -> Encoders:
    """Raises `SchemaError` if a schema cannot be found, registered or used. `records` reads the topic `_schemas`."""
    known: list[SchemaCatalogue] = []

    def catalogue() -> SchemaCatalogue:
        if not known:
            known.append(read_catalogue(asked, records))
        return known[0]

    def encoder(part: Part, request: PayloadRequest) -> PayloadEncoder | None:
        if not request.is_typed:
            return None
        plan = _Part(asked, topic, part, request, catalogue).plan(may_register)
        on_finding(f"{topic}: {part}s are {_words(plan)}")
        return PayloadEncoder(plan)

    return Encoders(key=encoder("key", asked.key), value=encoder("value", asked.value))


@dataclass(frozen=True, slots=True)
class _Part:
    asked: Decode
    topic: str
    part: Part
    request: PayloadRequest
    catalogue: Callable[[], SchemaCatalogue]

    @property
    def subject(self) -> str:
        return f"{self.topic}-{self.part}"

    def plan(self, may_register: bool) -> EncoderPlan:
        request = self.request
        format_ = self._format()
        is_plain = format_ in PLAIN_FORMATS or (format_ is Format.JSON and request.schema is None)
        if is_plain:
            if request.schema is not None:
                raise SchemaError(f"{self.part}s of format {format_} have no schema: leave it out")
            assert format_ is not None
            return EncoderPlan(format=format_, part=self.part)
        framing = self._framing()
        text = request.schema or LATEST
        if is_schema_text(text) or is_schema_file(text):
            schema = self._given(text, format_)
            if framing is Framing.CONFLUENT:
                schema = self._registered(schema, may_register)
        else:
            schema = named_schema(text, format_ or Format.AVRO, self.topic, self.part, self.catalogue())
        found = self.catalogue() if schema.references else SchemaCatalogue()
        return EncoderPlan(
            format=format_ or FORMATS[schema.type],
            framing=framing,
            part=self.part,
            schema=schema,
            catalogue=found,
            message=request.message,
        )

    def _format(self) -> Format | None:
        """None if the schema says it."""
        if self.request.format == AUTO:
            return None
        try:
            found = Format(self.request.format)
        except ValueError:
            found = Format.DEBEZIUM
        if found in WRAPPED_JSON:
            names = ", ".join([AUTO, *(each for each in Format if each not in WRAPPED_JSON)])
            raise SchemaError(
                f"{self.part}s are not written in the format {self.request.format!r}: give one of {names}"
            )
        return found

    def _framing(self) -> Framing:
        try:
            return Framing(self.request.framing or Framing.CONFLUENT)
        except ValueError:
            raise SchemaError(f"framing {self.request.framing!r}: expected confluent or none") from None

    def _given(self, text: str, format_: Format | None) -> RegisteredSchema:
        if is_schema_file(text):
            found = read_schema_file(text)
            # A registry stores the text of a Protobuf schema, not its compiled form.
            if text.endswith(".proto"):
                return RegisteredSchema(type=SchemaType.PROTOBUF, text=Path(text).read_text(encoding="utf-8"))
            return found
        type_ = next((each for each, name in FORMATS.items() if name is format_), None)
        if type_ is None:
            raise SchemaError(f"the schema of the {self.part}s is text: give the format, too: avro, protobuf or json")
        return RegisteredSchema(type=type_, text=text)

    def _registered(self, schema: RegisteredSchema, may_register: bool) -> RegisteredSchema:
        """The same schema with its id."""
        registry = self.asked.registry
        if registry is not None:
            try:
                return register_schema(registry, self.subject, schema, may_create=may_register)
            except SchemaError as error:
                hint = "" if may_register else ". Register it first, or leave out --no-register"
                raise SchemaError(f"{error}{hint}") from None
        for version in reversed(self.catalogue().versions(self.subject)):
            if same_schema(version.schema, replace(schema, references=version.schema.references), normalize=True):
                return version.schema
        raise SchemaError(
            f"the schema of the {self.part}s is not a version of subject {self.subject!r} in the topic"
            f" {self.asked.schemas_topic}, so it has no id: give a registry that registers it, or framing none for"
            " payloads without ids"
        )


def _words(plan: EncoderPlan) -> str:
    if plan.schema is None:
        return str(plan.format)
    return f"{plan.format} by {plan.schema.name}" + ("" if plan.framing is Framing.CONFLUENT else ", without an id")


def with_framing(asked: Decode, framing: str | None) -> Decode:
    """The same for payloads with schema ids in another place, or without."""
    if framing is None:
        return asked
    return replace(asked, key=replace(asked.key, framing=framing), value=replace(asked.value, framing=framing))
