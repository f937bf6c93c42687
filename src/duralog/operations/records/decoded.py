"""Records with their keys and values decoded by schemas: for commands and pages that show records.

Keys and values are planned separately: if the format of one is not certain, the other is still decoded. Payloads that
do not decode, or have no certain format, are shown as bytes, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from duralog.columnar.python_values import python_values
from duralog.columnar.schema import HEADERS, KEY, OFFSET, PARTITION, RECORD_SCHEMA, TOPIC, VALUE
from duralog.errors import SchemaError
from duralog.format.record import Record
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.connect.connect_payloads import infer_connect_type
from duralog.schemas.connect.debezium_payloads import infer_debezium_type
from duralog.schemas.decode_options import Decode, ReadRecords, plan_decoding, read_catalogue
from duralog.schemas.payload_decoder import JSON_FORMATS, WRAPPED_JSON, Format, PayloadDecoder
from duralog.schemas.payload_planning import PayloadRequest
from duralog.schemas.registered_schema import DEFAULT_CONTEXT, SubjectVersion, context_of, in_context
from duralog.schemas.typed_columns import TypedColumns
from duralog.schemas.wire_formats import KEY_HEADER, VALUE_HEADER, Framing, split_frames

_Versions = dict[int | UUID, SubjectVersion]

_BATCH_ROWS = 512
_PLAIN = (*JSON_FORMATS, Format.STRING)
"""Without a schema id, these are readable as bytes."""


class DecodedPayload(NamedTuple):
    """A key or value."""

    value: Any
    """As Python values: dicts, lists, numbers, text, times. None if it did not decode, or is null."""
    schema: str | None
    """The schema that wrote it, by name and id. None for formats without one."""
    reason: str | None
    """Why it did not decode."""
    version: SubjectVersion | None = None
    """The version that `schema` names, if the catalogue has it."""


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """The decoded parts of a record. None for a part that stays bytes."""

    key: DecodedPayload | None = None
    value: DecodedPayload | None = None


class TopicDecoder:
    """How the keys and values of one topic are decoded. Any thread may use it."""

    def __init__(
        self,
        topic: str,
        columns: Sequence[TypedColumns],
        findings: Sequence[str] = (),
        undecided: Sequence[str] = (),
        catalogue: SchemaCatalogue | None = None,
    ) -> None:
        self.topic = topic
        self.columns = tuple(columns)
        """One for the keys, one for the values, or less."""
        self.findings = tuple(findings)
        """How they are decoded."""
        self.undecided = tuple(undecided)
        """Why they are not."""
        self._catalogue = catalogue or SchemaCatalogue()
        self._versions = {
            name: _versions(self._catalogue, topic, _context(decoder)) for name, decoder in self.decoders.items()
        }
        self._by_writer: dict[tuple[str, int | UUID], PayloadDecoder] = {}

    @property
    def decoders(self) -> dict[str, PayloadDecoder]:
        """By column."""
        return {name: decoder for each in self.columns for name, decoder in each.decoders}

    def without_plain(self) -> TopicDecoder:
        """Without formats that are readable as bytes: text, and JSON without a schema id."""
        kept = [each for each in self.columns if not all(_is_plain(decoder) for _, decoder in each.decoders)]
        return TopicDecoder(self.topic, kept, self.findings, self.undecided, self._catalogue)

    def decode(self, records: pa.RecordBatch, *, by_writer: bool = False) -> list[DecodedRecord]:
        """REQUIRES: key, value and headers. `by_writer`: all fields that were written, not those of the newest."""
        parts = {name: self._part(name, decoder, records, by_writer) for name, decoder in self.decoders.items()}
        return [
            DecodedRecord(
                key=parts[KEY][row] if KEY in parts else None, value=parts[VALUE][row] if VALUE in parts else None
            )
            for row in range(records.num_rows)
        ]

    def _part(
        self, name: str, decoder: PayloadDecoder, records: pa.RecordBatch, by_writer: bool
    ) -> list[DecodedPayload]:
        payloads, headers = records.column(name), records.column(HEADERS)
        ids = _schema_ids(decoder, payloads, headers, name)
        groups: dict[PayloadDecoder, list[int]] = {}
        for row, id_ in enumerate(ids):
            chosen = self._writers_own(name, decoder, id_) if by_writer and id_ is not None else decoder
            groups.setdefault(chosen, []).append(row)
        found: dict[int, DecodedPayload] = {}
        for chosen, rows in groups.items():
            places = pa.array(rows, pa.int64())
            taken = payloads.take(places), headers.take(places)
            decoded = _decoded(chosen, self._versions[name], *taken, [ids[row] for row in rows])
            found.update(zip(rows, decoded, strict=True))
        return [found[row] for row in range(records.num_rows)]

    def _writers_own(self, name: str, decoder: PayloadDecoder, id_: int | UUID) -> PayloadDecoder:
        """The decoder with the columns of the schema that wrote the payloads."""
        known = self._by_writer.get((name, id_))
        if known is None:
            version = self._versions[name].get(id_)
            known = decoder
            if version is not None and decoder.plan.reader is not None:
                try:
                    plan = replace(decoder.plan, reader=version.schema, catalogue=self._catalogue)
                    known = PayloadDecoder(plan)
                except SchemaError:
                    known = decoder
            self._by_writer[name, id_] = known
        return known


class RecordDecoder:
    """Decodes records of any topics. Each topic is planned when its first record comes."""

    def __init__(
        self, decode: Decode, records: ReadRecords, on_finding: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_finding` is called with a sentence for each topic: how it is decoded, or why it is not."""
        self._decode = decode
        self._records = records
        self._on_finding = on_finding
        self._planned: dict[str, TopicDecoder] = {}
        self._catalogue: SchemaCatalogue | None = None

    def decode(self, topic: str, partition: int, records: Sequence[Record]) -> list[DecodedRecord]:
        """Of some records of one partition."""
        planned = self.topic(topic)
        if not planned.columns:
            return [DecodedRecord() for _ in records]
        found: list[DecodedRecord] = []
        for begin in range(0, len(records), _BATCH_ROWS):
            found += planned.decode(record_columns(topic, partition, records[begin : begin + _BATCH_ROWS]))
        return found

    def topic(self, topic: str) -> TopicDecoder:
        """The decoder of a topic, planned at its first use."""
        planned = self._planned.get(topic)
        if planned is None:
            planned = self._planned[topic] = self._plan(topic)
            for sentence in (*planned.findings, *planned.undecided):
                self._on_finding(sentence)
        return planned

    def forget(self, topic: str) -> None:
        """Plan again: the topic has other records by now."""
        self._planned.pop(topic, None)

    def catalogue(self) -> SchemaCatalogue:
        """All schemas, read once."""
        if self._catalogue is None:
            self._catalogue = self._catalogue_now()
        return self._catalogue

    def _catalogue_now(self) -> SchemaCatalogue:
        return read_catalogue(self._decode, self._records)

    def _plan(self, topic: str) -> TopicDecoder:
        columns: list[TypedColumns] = []
        findings: list[str] = []
        undecided: list[str] = []
        nothing = PayloadRequest()
        for part, alone in ((KEY, replace(self._decode, value=nothing)), (VALUE, replace(self._decode, key=nothing))):
            if not (alone.key.is_typed or alone.value.is_typed):
                continue
            try:
                planned = plan_decoding(alone, [topic], self._records, None, self.catalogue, self._catalogue_now)
            except SchemaError as error:
                undecided.append(f"{error}; the {part}s of {topic} are shown as bytes")
                continue
            columns.append(planned)
            findings += planned.findings
        return TopicDecoder(topic, columns, findings, undecided, self._catalogue)


def record_columns(topic: str, partition: int, records: Sequence[Record]) -> pa.RecordBatch:
    """Records of one partition as a batch, with what decoding needs."""
    columns = {
        TOPIC: [topic] * len(records),
        PARTITION: [partition] * len(records),
        OFFSET: [record.offset for record in records],
        KEY: [record.key for record in records],
        VALUE: [record.value for record in records],
        HEADERS: [[{"key": name, "value": value} for name, value in record.headers] for record in records],
    }
    schema = pa.schema([field for field in RECORD_SCHEMA if field.name in columns])
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _is_plain(decoder: PayloadDecoder) -> bool:
    return decoder.plan.framing is Framing.NONE and decoder.plan.format in _PLAIN


def _schema_ids(
    decoder: PayloadDecoder, payloads: pa.Array, headers: pa.Array, part: str
) -> Sequence[int | UUID | None]:
    """The id of the schema that wrote each payload."""
    plan = decoder.plan
    if plan.framing is Framing.NONE:
        return [None] * len(payloads)
    header = KEY_HEADER if part == KEY else VALUE_HEADER
    frames = split_frames(payloads, plan.framing, headers, header=header)
    return [None if number < 0 else frames.ids[number] for number in frames.schemas.tolist()]


def _decoded(
    decoder: PayloadDecoder,
    versions: _Versions,
    payloads: pa.Array,
    headers: pa.Array,
    ids: Sequence[int | UUID | None],
) -> Iterator[DecodedPayload]:
    framing, reader = decoder.plan.framing, decoder.plan.reader
    values, reasons = _values(decoder, payloads, headers if framing is Framing.CONFLUENT else None)
    for value, reason, id_ in zip(values, reasons, ids, strict=True):
        if framing is Framing.NONE:
            yield DecodedPayload(value, None if reader is None else reader.name, reason)
        elif id_ is None:
            yield DecodedPayload(value, None, reason)
        else:
            version = versions.get(id_)
            yield DecodedPayload(value, f"id {id_}" if version is None else _name(version), reason, version)


def _values(
    decoder: PayloadDecoder, payloads: pa.Array, headers: pa.Array | None
) -> tuple[list[Any], list[str | None]]:
    """What was written, and why it does not decode. Of JSON, columns may have less: their type is that of a sample."""
    if decoder.plan.format in WRAPPED_JSON:
        return _wrapped(decoder, payloads, headers)
    decoded = decoder.decode(payloads, headers)
    reasons: list[str | None] = decoded.reasons.to_pylist()
    if decoder.plan.format is not Format.JSON:
        return python_values(decoded.values), reasons
    written = decoder.written_json(payloads, headers)
    if decoder.plan.reader is None:
        # What a sample has not seen is not wrong.
        reasons = [reason if value is None else None for value, reason in zip(written, reasons, strict=True)]
    return [value if reason is None else None for value, reason in zip(written, reasons, strict=True)], reasons


def _wrapped(
    decoder: PayloadDecoder, payloads: pa.Array, headers: pa.Array | None
) -> tuple[list[Any], list[str | None]]:
    """Payloads that the sample's type does not hold in full have the type that they themselves say."""
    infer = infer_debezium_type if decoder.plan.format is Format.DEBEZIUM else infer_connect_type
    decoded = decoder.decode(payloads, headers)
    values, reasons = python_values(decoded.values), decoded.reasons.to_pylist()
    if not decoded.left_out and decoded.reasons.null_count == len(reasons):
        return values, reasons
    for row in range(len(payloads)):
        one = payloads.slice(row, 1)
        try:
            own = PayloadDecoder(replace(decoder.plan, json_type=infer(one)))
        except SchemaError:
            continue
        found = own.decode(one, None if headers is None else headers.slice(row, 1))
        if found.reasons[0].as_py() is None:
            [values[row]], reasons[row] = python_values(found.values), None
    return values, reasons


def _context(decoder: PayloadDecoder) -> str:
    reader = decoder.plan.reader
    return DEFAULT_CONTEXT if reader is None else reader.context


def _versions(catalogue: SchemaCatalogue, topic: str, context: str) -> _Versions:
    """By id and GUID. An id may belong to several subjects: one that is named after the topic comes first."""
    found: _Versions = {}
    # The same id is another schema in another context.
    subjects = [name for name in catalogue.subjects(deleted=True) if context_of(name) == context]
    for subject in sorted(subjects, key=lambda name: not name.startswith(in_context(topic, context))):
        for version in catalogue.versions(subject, deleted=True):
            for id_ in (version.schema.id, version.schema.guid):
                if id_ is not None:
                    found.setdefault(id_, version)
    return found


def _name(version: SubjectVersion) -> str:
    return f"{version.subject} version {version.version} (id {version.schema.id})"
