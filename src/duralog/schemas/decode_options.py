"""The options of typed payloads, as a scan and Spark take them, and the records that have to be read to plan with them.

| option | |
|---|---|
| `value.format`, `key.format` | `auto`, `avro`, `protobuf`, `json`, `debezium`, `connect`, `string`, ... or `binary` |
| `value.schema`, `key.schema` | `latest`, `id:7`, a subject or `subject:version`, a file, or text; with `any:` before \
it for payloads whose ids are unknown, too |
| `value.framing`, `key.framing` | where schema ids are: a `wire_formats.Framing`; found out by default |
| `value.message`, `key.message` | Protobuf's message type |
| `schema.registry.url` | a registry; without it, the topic `_schemas` of the same directories |
| `schema.registry.topic` | the name of that topic |
| `schema.files` | schemas of ids and GUIDs: `7=order.avsc,8=order-2.avsc`. They add to those of the topic or registry |
| `schema.registry.username`, `.password`, `.token`, `.ca.file`, `.certificate.file`, `.key.file` | for the registry |
| `mode` | `PERMISSIVE` or `FAILFAST` |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa

from duralog.columnar.schema import HEADERS, KEY, VALUE
from duralog.errors import SchemaError, UnknownTopic
from duralog.schemas.catalogue import SchemaCatalogue
from duralog.schemas.payload_decoder import LaterSchemas
from duralog.schemas.payload_planning import AUTO, BINARY, NoPayloads, PayloadRequest, Sample, plan_typed_columns
from duralog.schemas.registered_schema import RegisteredSchema
from duralog.schemas.registry import RegistrySettings, fetch_catalogue
from duralog.schemas.schema_files import read_schema_file
from duralog.schemas.schemas_topic import SCHEMAS_TOPIC, read_schemas_topic
from duralog.schemas.typed_columns import Mode, Part, TypedColumns

_SAMPLED_ROWS = 1_000
_OF_PART = ("format", "schema", "framing", "message")
_REGISTRY = "schema.registry."
_FILES = "schema.files"
_OF_REGISTRY = ("username", "password", "token", "ca.file", "certificate.file", "key.file")

NAMES = (
    *(f"{part}.{name}" for part in (KEY, VALUE) for name in _OF_PART),
    *(f"{_REGISTRY}{name}" for name in ("url", "topic", *_OF_REGISTRY)),
    _FILES,
    "mode",
)
"""All options."""


class Records(Protocol):
    """A stream of records, of which the beginning may be enough."""

    def __iter__(self) -> Any: ...


ReadRecords = Callable[[str, Sequence[str]], Records]
"""Called with a topic and columns."""


@dataclass(frozen=True, kw_only=True)
class Decode:
    """What a user says of keys, values and schemas."""

    key: PayloadRequest = field(default_factory=PayloadRequest)
    value: PayloadRequest = field(default_factory=PayloadRequest)
    registry: RegistrySettings | None = None
    schemas_topic: str = SCHEMAS_TOPIC
    files: tuple[tuple[str, str], ...] = ()
    """Ids or GUIDs, and the files with their schemas."""
    mode: Mode = Mode.PERMISSIVE

    @classmethod
    def of(cls, given: str | Mapping[str, Any] | None) -> Decode | None:
        """From a format of the values, or from options. None if nothing is to be decoded."""
        if given is None:
            return None
        options = {f"{VALUE}.format": given} if isinstance(given, str) else {k: str(v) for k, v in given.items()}
        unknown = sorted(set(options) - set(NAMES))
        if unknown:
            raise SchemaError(f"no such option of decode: {', '.join(unknown)}; there are {', '.join(NAMES)}")
        asked = {part: _request(options, part) for part in (KEY, VALUE)}
        if not any(request.is_typed for request in asked.values()):
            idle = [name for name in options if name != "mode" and not name.endswith(".format")]
            if idle and not any(name.endswith(".format") for name in options):
                raise SchemaError(f"{idle[0]}: nothing is decoded without {VALUE}.format or {KEY}.format: give one")
            return None
        return cls(
            key=asked[KEY],
            value=asked[VALUE],
            registry=_registry(options),
            schemas_topic=options.get(f"{_REGISTRY}topic", SCHEMAS_TOPIC),
            files=_files(options.get(_FILES, "")),
            mode=Mode.of(options.get("mode", Mode.PERMISSIVE)),
        )


def _request(options: Mapping[str, str], part: str) -> PayloadRequest:
    given = {name: options.get(f"{part}.{name}") for name in _OF_PART}
    format_ = given["format"]
    if format_ is None:
        # A schema alone says enough: the format is that of the schema, found in a sample.
        format_ = AUTO if given["schema"] is not None else BINARY
    return PayloadRequest(
        format=format_.lower(), schema=given["schema"], framing=given["framing"], message=given["message"]
    )


def _files(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for one in text.split(",") if text.strip() else ():
        name, equals, path = one.strip().partition("=")
        try:
            is_name = int(name) < 1 << 31 if name.isdecimal() else bool(UUID(name).bytes)
        except ValueError:
            is_name = False
        if not (is_name and equals and path):
            raise SchemaError(f"{_FILES}: expected ID=FILE or GUID=FILE, separated by commas; found {one.strip()!r}")
        found.append((name, path))
    return tuple(found)


def _registry(options: Mapping[str, str]) -> RegistrySettings | None:
    url = options.get(f"{_REGISTRY}url")
    given: dict[str, Any] = {}
    for name in _OF_REGISTRY:
        if f"{_REGISTRY}{name}" in options:
            given[name.replace(".", "_")] = options[f"{_REGISTRY}{name}"]
    if url is None:
        if given:
            raise SchemaError(f"{_REGISTRY}{next(iter(given)).replace('_', '.')} needs {_REGISTRY}url")
        return None
    return RegistrySettings(url=url, **given)


def plan_decoding(
    decode: Decode,
    topics: Sequence[str],
    records: ReadRecords,
    columns: Sequence[str] | None,
    catalogue: Callable[[], SchemaCatalogue] | None = None,
    later: LaterSchemas | None = None,
) -> TypedColumns:
    """Decide how the payloads of topics are decoded, by the options, a sample and the catalogue of schemas.

    The catalogue is read where the options say, unless one is given. `later` reads it again, in any process, when there
    are ids that it did not have.
    """
    requests: dict[Part, PayloadRequest] = {}
    parts: tuple[tuple[Part, PayloadRequest], ...] = (("key", decode.key), ("value", decode.value))
    for part, asked in parts:
        fields = _fields_of(part, columns)
        if fields and not asked.is_typed:
            raise SchemaError(f"columns: {part}.{fields[0]} is a field of a decoded {part}: give {part}.format")
        requests[part] = PayloadRequest(
            format=asked.format, schema=asked.schema, framing=asked.framing, message=asked.message, columns=fields
        )
    return plan_typed_columns(
        topics,
        lambda topic: _sample(records, topic),
        catalogue or (lambda: read_catalogue(decode, records)),
        key=requests["key"],
        value=requests["value"],
        mode=decode.mode,
        later=later,
    )


def split_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns of records that names with dots belong to."""
    return None if columns is None else tuple(dict.fromkeys(_column_of(name) for name in columns))


def _column_of(name: str) -> str:
    first, dot, _ = name.partition(".")
    return first if dot and first in (KEY, VALUE) else name


def _fields_of(part: str, columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The fields that are wanted of a decoded column. None for all."""
    if columns is None or part in columns:
        return None
    fields = tuple(name.partition(".")[2] for name in columns if name.startswith(f"{part}."))
    return fields or None


def _sample(records: ReadRecords, topic: str) -> Sample:
    """The first records of a topic."""
    found: list[pa.RecordBatch] = []
    count = 0
    for batch in records(topic, [KEY, VALUE, HEADERS]):
        found.append(batch)
        count += batch.num_rows
        if count >= _SAMPLED_ROWS:
            break
    if not found:
        raise NoPayloads(f"topic {topic} has no records")
    table = pa.Table.from_batches(found).slice(0, _SAMPLED_ROWS).combine_chunks()
    return Sample(*(table.column(name).combine_chunks() for name in (KEY, VALUE, HEADERS)))


def read_catalogue(decode: Decode, records: ReadRecords) -> SchemaCatalogue:
    """The schemas of the registry, or of the topic `_schemas` if there is one, and those of the files."""
    found = _read_catalogue(decode, records)
    return found.merged(SchemaCatalogue((), map(_of_file, decode.files))) if decode.files else found


def _of_file(given: tuple[str, str]) -> RegisteredSchema:
    name, path = given
    if name.isdecimal():
        return replace(read_schema_file(path), id=int(name))
    return replace(read_schema_file(path), guid=UUID(name))


def _read_catalogue(decode: Decode, records: ReadRecords) -> SchemaCatalogue:
    if decode.registry is not None:
        return fetch_catalogue(decode.registry)
    try:
        # A stream may find out only when it begins.
        return read_schemas_topic(
            (key, value)
            for batch in records(decode.schemas_topic, [KEY, VALUE])
            for key, value in zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), strict=True)
        )
    except UnknownTopic:
        return SchemaCatalogue()
