"""Payloads become typed columns: one decoder for a topic's keys or values, whatever schemas they were written with.

The type is fixed when the decoder is made, from the reader's schema. Each row is decoded with the schema that wrote
it: rows are grouped by their schema ids, each group is decoded by the program for its writer and the reader, and the
results are put back in the order of the rows. A bad row is null and has a reason; it never fails its neighbours.

A decoder can be pickled. Programs are compiled in the process that uses them, when it meets their ids. Ids that were
registered after the decoder was made are looked up by `LaterSchemas`, as often as a bad topic cannot abuse.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa

from duralog.errors import DuralogError, SchemaError
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.frames import FAULT_TEXTS, FrameFault, Frames, MessagePlace
from duralog.schemas.payloads import Decoded, Int64s, Payloads, binary_column, in_order
from duralog.schemas.plain_payloads import PLAIN_FORMATS, plain_payloads
from duralog.schemas.registered_schema import RegisteredSchema, SchemaType
from duralog.schemas.wire_formats import KEY_HEADER, VALUE_HEADER, Framing, split_frames


class Format(StrEnum):
    """What payloads are written in. Those from `STRING` on are of Kafka's own serializers."""

    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"
    DEBEZIUM = "debezium"
    CONNECT = "connect"
    STRING = "string"
    SHORT = "short"
    INTEGER = "integer"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    UUID = "uuid"
    BYTES = "bytes"


FORMATS = {SchemaType.AVRO: Format.AVRO, SchemaType.PROTOBUF: Format.PROTOBUF, SchemaType.JSON: Format.JSON}
"""The format of each type of schema."""

WRAPPED_JSON = (Format.DEBEZIUM, Format.CONNECT)
"""JSON that may have a schema next to each payload."""

JSON_FORMATS = (Format.JSON, *WRAPPED_JSON)

_TYPES = {format_: type_ for type_, format_ in FORMATS.items()}

_MAX_PROGRAMS = 1_000
"""Writers' schemas that one decoder compiles. A topic has a handful; an id must be in the catalogue to be compiled."""


LaterSchemas = Callable[[], SchemaCatalogue]
"""All schemas as they are now. It is pickled with the decoder."""

_LOOKUP_SECONDS = 5.0
"""At least so long between two lookups of unknown ids."""


@dataclass(frozen=True, kw_only=True)
class DecoderPlan:
    """What a decoder is made from: values only."""

    format: Format
    framing: Framing = Framing.NONE
    part: Literal["key", "value"] = "value"
    reader: RegisteredSchema | None = None
    """Whose types the column has. The plain formats need none."""
    catalogue: SchemaCatalogue = field(default_factory=SchemaCatalogue)
    """Where the writers' schemas are."""
    writer: RegisteredSchema | None = None
    """What wrote the payloads whose ids the catalogue does not have. Without it, they are bad."""
    more_fields_of: tuple[RegisteredSchema, ...] = ()
    """Of Avro: schemas of writers whose fields the column has, too, if the reader does not have them."""
    columns: tuple[str, ...] | None = None
    """Fields to decode, nested ones with dots (`customer.id`); all of them if not given."""
    message: str | None = None
    """The full name of Protobuf's message type; the first of its file if not given."""
    json_type: pa.Field | None = None
    """Of JSON without a schema: what a function like `infer_json_type` found in a sample."""


class _Decoders(Protocol):
    """The decoders of one format and reader."""

    arrow_type: pa.DataType

    def payloads(self, writer: RegisteredSchema | None, place: MessagePlace | None) -> Payloads:
        """For a writer's schema, and Protobuf's message type in it; None where there is no id."""


class PayloadDecoder:
    """Decodes columns of keys or of values. Raises `SchemaError` if it cannot be made. No bytes make `decode` fail."""

    def __init__(self, plan: DecoderPlan, later: LaterSchemas | None = None) -> None:
        type_ = _TYPES.get(plan.format)
        if plan.framing is not Framing.NONE and type_ is None and plan.format is not Format.DEBEZIUM:
            raise SchemaError(f"format {plan.format} has no schema id: its framing must be none, not {plan.framing}")
        if plan.reader is not None and plan.reader.type is not type_:
            raise SchemaError(f"{plan.reader.name} is of type {plan.reader.type}: format {plan.format} cannot use it")
        reader, writer = plan.reader, plan.writer
        if plan.format is Format.PROTOBUF:
            from duralog.schemas.protobuf_payloads import compiled

            reader = None if reader is None else compiled(reader, plan.catalogue)
            writer = None if writer is None else compiled(writer, plan.catalogue)
        self.plan = replace(plan, catalogue=_narrowed(plan, plan.catalogue), reader=reader, writer=writer)
        self._later = None if plan.framing is Framing.NONE else later
        self._looked_up = float("-inf")
        self._looking_up = threading.Lock()
        self._decoders: _Decoders | None = _decoders(self.plan)
        self._programs: dict[tuple[int | UUID | None, MessagePlace | None], Payloads | str] = {}
        self.arrow_type: pa.DataType = self._decoders.arrow_type
        """Of the decoded column."""

    def __getstate__(self) -> dict[str, object]:
        begun: dict[str, object] = {"_later": self._later, "_decoders": None, "_programs": {}}
        return {"plan": self.plan, "arrow_type": self.arrow_type, **begun}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        # Clocks of other machines say nothing here.
        self._looked_up = float("-inf")
        self._looking_up = threading.Lock()

    def with_all_columns(self) -> PayloadDecoder:
        """The same for whole payloads."""
        return PayloadDecoder(replace(self.plan, columns=None), self._later)

    def decode(self, payloads: pa.Array, headers: pa.Array | None = None) -> Decoded:
        """A column of keys or values, and the records' headers if Confluent's framing may have put ids there."""
        frames = self._frames(payloads, headers)
        groups = _groups(frames)
        if len(groups) == 1 and len(groups[0].rows) == len(frames):
            return self._group(frames, groups[0])
        return in_order([(group.rows, self._group(frames, group)) for group in groups], len(frames), self.arrow_type)

    def written_json(self, payloads: pa.Array, headers: pa.Array | None = None) -> list[Any]:
        """The parsed payloads with all that is in them, None for those that are bad. REQUIRES: a format of JSON."""
        from duralog.schemas.connect.connect_payloads import unwrapped
        from duralog.schemas.json_payloads import parse_all

        frames = self._frames(payloads, headers)
        rows = np.flatnonzero(frames.valid & (frames.faults == 0))
        values, _ = parse_all(binary_column(frames.data, frames.starts[rows], frames.ends[rows]))
        found: list[Any] = [None] * len(frames)
        for row, value in zip(rows.tolist(), values, strict=True):
            found[row] = unwrapped(value) if self.plan.format in WRAPPED_JSON else value
        return found

    def _frames(self, payloads: pa.Array, headers: pa.Array | None) -> Frames:
        return split_frames(
            payloads,
            self.plan.framing,
            headers if self.plan.framing is Framing.CONFLUENT else None,
            header=KEY_HEADER if self.plan.part == "key" else VALUE_HEADER,
            messages=self.plan.format is Format.PROTOBUF,
        )

    def _group(self, frames: Frames, group: _Group) -> Decoded:
        if group.fault:
            return _refused(FAULT_TEXTS[group.fault], len(group.rows), self.arrow_type)
        id_ = None if group.schema < 0 else frames.ids[group.schema]
        place = None if group.message < 0 else frames.places[group.message]
        program = self._programs.get((id_, place))
        if program is None:
            program = self._program(id_, place)
            # An unknown id may be known the next time.
            if len(self._programs) < _MAX_PROGRAMS and not isinstance(program, _Unknown):
                self._programs[id_, place] = program
        if isinstance(program, str):
            return _refused(program, len(group.rows), self.arrow_type)
        return program.decode(frames.data, frames.starts[group.rows], frames.ends[group.rows])

    def _program(self, id_: int | UUID | None, place: MessagePlace | None) -> Payloads | str:
        """The program for a writer, or why there is none."""
        writer = None
        # JSON says itself what it holds.
        if id_ is not None and self.plan.format not in JSON_FORMATS:
            writer = self._writer(id_)
            problem = self._look_up(id_) if writer is None else None
            writer = writer or self._writer(id_) or self.plan.writer
            if writer is None:
                return _Unknown(f"unknown schema {'GUID' if isinstance(id_, UUID) else 'id'} {id_}{problem or ''}")
        try:
            if self._decoders is None:
                self._decoders = _decoders(self.plan)
            return self._decoders.payloads(writer, place)
        except SchemaError as error:
            return f"schema {'of the reader' if id_ is None else id_}: {error}"

    def _writer(self, id_: int | UUID) -> RegisteredSchema | None:
        found = self.plan.catalogue
        return found.by_guid(id_) if isinstance(id_, UUID) else found.by_id(id_, _context(self.plan))

    def _look_up(self, id_: int | UUID) -> str | None:
        """Take the schemas as they are now, unless that was done just before. Says why if it cannot be done.

        Other threads that have new ids wait for it.
        """
        if self._later is None:
            return None
        with self._looking_up:
            if self._writer(id_) is not None or time.monotonic() - self._looked_up < _LOOKUP_SECONDS:
                return None
            try:
                now = self._later()
            except DuralogError as error:
                return f"; new schemas cannot be read: {error}"
            finally:
                self._looked_up = time.monotonic()
            # Schemas that were deleted in the meantime keep their ids.
            known = self.plan.catalogue.merged(_narrowed(self.plan, now))
            plan = replace(self.plan, catalogue=known)
            # In this order: who finds the id needs decoders that know its references.
            self._decoders = _decoders(plan)
            self.plan = plan
            return None


class _Unknown(str):
    """Why an id has no program: nothing is known of it yet."""


@dataclass(frozen=True, slots=True)
class _Group:
    rows: Int64s
    fault: FrameFault = FrameFault.NONE
    schema: int = -1
    message: int = -1


def _groups(frames: Frames) -> list[_Group]:
    """Rows that are decoded alike; null rows are in no group."""
    usable = frames.valid & (frames.faults == 0)
    groups = [
        _Group(np.flatnonzero(frames.valid & (frames.faults == fault)), FrameFault(fault))
        for fault in np.unique(frames.faults[frames.valid & (frames.faults != 0)])
    ]
    if not usable.any():
        return groups
    rows = np.flatnonzero(usable)
    keys = frames.schemas[rows].astype(np.int64) * (len(frames.places) + 1) + frames.messages[rows]
    if (keys == keys[0]).all():
        pieces = [rows]
    else:
        order = np.argsort(keys, kind="stable")
        pieces = np.split(rows[order], np.flatnonzero(np.diff(keys[order])) + 1)
    groups += [
        _Group(each, schema=int(frames.schemas[each[0]]), message=int(frames.messages[each[0]])) for each in pieces
    ]
    return groups


def _refused(reason: str, count: int, type_: pa.DataType) -> Decoded:
    return Decoded(pa.nulls(count, type_), pa.repeat(pa.scalar(reason, pa.string()), count))


def _context(plan: DecoderPlan) -> str:
    return "." if plan.reader is None else plan.reader.context


def _narrowed(plan: DecoderPlan, catalogue: SchemaCatalogue) -> SchemaCatalogue:
    """What a task needs: the rest is not sent to it."""
    type_ = _TYPES.get(plan.format)
    if type_ is None:
        return SchemaCatalogue()
    narrowed = catalogue.only(type_, _context(plan))
    for given in (plan.reader, plan.writer):
        if given is not None and given.references:
            narrowed = narrowed.merged(_with_references(catalogue, given))
    return narrowed


def _with_references(catalogue: SchemaCatalogue, reader: RegisteredSchema) -> SchemaCatalogue:
    """The catalogue of a reader's schema alone, which need not be registered."""
    numbered = SchemaCatalogue((), [replace(reader, id=-1)])
    return catalogue.merged(numbered).only(reader.type, reader.context)


class _PlainDecoders:
    def __init__(self, plan: DecoderPlan) -> None:
        if plan.columns is not None:
            raise SchemaError(f"format {plan.format} has no columns to choose from")
        self._payloads = plain_payloads(plan.format)
        self.arrow_type = self._payloads.arrow_type

    def payloads(self, _writer: RegisteredSchema | None, _place: MessagePlace | None) -> Payloads:
        return self._payloads


def _decoders(plan: DecoderPlan) -> _Decoders:
    # Each format's libraries are imported when it is used.
    if plan.format in PLAIN_FORMATS:
        return _PlainDecoders(plan)
    if plan.format is Format.AVRO:
        from duralog.schemas.avro_payloads import AvroFormat

        return AvroFormat(_reader(plan), plan.catalogue, plan.columns, plan.more_fields_of)
    if plan.format is Format.PROTOBUF:
        from duralog.schemas.protobuf_payloads import ProtobufFormat

        return ProtobufFormat(_reader(plan), plan.catalogue, plan.columns, plan.message)
    if plan.format is Format.JSON:
        from duralog.schemas.json_payloads import JsonFormat

        return JsonFormat(plan.reader, plan.catalogue, plan.columns, plan.json_type)
    from duralog.schemas.connect.connect_payloads import ConnectFormat

    return ConnectFormat(plan.columns, plan.json_type)


def _reader(plan: DecoderPlan) -> RegisteredSchema:
    if plan.reader is None:
        raise SchemaError(f"format {plan.format} needs a schema: a subject, an id, a file or text")
    return plan.reader
