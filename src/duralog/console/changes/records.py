"""Producing one record, entered or copied from a shown one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from duralog.broker.security.web_users import Role
from duralog.config.byte_sizes import size_text
from duralog.config.times import format_time
from duralog.console.changes.change import Preview
from duralog.format.layout import NO_TIMESTAMP
from duralog.format.record import Record
from duralog.operations.records.json_records import to_json
from duralog.operations.target import Target

_LONGEST_COMMAND = 4_000
"""Characters of the values of options; a longer record is the command's standard input."""
_OF_THE_LOG = ("topic", "partition", "offset", "timestamp_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRecord:
    topic: str
    partition: int | None
    """None for the partition of the key."""
    record: Record
    role: Role = Role.CHANGE

    def arguments(self, where: Sequence[str]) -> list[str]:
        place = [] if self.partition is None else ["--partition", str(self.partition)]
        common = ["produce", *where, "--topic", self.topic, *place]
        options = self._options()
        return [*common, "--from-json"] if options is None else [*common, *options]

    def input(self) -> str | None:
        if self._options() is not None:
            return None
        fields = to_json(self.topic, self.partition or 0, self.record)
        return json.dumps({name: fields[name] for name in fields if name not in _OF_THE_LOG}, ensure_ascii=False)

    def preview(self, target: Target) -> Preview:
        target.check_record(self.topic, self.partition, self.record)
        size = sum(len(part or b"") for part in (self.record.key, self.record.value))
        where = "by its key" if self.record.key is not None else "chosen by the producer"
        partition = f"partition {self.partition}" if self.partition is not None else f"the partition {where}"
        return Preview(sentence=f"One record of {size_text(size)} is appended to {self.topic}, {partition}.")

    def carry_out(self, target: Target) -> str:
        partition, offset = target.produce(self.topic, self.partition, self.record)
        return f"Produced to {self.topic}-{partition} at offset {offset:,}."

    def _options(self) -> list[str] | None:
        """The record as options of `duralog produce`; None if only JSON can express it, or it is long."""
        record = self.record
        names = [name for name, _ in record.headers]
        if len(set(names)) < len(names) or any(
            value is None or not name.strip() or name != name.strip() or "=" in name for name, value in record.headers
        ):
            return None
        if record.value is None and record.key is None:
            return None
        options = [] if record.key is None else ["--key", _word(record.key)]
        options += ["--tombstone"] if record.value is None else ["--value", _word(record.value)]
        for name, value in record.headers:
            options += ["--header", f"{name}={_word(value or b'')}"]
        if record.timestamp_ms != NO_TIMESTAMP:
            options += ["--time", format_time(record.timestamp_ms)]
        return options if sum(map(len, options)) <= _LONGEST_COMMAND else None


def _word(data: bytes) -> str:
    """As `duralog produce` reads it: text, or hex for what is not text or would be read as hex."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    is_shown = all(char.isprintable() or char in "\n\t" for char in text) and text[:2].lower() != "0x"
    return text if is_shown else f"0x{data.hex()}"
