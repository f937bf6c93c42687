"""Shows control records and the records of Kafka's internal topics by their fields.

Keys of users and configs that are secrets are not shown: dumps end up in tickets. `--raw` shows the bytes of records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from duralog.cli.dump.batches import Header
from duralog.cli.voice.output import Output
from duralog.columnar.decoded import DecodedRecords
from duralog.config.definitions import HIDDEN
from duralog.config.listener_config import is_secret
from duralog.config.times import format_time
from duralog.errors import CorruptRecord
from duralog.format import control_records
from duralog.format.control_records import ControlType, EndTransactionMarker, UnknownControl
from duralog.format.internal.internal_topics import CLUSTER_METADATA, COORDINATOR_TOPICS, describe_record
from duralog.format.layout import CONTROL_BIT, NO_TIMESTAMP
from duralog.storage.checks.findings import OnFinding
from duralog.storage.disk.found_files import Content, FoundFile

Fields = Mapping[str, Any]
_CREDENTIAL, _CONFIG = "USER_SCRAM_CREDENTIAL_RECORD", "CONFIG_RECORD"
_OF_CREDENTIALS = ("salt", "stored_key", "server_key")


class TypedRecords:
    """Shows the records of one file by their fields; a record that cannot be decoded as a finding and its bytes."""

    def __init__(self, file: FoundFile, output: Output, prefix: bytes, report: OnFinding) -> None:
        self._file = file
        self._output = output
        self._prefix = prefix.decode()
        self._report = report
        self._topic = _internal_topic(file)

    @property
    def are_all(self) -> bool:
        """Whether all records of the file have fields, not only the control records."""
        return self._topic is not None

    def show(self, decoded: DecodedRecords) -> None:
        columns = decoded.columns
        for index, (offset, timestamp) in enumerate(
            zip(columns.offset.tolist(), columns.timestamp.tolist(), strict=True)
        ):
            batch = Header._make(decoded.batches[decoded.batch_row[index]].tolist())
            key = _bytes(decoded, columns.key_position[index], columns.key_length[index])
            value = _bytes(decoded, columns.value_position[index], columns.value_length[index])
            try:
                fields = self._decode(batch, key, value)
            except CorruptRecord as error:
                self._report_fields(error, offset, batch)
                fields = {
                    "key_hex": None if key is None else key.hex(),
                    "value_hex": None if value is None else value.hex(),
                }
            self._write(offset, timestamp, batch, fields)

    def _decode(self, batch: Header, key: bytes | None, value: bytes | None) -> Fields:
        if batch.has(CONTROL_BIT):
            return _control_fields(batch, key, value)
        assert self._topic is not None
        fields = describe_record(self._topic, key, value)
        assert fields is not None
        return _without_secrets(fields) if self._topic == CLUSTER_METADATA else fields

    def _report_fields(self, error: CorruptRecord, offset: int, batch: Header) -> None:
        """Report the position of the batch and the offset of the record, not the position inside a key or value."""
        self._report(
            CorruptRecord(
                f"the record at offset {offset}: {error.reason}",
                fault=error.fault,
                file=self._file.path,
                position=batch.position,
                expected=error.expected,
                found=error.found,
            )
        )

    def _write(self, offset: int, timestamp: int, batch: Header, fields: Fields) -> None:
        if self._output.as_json:
            head = {
                "offset": offset,
                "timestamp": None if timestamp == NO_TIMESTAMP else timestamp,
                "timestamp_type": batch.timestamp_type.label,
            }
            self._output.line(f"{{{self._prefix}{_as_json(head | dict(fields))[1:]}")
        else:
            body = "  ".join(f"{name} {_as_text(name, value)}" for name, value in fields.items())
            self._output.line(f"| offset {offset}  {format_time(timestamp)}  {body}")


def _internal_topic(file: FoundFile) -> str | None:
    """The internal topic of Kafka that the file belongs to."""
    if file.content is Content.METADATA_SNAPSHOT:
        return CLUSTER_METADATA
    topic = None if file.partition is None else file.partition.topic
    return topic if topic == CLUSTER_METADATA or topic in COORDINATOR_TOPICS else None


def _without_secrets(fields: Fields) -> Fields:
    kind, value = fields["type"], fields["value"]
    if kind not in (_CREDENTIAL, _CONFIG):
        return fields
    if not isinstance(value, dict):  # The bytes of a version of a later Kafka.
        return {**fields, "value": HIDDEN}
    if kind == _CREDENTIAL:
        return {**fields, "value": value | dict.fromkeys(_OF_CREDENTIALS, HIDDEN)}
    return {**fields, "value": value | {"value": HIDDEN}} if is_secret(value["name"]) else fields


def _control_fields(batch: Header, key: bytes | None, value: bytes | None) -> Fields:
    control = control_records.decode(key, value)
    if isinstance(control, UnknownControl):
        unknown = control.value
        return {"control": control.type_id, "value_hex": None if unknown is None else unknown.hex()}
    fields = asdict(control)
    if isinstance(control, EndTransactionMarker):
        del fields["type"]
        fields |= {"producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch}
    return {"control": ControlType(control_records.decode_type_id(key)).name, **fields}


def _bytes(decoded: DecodedRecords, position: int, length: int) -> bytes | None:
    return None if length < 0 else decoded.data[position : position + length].tobytes()


def _as_text(name: str, value: Any) -> str:
    """JSON, except for the names of record types."""
    return str(value) if name in ("control", "type") else _as_json(value)


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), separators=(",", ":"))


def _without_nan(value: Any) -> Any:
    """JSON has no infinities: they become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
