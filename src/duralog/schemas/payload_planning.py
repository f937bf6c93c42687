"""How the keys and values of topics are decoded, decided once: by what the user says, a sample, and the schemas.

    asked = PayloadRequest(format="avro", schema="latest")
    columns = plan_typed_columns(topics, sample, catalogue, value=asked)

Nothing is guessed. What the user does not say is found out from a sample, and only if it is certain; what was found is
in `findings`. A schema whose framing is not given is tried on the sample with schema ids and without: the way that
decodes more payloads is taken, and it is an error if neither decodes one.

A topic without payloads shows nothing. Among others it is decoded like them; else its registered schema says it all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from duralog.errors import SchemaError
from duralog.schemas.catalogue import LATEST, SchemaCatalogue, find_schema
from duralog.schemas.detection import detect_format
from duralog.schemas.payload_decoder import FORMATS, WRAPPED_JSON, DecoderPlan, Format, LaterSchemas, PayloadDecoder
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType, in_context
from duralog.schemas.schema_files import SCHEMA_FILES, read_schema_file
from duralog.schemas.typed_columns import Mode, Part, TypedColumns
from duralog.schemas.wire_formats import Framing

AUTO = "auto"
BINARY = "binary"

ANY_ID = "any:"
"""Before a schema: it wrote the payloads whose ids are unknown, too."""

_BEGINNINGS_OF_TEXT = ("{", "[", '"', "syntax")


@dataclass(frozen=True, kw_only=True)
class PayloadRequest:
    """What a user says of keys or of values."""

    format: str = BINARY
    """A `Format`, `auto` to find out from a sample, or `binary` for the bytes as they are."""
    schema: str | None = None
    """`latest`, `id:7`, `guid:...`, a subject or `subject:version`, the path of a file, or the schema's text; with
    `any:` before it for payloads of unknown ids, too."""
    framing: str | None = None
    """Where the schema ids are, if it is not as the format says: a `Framing`."""
    message: str | None = None
    """Protobuf's message type."""
    columns: tuple[str, ...] | None = None
    """Nested fields, with dots, without the column's own name. None for all."""

    @property
    def is_typed(self) -> bool:
        return self.format != BINARY


class NoPayloads(SchemaError):
    """There is nothing to find a format out from."""


class Sample(NamedTuple):
    """Some records of a topic."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array

    def of(self, part: Part) -> pa.Array:
        return self.keys if part == "key" else self.values


ReadSample = Callable[[str], Sample]


def plan_typed_columns(
    topics: Sequence[str],
    sample: ReadSample,
    catalogue: Callable[[], SchemaCatalogue],
    *,
    key: PayloadRequest | None = None,
    value: PayloadRequest | None = None,
    mode: Mode = Mode.PERMISSIVE,
    later: LaterSchemas | None = None,
) -> TypedColumns:
    """Decide how keys and values are decoded. Raises `SchemaError` where that is not certain, or not one type.

    `sample` is called for topics whose format or framing has to be found out, `catalogue` if schemas are looked up.
    """
    decoders: list[tuple[str, PayloadDecoder]] = []
    findings: list[str] = []
    known: list[SchemaCatalogue] = []

    if not topics:
        raise SchemaError("there is no topic to read, so the types of keys and values are not known")

    def schemas() -> SchemaCatalogue:
        if not known:
            known.append(catalogue())
        return known[0]

    parts: tuple[tuple[Part, PayloadRequest | None], ...] = (("key", key), ("value", value))
    for part, asked in parts:
        if asked is None or not asked.is_typed:
            continue
        planned: list[tuple[str, DecoderPlan]] = []
        empty: list[_Planning] = []
        for topic in topics:
            planning = _Planning(topic, part, asked, sample, schemas)
            try:
                plan, finding = planning.plan()
            except NoPayloads:
                empty.append(planning)
                continue
            findings.append(f"{topic}: {part}s are {finding}")
            planned.append((topic, plan))
        for planning in empty:
            if planned:
                findings.append(f"{planning.topic}: there are no {part}s: they would be as those of {planned[0][0]}")
                continue
            plan, finding = planning.registered()
            findings.append(f"{planning.topic}: there are no {part}s: they would be {finding}")
            planned.append((planning.topic, plan))
        decoders.append((part, _one_decoder(part, planned, asked, later)))
    return TypedColumns(tuple(decoders), tuple(findings), mode)


@dataclass(frozen=True, slots=True)
class _Planning:
    """Of the keys or the values of one topic."""

    topic: str
    part: Part
    asked: PayloadRequest
    sample: ReadSample
    catalogue: Callable[[], SchemaCatalogue]

    def plan(self) -> tuple[DecoderPlan, str]:
        """How they are decoded, and why."""
        format_, framing = self._format(), self._framing()
        if format_ is not None and format_ not in (*FORMATS.values(), Format.DEBEZIUM):
            for name, given in (("schema", self.asked.schema), ("message", self.asked.message)):
                if given is not None:
                    raise SchemaError(f"{self.part}.{name}: format {format_} has none, leave it out")
        if format_ is not None and format_ not in (*FORMATS.values(), *WRAPPED_JSON):
            plan = DecoderPlan(format=format_, framing=framing or Framing.NONE, part=self.part)
            return replace(plan, columns=self.asked.columns), str(format_)
        reader, writer = self._schemas(format_, framing)
        if format_ is None and reader is not None:
            format_ = FORMATS[reader.type]
        if framing is None or reader is None:
            plan, finding = self._found_out(format_, framing, reader, writer)
        else:
            assert format_ is not None
            plan = DecoderPlan(format=format_, framing=framing, part=self.part, catalogue=self.catalogue())
            plan = replace(plan, reader=reader, writer=writer)
            finding = f"{format_}, framing {framing}; columns of {reader.name}"
        return replace(plan, columns=self.asked.columns, message=self.asked.message or plan.message), finding

    def registered(self) -> tuple[DecoderPlan, str]:
        """How they will be decoded, as far as that is known without a payload: by the named or the registered schema.

        A registered schema is that of ids; a file says nothing of them.
        """
        format_, part = self._format(), self.part
        nothing = f"topic {self.topic} has no {part}s to detect the format from"
        where = f"{part}.framing, where their schema ids are: {', '.join(Framing)}"
        subject = f"{self.topic}-{part}"
        if format_ is Format.CONNECT:
            raise SchemaError(
                f"topic {self.topic} has no {part}s, and the schemas of format connect are in these: wait for one"
            )
        reader, writer = self._schemas(format_, None)
        if reader is None:
            try:
                reader = _latest(subject, self.catalogue())
            except SchemaError:
                raise SchemaError(
                    f"{nothing}, and there is no schema of subject {subject!r}: give {part}.schema (a file, text, id or"
                    f" subject) and {where}"
                ) from None
        if reader.id is None:
            raise SchemaError(f"{nothing}: give {where}")
        if format_ is not None and format_ is not FORMATS[reader.type] and format_ is not Format.DEBEZIUM:
            raise SchemaError(f"{nothing}, and {reader.name} is {FORMATS[reader.type]}, not {format_}")
        framing = Framing.CONFLUENT
        plan = DecoderPlan(
            format=FORMATS[reader.type], framing=framing, part=part, catalogue=self.catalogue(), reader=reader
        )
        plan = replace(plan, writer=writer, columns=self.asked.columns, message=self.asked.message)
        return plan, f"{plan.format}, framing {framing}; columns of {reader.name}"

    def _format(self) -> Format | None:
        if self.asked.format == AUTO:
            return None
        try:
            return Format(self.asked.format.lower())
        except ValueError:
            names = ", ".join([AUTO, BINARY, *Format])
            raise SchemaError(f"{self.part}.format {self.asked.format!r}: expected one of {names}") from None

    def _framing(self) -> Framing | None:
        if self.asked.framing is None:
            return None
        try:
            return Framing(self.asked.framing.lower())
        except ValueError:
            raise SchemaError(f"framing {self.asked.framing!r}: expected one of {', '.join(Framing)}") from None

    def _schemas(
        self, format_: Format | None, framing: Framing | None
    ) -> tuple[RegisteredSchema | None, RegisteredSchema | None]:
        """The reader's schema, and the one that wrote what has unknown ids, as far as they are named."""
        text = self.asked.schema
        if text is None and format_ in FORMATS.values() and framing not in (None, Framing.NONE):
            # A topic without records must not fail the scan.
            return _latest(f"{self.topic}-{self.part}", self.catalogue()), None
        if text is None and format_ in (Format.AVRO, Format.PROTOBUF) and framing is Framing.NONE:
            raise SchemaError(f"topic {self.topic}: {format_} without schema ids: give {self.part}.schema")
        if text is None:
            return None, None
        is_any = text.startswith(ANY_ID)
        reader = named_schema(text.removeprefix(ANY_ID), format_, self.topic, self.part, self.catalogue())
        return reader, reader if is_any else None

    def _found_out(
        self,
        format_: Format | None,
        framing: Framing | None,
        reader: RegisteredSchema | None,
        writer: RegisteredSchema | None,
    ) -> tuple[DecoderPlan, str]:
        """By a sample."""
        rows = self.sample(self.topic)
        if rows.of(self.part).null_count == len(rows.of(self.part)):
            raise NoPayloads(f"topic {self.topic} has no {self.part}s")
        found = detect_format(
            rows.of(self.part),
            self.catalogue(),
            rows.headers,
            topic=self.topic,
            part=self.part,
            known=format_,
            framing=framing,
            reader=reader,
            writer=writer,
        )
        if found.plan is not None and reader is not None and found.plan.reader is not None and reader.id is None:
            # A file has no context: that of the ids.
            reader = replace(reader, context=found.plan.reader.context)
        if reader is not None and reader.type is not SchemaType.JSON and found.good < found.total:
            assert format_ is not None
            plain = DecoderPlan(format=format_, part=self.part, reader=reader, catalogue=self.catalogue())
            reasons = PayloadDecoder(replace(plain, message=self.asked.message)).decode(rows.of(self.part)).reasons
            good = found.total - (len(reasons) - reasons.null_count)
            if good > found.good:
                count = f"{good} of {found.total}" if good < found.total else f"all {good}"
                seen = f": {count} of the sample decode, without schema ids"
                return plain, f"{format_}, framing none{seen}; columns of {reader.name}"
        if found.plan is None:
            what = f"{self.part}.schema, or {self.part}.framing"
            if reader is not None:
                what = f"{self.part}.framing, if {reader.name} is the right one"
            named = f", as {self.part}.format" if format_ is None else f"; give {what}"
            raise SchemaError(f"topic {self.topic}: {found.finding}{named}")
        if format_ is not None and found.plan.format is not format_ and not _is_event(found.plan, format_):
            raise SchemaError(f"topic {self.topic}: the {self.part}s are {found.finding}; not {format_}")
        return replace(found.plan, reader=reader or found.plan.reader), found.finding


def _is_event(found: DecoderPlan, format_: Format) -> bool:
    """Whether Avro or Protobuf payloads are Debezium's change events."""
    if format_ is not Format.DEBEZIUM:
        return False
    type_ = PayloadDecoder(found).arrow_type
    return pa.types.is_struct(type_) and {"before", "after", "op"} <= {field.name for field in type_}


def named_schema(
    text: str, format_: Format | None, topic: str, part: Part, catalogue: SchemaCatalogue
) -> RegisteredSchema:
    """The schema that a user names, or gives as a file or as text."""
    if text == LATEST:
        return _latest(f"{topic}-{part}", catalogue)
    if is_schema_text(text):
        type_ = next((each for each, name in FORMATS.items() if name is format_), None)
        if type_ is None and format_ is None:
            raise SchemaError(f"{part}.schema is a text: give {part}.format, too")
        return RegisteredSchema(type=type_ or SchemaType.JSON, text=text)
    if is_schema_file(text):
        return read_schema_file(text)
    return find_schema(catalogue, text)


def _latest(subject: str, catalogue: SchemaCatalogue) -> RegisteredSchema:
    """Of a subject, in the default context or in the only other one that has it."""
    contexts = [context for context in catalogue.contexts() if catalogue.versions(in_context(subject, context))]
    if not catalogue.versions(subject) and len(contexts) == 1:
        return find_schema(catalogue, in_context(subject, contexts[0]))
    return find_schema(catalogue, subject)


def is_schema_text(text: str) -> bool:
    """Whether it is a schema itself, and not the name of one or of a file."""
    return text.lstrip().startswith(_BEGINNINGS_OF_TEXT) or "\n" in text


def is_schema_file(text: str) -> bool:
    """Whether it names a file, by its ending."""
    return not is_schema_text(text) and text.lower().endswith(SCHEMA_FILES)


def _one_decoder(
    part: Part, planned: list[tuple[str, DecoderPlan]], asked: PayloadRequest, later: LaterSchemas | None
) -> PayloadDecoder:
    """One type for all topics: a column has one."""
    first_topic, first = planned[0]
    decoder = PayloadDecoder(first, later)
    for topic, plan in planned[1:]:
        other = PayloadDecoder(plan)
        is_same = (plan.format, plan.framing, plan.reader) == (first.format, first.framing, first.reader)
        if plan.json_type is not None and first.json_type is not None:
            # Text is a string, or the JSON of anything: the type alone does not say it.
            is_same = is_same and plan.json_type.equals(first.json_type, check_metadata=True)
        if not is_same or other.arrow_type != decoder.arrow_type:
            raise SchemaError(
                f"the {part}s of {first_topic} and {topic} are of different types: read the topics one at a time, or"
                f" give {part}.format and {part}.schema for all of them (now {asked.format})"
            )
    return decoder
