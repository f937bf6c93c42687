"""`auto`: what a topic's payloads are, found out from a sample, and only if it is certain.

Certain is: every payload of the sample names a schema that the catalogue has, and decodes to its last byte; or every
one is a JSON object or array; or every one is printable text that cannot be a number. Anything else is left to the
user: the finding says what was seen and what could be named.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from duralog.config.plurals import plural
from duralog.errors import DuralogError, SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.column_types import field_paths
from duralog.schemas.connect.connect_payloads import infer_connect_type, is_connect, schema_of
from duralog.schemas.connect.debezium_payloads import infer_debezium_type, is_event
from duralog.schemas.json_payloads import infer_json_type, parse_all
from duralog.schemas.payload_decoder import FORMATS, DecoderPlan, Format, PayloadDecoder
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType, context_of, in_context
from duralog.schemas.wire_formats import KEY_HEADER, VALUE_HEADER, Framing, split_frames

SAMPLE_ROWS = 1_000
_MOST_READERS = 5
_MOST_MERGED = 100

_NAMES = {
    Framing.CONFLUENT: "Confluent's schema ids",
    Framing.APICURIO3: "Apicurio's four-byte ids",
    Framing.APICURIO: "Apicurio's eight-byte ids",
    Framing.GLUE: "AWS Glue's header",
}


@dataclass(frozen=True)
class Detected:
    """What a sample showed."""

    plan: DecoderPlan | None
    """How to decode the topic; None if nothing is certain."""
    finding: str
    """What was found, or what to name, in a sentence for people."""
    good: int = 0
    total: int = 0
    """Payloads of the sample that decode by the plan, of how many."""


# More than seven parameters: the keyword ones are what a user may say, each under the name of its option.
def detect_format(
    payloads: pa.Array,
    catalogue: SchemaCatalogue,
    headers: pa.Array | None = None,
    *,
    topic: str | None = None,
    part: Literal["key", "value"] = "value",
    known: Format | None = None,
    framing: Framing | None = None,
    reader: RegisteredSchema | None = None,
    writer: RegisteredSchema | None = None,
) -> Detected:
    """What a sample of a topic's keys or values is written in.

    If the user says what the format is, it is `known`, and the sample gives the rest: the framing and the reader's
    schema, or the type of JSON. Payloads that do not fit then do not count; the finding says how many. Debezium's
    events may be of any format: the plan has that one.

    What else the user says: the only `framing`, the `reader`'s schema, whose context is that of the ids if it is
    registered, and the `writer`'s, which stands for all ids that the catalogue does not have.
    """
    if isinstance(payloads, pa.ChunkedArray):
        payloads = payloads.combine_chunks()
    rows = np.flatnonzero(np.asarray(payloads.is_valid()))[:SAMPLE_ROWS]
    if not len(rows):
        return Detected(None, f"the sample has no {part}s: name the format")
    sample = payloads.take(pa.array(rows)).cast(pa.binary())
    headers = None if headers is None else headers.take(pa.array(rows))
    context = None if reader is None or reader.id is None else reader.context
    search = _Search(sample, headers, catalogue, (topic, part), known, framing, context, reader, writer)
    for each in _NAMES if framing is None else (framing,):
        found = None if each is Framing.NONE else search.framed(each)
        if found is not None:
            return found
    return search.plain() if framing in (None, Framing.NONE) else search.uncertain()


@dataclass(frozen=True)
class _Search:
    """A sample without nulls, and what is known about it."""

    sample: pa.Array
    headers: pa.Array | None
    catalogue: SchemaCatalogue
    place: tuple[str | None, Literal["key", "value"]]
    """The topic, and what of its records."""
    known: Format | None
    given: Framing | None
    context: str | None
    """Of the ids. None if it has to be found out."""
    reader: RegisteredSchema | None
    writer: RegisteredSchema | None
    hints: list[str] = field(default_factory=list)
    """What was seen and is not certain."""

    def framed(self, framing: Framing) -> Detected | None:
        """By schema ids: a plan, if all of them are known and all payloads decode."""
        frames = split_frames(self.sample, framing, self.headers, header=self._header)
        numbers = frames.schemas[(frames.faults == 0) & (frames.schemas >= 0)]
        used = [frames.ids[number] for number in np.unique(numbers)]
        writers = self._writers(used)
        if len(writers) < len(used) and self.writer is not None:
            writers.append(self.writer)
        elif len(writers) < len(used) <= 20 and len(numbers) == len(self.sample) and 0 not in used and not self.hints:
            shown = ", ".join(map(str, used[:5]))
            self.hints.append(
                f"they fit {_NAMES[framing]} ({shown}), which the catalogue does not have all of; if one schema wrote"
                f" them all, give {self.place[1]}.schema=any:FILE"
            )
        if self.known is None:
            if len(numbers) < len(self.sample) or (self.writer is None and len(writers) < len(used)):
                return None
        elif self.known is Format.CONNECT:
            return None
        elif self.known is not Format.DEBEZIUM:
            writers = [schema for schema in writers if FORMATS[schema.type] is self.known]
        if not writers:
            return None
        types = {each.type for each in writers}
        if framing is Framing.APICURIO3 and self.given is None and types != {SchemaType.PROTOBUF}:
            # Tried as Confluent's: others have the same bytes.
            return None
        if len(types) > 1:
            self.hints.append(f"they have {_NAMES[framing]} of several types: {', '.join(sorted(types))}")
            return None
        try:
            return self._decoded(framing, writers)
        except DuralogError as error:
            self.hints.append(f"they have {_NAMES[framing]}, but {error}")
            return None

    @property
    def _header(self) -> str:
        return KEY_HEADER if self.place[1] == "key" else VALUE_HEADER

    def _writers(self, used: list[int | UUID]) -> list[RegisteredSchema]:
        """The schemas of these ids, as far as they are known: those of one context.

        That is the context that has a subject named after the topic, or the default one, or the only other one that has
        all of them.
        """
        guids = [each for id_ in used if isinstance(id_, UUID) and (each := self.catalogue.by_guid(id_)) is not None]
        numbers = [id_ for id_ in used if not isinstance(id_, UUID)]
        contexts = [self.context] if self.context is not None else [".", *(set(self.catalogue.contexts()) - {"."})]
        found = {
            context: [each for id_ in numbers if (each := self.catalogue.by_id(id_, context)) is not None]
            for context in contexts
        }
        most = max(len(schemas) for schemas in found.values())
        best = sorted(context for context, schemas in found.items() if len(schemas) == most)
        subject = f"{self.place[0]}-{self.place[1]}"
        for chosen in (
            [context for context in best if self.catalogue.versions(in_context(subject, context), deleted=True)],
            [context for context in best if context == "."],
            best,
        ):
            if len(chosen) == 1:
                return guids + found[chosen[0]]
        self.hints.append(f"their ids are those of several contexts: {', '.join(best)}")
        return guids

    def _decoded(self, framing: Framing, writers: list[RegisteredSchema]) -> Detected | None:
        """Read as the user says; else as the subject's latest version; if that does not fit, as the newest in use."""
        if self.reader is not None:
            reader = self.reader if self.reader.id is not None else replace(self.reader, context=writers[0].context)
            return self._decoded_as(framing, writers, reader, reader.name)
        reader, called = _reader(writers, self.catalogue, self.place)
        newest = _newest(writers)
        tried = [(reader, called)]
        if newest.id is None:
            # Schemas that have only GUIDs have no order: the one that reads most of the sample.
            tried = [(each, each.name) for each in writers[:_MOST_READERS]]
        elif reader.id != newest.id:
            tried.append((newest, newest.name))
        best: Detected | None = None
        for each, name in tried:
            found = self._decoded_as(framing, writers, each, name)
            if found is not None and (best is None or found.good > best.good):
                best = found
            if best is not None and (newest.id is not None or best.good == best.total):
                break
        return best

    def _decoded_as(
        self, framing: Framing, writers: list[RegisteredSchema], reader: RegisteredSchema, called: str
    ) -> Detected | None:
        format_ = FORMATS[reader.type]
        plan = DecoderPlan(format=format_, framing=framing, part=self.place[1], reader=reader, catalogue=self.catalogue)
        plan = replace(plan, writer=self.writer)
        if format_ is Format.PROTOBUF:
            plan = self._with_message(plan, reader)
        decoder = PayloadDecoder(plan)
        is_event = _is_envelope(decoder.arrow_type)
        if self.known is Format.DEBEZIUM and not is_event:
            return None
        others = [each for each in writers if each is not reader and each is not self.writer]
        if is_event and others and format_ is Format.AVRO and self.reader is None:
            # The database's table has had columns that the newest schema does not have.
            plan = replace(plan, more_fields_of=self._between(writers))
            decoder = PayloadDecoder(plan)
        reasons = decoder.decode(self.sample, self.headers).reasons.drop_null()
        total, bad = len(self.sample), len(reasons)
        if bad == total or (bad and self.known is None):
            self.hints.append(f"they have {_NAMES[framing]}, but {bad} of {total} do not decode: {reasons[0]}")
            return None
        ids = [str(each.id if each.id is not None and framing is not Framing.GLUE else each.guid) for each in writers]
        ids = ["unknown ones" if each is self.writer else id_ for each, id_ in zip(writers, ids, strict=True)]
        shown = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
        count = f"all {total}" if not bad else f"{total - bad} of {total}"
        seen = f"; the others do not decode: {reasons[0]}" if bad else ""
        called += _lacking(decoder, others)
        finding = f"{format_}: {count} of the sample have {_NAMES[framing]} ({shown}); columns of {called}{seen}"
        return Detected(plan, finding, total - bad, total)

    def _between(self, writers: list[RegisteredSchema]) -> tuple[RegisteredSchema, ...]:
        """The schemas of the sample, newest first, and those that were registered between."""
        found = {each.id: each for each in writers if each.id is not None}
        subject = in_context(f"{self.place[0]}-{self.place[1]}", writers[0].context)
        for version in self.catalogue.versions(subject, deleted=True) if found else ():
            id_ = version.schema.id
            if id_ is not None and min(found) < id_ < max(found):
                found.setdefault(id_, version.schema)
        newest = sorted(found, reverse=True)[:_MOST_MERGED]
        return tuple(found[id_] for id_ in newest) or tuple(writers[:_MOST_MERGED])

    def _with_message(self, plan: DecoderPlan, reader: RegisteredSchema) -> DecoderPlan:
        """The plan for the message type that the first payload has: it need not be the first of its file."""
        from duralog.schemas.protobuf_payloads import message_at

        frames = split_frames(self.sample, plan.framing, self.headers, header=self._header, messages=True)
        if not frames.places:
            return plan
        place = frames.places[int(frames.messages[np.argmax(frames.messages >= 0)])]
        return replace(plan, message=message_at(reader, self.catalogue, place))

    def plain(self) -> Detected:
        """By what JSON and text look like."""
        values, reasons = parse_all(self.sample)
        total, part = len(self.sample), self.place[1]
        structured = sum(isinstance(value, dict | list) for value in values)
        events = sum(is_event(value) for value in values)
        counted = f"all {total}" if structured == total else f"{structured} of {total}"
        try:
            if self.known is Format.DEBEZIUM or (self.known is None and events == total):
                plan = DecoderPlan(format=Format.DEBEZIUM, part=part, json_type=infer_debezium_type(self.sample))
                counted = f"all {total}" if events == total else f"{events} of {total}"
                finding = f"debezium: {counted} of the sample are change events in JSON; {_INFERRED}"
                return Detected(plan, finding, events, total)
            wrapped = sum(is_connect(value) for value in values)
            if self.known is Format.CONNECT or (
                self.known is None and wrapped == total and any(map(schema_of, values))
            ):
                plan = DecoderPlan(format=Format.CONNECT, part=part, json_type=infer_connect_type(self.sample))
                counted = f"all {total}" if wrapped == total else f"{wrapped} of {total}"
                finding = f"connect: {counted} of the sample are JSON of Kafka Connect; columns of their schemas"
                return Detected(plan, finding, wrapped, total)
            if self.known is Format.JSON or (self.known is None and structured == total):
                plan = DecoderPlan(format=Format.JSON, part=part, json_type=infer_json_type(self.sample))
                columns = _INFERRED if self.reader is None else f"columns of {self.reader.name}"
                seen = f"; the others are not: {next(iter(reasons.values()))}" if reasons else ""
                counted = f"{total - len(reasons)} of {total}" if reasons else f"all {total}"
                finding = f"json: {counted} of the sample are JSON; {columns}{seen}"
                return Detected(plan, finding, total - len(reasons), total)
        except SchemaError as error:
            self.hints.append(str(error))
        if self.known is None:
            if structured:
                self.hints.append(f"{counted} are JSON objects or arrays")
            elif self._is_text() and not self.hints:
                plan = DecoderPlan(format=Format.STRING, part=part)
                return Detected(plan, f"string: all {total} of the sample are text", total, total)
        return self.uncertain()

    def uncertain(self) -> Detected:
        """No plan, and what was seen."""
        total, part = len(self.sample), self.place[1]
        seen = f": {'; '.join(self.hints)}" if self.hints else ""
        if self.known is not None:
            return Detected(
                None, f"no {part} of the sample is {self.known} with a schema that is known{seen}", 0, total
            )
        return Detected(None, f"the format of the {part}s is not certain{seen}. Name it", 0, total)

    def _is_text(self) -> bool:
        """Whether all payloads are printable, and not all as long as a number."""
        sizes = set(pc.binary_length(self.sample).to_pylist())
        size, is_printable = sizes.pop(), self._is_printable()
        # The byte of a boolean is not printable.
        if not sizes and size in _NUMBERS and (size > 1 or not is_printable):
            self.hints.append(f"all have {plural(size, 'byte')}, as {_NUMBERS[size]} would")
            return False
        return is_printable

    def _is_printable(self) -> bool:
        try:
            texts = self.sample.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid:
            return False
        return not any(_CONTROLS.intersection(text) for text in texts)


def _lacking(decoder: PayloadDecoder, writers: list[RegisteredSchema]) -> str:
    """The fields of writers' schemas that the column does not have: with a reader's schema, they are left out."""
    known = set(field_paths(decoder.arrow_type))
    found: dict[str, str] = {}
    for writer in writers[:_MOST_READERS]:
        try:
            type_ = PayloadDecoder(replace(decoder.plan, reader=writer, more_fields_of=(), message=None)).arrow_type
        except SchemaError:
            continue
        found |= {path: writer.name for path in field_paths(type_) if path not in known and path not in found}
    named = [f"{path} of {name}" for path, name in found.items()][:_MOST_READERS]
    return f", without {', '.join(named)}{', ...' if len(found) > len(named) else ''}" if named else ""


def _is_envelope(type_: pa.DataType) -> bool:
    return pa.types.is_struct(type_) and {"before", "after", "op"} <= {each.name for each in type_}


def _reader(
    writers: list[RegisteredSchema], catalogue: SchemaCatalogue, place: tuple[str | None, str]
) -> tuple[RegisteredSchema, str]:
    """The latest version of the subject that all writers' schemas belong to, else the newest of those."""
    ids = {each.id for each in writers}
    common = [
        subject
        for subject in catalogue.subjects()
        if context_of(subject) == writers[0].context
        and ids <= {each.schema.id for each in catalogue.versions(subject, deleted=True)}
    ]
    wanted = in_context(f"{place[0]}-{place[1]}", writers[0].context)
    if wanted in common or len(common) == 1:
        subject = wanted if wanted in common else common[0]
        version = catalogue.versions(subject)[-1]
        return version.schema, f"subject {subject!r} version {version.version}"
    newest = _newest(writers)
    return newest, newest.name


def _newest(writers: list[RegisteredSchema]) -> RegisteredSchema:
    return max(writers, key=lambda each: each.id or 0)


_INFERRED = "the columns' types were inferred from the sample"
_CONTROLS = {chr(code) for code in range(32)} - set("\t\n\r")
_NUMBERS = {1: "booleans", 2: "shorts", 4: "integers, floats or text", 8: "longs, doubles or text"}
