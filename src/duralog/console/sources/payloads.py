"""Keys and values of a source's topics, decoded by schemas; and the schemas themselves.

Formats are detected from a sample of each topic and the schemas, when its first records are shown. They are detected
again when they may have changed: the topic `_schemas` has changed, a minute has passed with a registry, or a topic
without a known format has more records. One thread at a time detects; others wait for it for a while, and show bytes if
that takes too long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from duralog.columnar.plain_json import json_text, searched_json
from duralog.columnar.schema import KEY, VALUE
from duralog.config.error_text import describe, printable
from duralog.console.facts.overview import PartitionRow
from duralog.console.facts.payloads import ShownPayload, TopicFormats
from duralog.console.facts.records import RecordKind, ShownRecord
from duralog.console.facts.schemas import SubjectsView
from duralog.console.facts.topic_records import WantedRecords
from duralog.console.sources.record_files import FILES, RecordFile
from duralog.console.sources.topic_reader import TopicReader
from duralog.errors import DuralogError, SchemaError, UnknownTopic
from duralog.format.record import Record
from duralog.operations.records.decoded import (
    DecodedPayload,
    RecordDecoder,
    TopicDecoder,
    record_columns,
)
from duralog.schemas.decode_options import Decode
from duralog.schemas.payload_planning import AUTO, PayloadRequest
from duralog.schemas.registry import RegistrySettings, fetch_levels
from duralog.storage.disk.background import Clock

AUTOMATIC = Decode(key=PayloadRequest(format=AUTO), value=PayloadRequest(format=AUTO))
_STRETCH_BYTES = 1 << 20
_REGISTRY_KEPT_MS = 60_000
_REGISTRY_TIMEOUT_SECONDS = 5.0
_REGISTRY_DEADLINE_SECONDS = 30.0
_MOST_LEVELS = 200
"""Subjects whose levels are asked for, one request each."""
_UNDECIDED_KEPT_MS = 10_000
_LONGEST_WAIT_SECONDS = 10.0


class _Known(NamedTuple):
    """The detected formats of a topic, and when they were detected."""

    whole: TopicDecoder
    decoder: TopicDecoder
    """Without what can be read as it is."""
    records: int
    """Sum of the end offsets."""
    at_ms: int


class SourcePayloads:
    """Any thread may ask."""

    def __init__(
        self, decode: Decode, reader: TopicReader, rows: Callable[[str], Sequence[PartitionRow]], clock: Clock
    ) -> None:
        """`rows` are the partitions of a topic, by the newest snapshot; it raises `UnknownTopic`."""
        self._decode = decode if decode.registry is None else replace(decode, registry=_patient(decode.registry))
        self._reader = reader
        self._rows = rows
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: object = None
        self._decoder = self._made()
        self._known: dict[str, _Known] = {}
        self._levels: dict[str, str] | None = None

    # What the pages ask for

    def decoded(self, topic: str, partition: int, records: Sequence[ShownRecord]) -> tuple[ShownRecord, ...]:
        whole = [record for record in records if record.kind is not RecordKind.MARKER and not _is_cut(record)]
        try:
            decoder = self.of(topic)
        except (DuralogError, OSError):
            return tuple(records)
        if not decoder.columns or not whole:
            return tuple(records)
        found = decoder.decode(record_columns(topic, partition, [_record(each) for each in whole]), by_writer=True)
        formats = {name: str(each.plan.format) for name, each in decoder.decoders.items()}
        shown = {
            record.offset: replace(
                record,
                decoded_key=_shown(record.key, each.key, formats.get(KEY, "")),
                decoded_value=_shown(record.value, each.value, formats.get(VALUE, "")),
            )
            for record, each in zip(whole, found, strict=True)
        }
        return tuple(shown.get(record.offset, record) for record in records)

    def formats(self, topic: str) -> TopicFormats:
        try:
            known = self._known_of(topic)
        except (DuralogError, OSError) as error:
            return TopicFormats(findings=(printable(describe(error)),), summary="Keys and values: as bytes.")
        whole = known.whole
        sentences = [each.removeprefix(f"{topic}: ") for each in whole.findings]
        for each in whole.undecided:
            if not any(_has_no(part, each) for part in (KEY, VALUE)):
                named = each.removeprefix(f"topic {topic}: ")
                for part in (KEY, VALUE):
                    named = named.replace(f"Name it, as {part}.format", f"Name it with --{part}-format")
                sentences.append(named)
        return TopicFormats(
            findings=tuple(f"{printable(each[:1].upper() + each[1:])}." for each in sentences),
            summary=_summary(whole),
            decoded=tuple(known.decoder.decoders),
        )

    def subjects(self) -> SubjectsView:
        registry = self._decode.registry
        origin = f"the topic {self._decode.schemas_topic}" if registry is None else _shown_url(registry)
        try:
            with self._found_out():
                catalogue = self._decoder.catalogue()
                if registry is not None and self._levels is None:
                    self._levels = fetch_levels(registry, catalogue.subjects()[:_MOST_LEVELS])
                levels = catalogue.levels if self._levels is None else self._levels
                is_there = registry is not None or self._has(self._decode.schemas_topic)
        except (DuralogError, OSError) as error:
            return SubjectsView(origin=origin, trouble=printable(describe(error)))
        return SubjectsView(origin=origin, catalogue=catalogue, levels=levels, is_there=is_there)

    def forget(self) -> None:
        self._stamp = None

    # What searches and downloads ask for

    def decoded_file(self, topic: str, extension: str) -> RecordFile:
        return FILES[extension](self.of(topic))

    def of(self, topic: str) -> TopicDecoder:
        """Reads. What is decoded of a topic; without what can be read as it is. Raises `DuralogError`."""
        return self._known_of(topic).decoder

    def _known_of(self, topic: str) -> _Known:
        rows = self._rows(topic)
        records = sum(row.end_offset or 0 for row in rows)
        with self._found_out():
            known = self._known.get(topic)
            if known is None or self._is_old(known, records):
                self._decoder.forget(topic)
                whole = self._decoder.topic(topic)
                known = self._known[topic] = _Known(whole, whole.without_plain(), records, self._clock())
            return known

    def as_json(self, decoder: TopicDecoder, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records with decoded keys and values as JSON, or as plain text; others as they are."""
        found = decoder.decode(records, by_writer=True)
        columns = {name: records.column(name) for name in records.schema.names}
        for name in decoder.decoders:
            given = columns[name].to_pylist()
            texts = [_text(payload, getattr(each, name)) or payload for payload, each in zip(given, found, strict=True)]
            columns[name] = pa.array(texts, records.schema.field(name).type)
        return pa.RecordBatch.from_pydict(columns, schema=records.schema)

    # How it is found out

    @contextmanager
    def _found_out(self) -> Iterator[None]:
        """One thread at a time; uses the earlier result unless it is too old."""
        if not self._lock.acquire(timeout=_LONGEST_WAIT_SECONDS):
            raise SchemaError("the schemas are still being read: open the page again in a moment")
        try:
            stamp = self._now()
            if stamp != self._stamp:
                self._decoder, self._known, self._levels = self._made(), {}, None
                self._stamp = stamp
            yield
        finally:
            self._lock.release()

    def _now(self) -> object:
        """Differs when there may be other schemas."""
        if self._decode.registry is not None:
            return self._clock() // _REGISTRY_KEPT_MS
        try:
            rows = self._rows(self._decode.schemas_topic)
        except DuralogError:
            return "none"
        return tuple((row.partition, row.start_offset, row.end_offset) for row in rows)

    def _is_old(self, known: _Known, records: int) -> bool:
        if records < known.records:
            return True  # It was deleted and created again.
        is_late = self._clock() - known.at_ms >= _UNDECIDED_KEPT_MS
        return bool(known.whole.undecided) and records != known.records and is_late

    def _made(self) -> RecordDecoder:
        return RecordDecoder(self._decode, self._read)

    def _has(self, topic: str) -> bool:
        try:
            return bool(self._rows(topic))
        except UnknownTopic:
            return False

    def _read(self, topic: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All records of a topic. The topic is looked up at once."""
        partitions = [row.partition for row in self._rows(topic) if row.end_offset]
        return self._batches(topic, partitions, columns)

    def _batches(self, topic: str, partitions: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for partition in partitions:
            begin, end, _ = self._reader.extent(WantedRecords(topic=topic, partitions=()), partition)
            while begin < end:
                stretch, found = self._reader.read(
                    topic,
                    partition,
                    begin,
                    end,
                    backwards=False,
                    max_bytes=_STRETCH_BYTES,
                    visit=lambda records, _show: records.select(list(columns)),
                )
                yield from found
                if stretch.reached <= begin:
                    break
                begin = stretch.reached


def _patient(registry: RegistrySettings) -> RegistrySettings:
    """A page waits for it."""
    return replace(registry, timeout_seconds=_REGISTRY_TIMEOUT_SECONDS, deadline_seconds=_REGISTRY_DEADLINE_SECONDS)


def _shown_url(registry: RegistrySettings) -> str:
    """Without a user and password."""
    scheme, separator, rest = registry.url.partition("://")
    return f"the registry {scheme}{separator}{rest.rpartition('@')[2]}"


def _summary(decoder: TopicDecoder) -> str:
    decoders = decoder.decoders
    parts = []
    for name in (KEY, VALUE):
        if name in decoders:
            parts.append(f"{name.capitalize()}s: {decoders[name].plan.format}.")
        elif any(f"{name}s of {decoder.topic}" in each for each in decoder.undecided):
            is_absent = any(_has_no(name, each) for each in decoder.undecided)
            parts.append(f"{name.capitalize()}s: {'none yet' if is_absent else 'as bytes'}.")
    return " ".join(parts)


def _has_no(part: str, sentence: str) -> bool:
    """Whether the format is unknown only because there are no records yet."""
    return f"has no {part}s to detect the format from" in sentence


def _is_cut(record: ShownRecord) -> bool:
    return len(record.key or b"") < record.key_bytes or len(record.value or b"") < record.value_bytes


def _record(record: ShownRecord) -> Record:
    return Record(key=record.key, value=record.value, headers=list(record.headers), offset=record.offset)


def _shown(data: bytes | None, payload: DecodedPayload | None, format_: str) -> ShownPayload | None:
    if payload is None or data is None:
        return None
    version = payload.version
    return ShownPayload(
        format=format_,
        text=None if payload.reason is not None else json_text(payload.value),
        reason=None if payload.reason is None else printable(payload.reason),
        schema=payload.schema,
        subject=None if version is None else version.subject,
        version=None if version is None else version.version,
    )


def _text(data: bytes | None, payload: DecodedPayload | None) -> bytes | None:
    if data is None or payload is None or payload.reason is not None:
        return None
    text = payload.value if isinstance(payload.value, str) else searched_json(payload.value)
    return text.encode("utf-8", "surrogatepass")
