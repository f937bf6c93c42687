"""What a job remembers of a table: up to which offset each partition of the topic is in it.

It is a small JSON file in the table's folder, replaced whole after the data is committed. Delta and Iceberg have the
same in their own commits, which is what counts: a crash between such a commit and the file is noticed and repaired.
A file that cannot be read, or that is of another topic or another job, ends the run before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from duralog.errors import DuralogError
from duralog.spark.lake.targets import LakeTarget

_VERSION = 1
_MOST_BYTES = 16 << 20


class TableFormat(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"

    @classmethod
    def _missing_(cls, value: object) -> TableFormat:
        raise DuralogError(f"a table is written as {', '.join(cls)}, not as {value!r}")


class StateRefused(DuralogError):
    """The state of a table is damaged, or is not that of what is to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    job: str
    topic: str
    topic_id: str | None
    table_format: TableFormat
    isolation: str
    headers: bool
    next_offsets: Mapping[int, int]
    """For each partition, the first offset that is not in the table."""
    run: int
    """Counted from 1."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What only this job knows of, as JSON values."""

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "job": self.job,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "format": str(self.table_format),
                "isolation": self.isolation,
                "headers": self.headers,
                "run": self.run,
                "next_offsets": {str(number): offset for number, offset in sorted(self.next_offsets.items())},
                "details": dict(self.details),
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, data: str | bytes, where: str) -> TableState:
        """`where` is what errors call it."""
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise StateRefused(f"{where}: the state is damaged: {error}") from error
        version = fields.get("version") if isinstance(fields, dict) else None
        if version != _VERSION:
            raise StateRefused(f"{where}: the state is damaged: expected version {_VERSION}, found {version!r}")
        try:
            return cls(
                job=_typed(fields, "job", str),
                topic=_typed(fields, "topic", str),
                topic_id=_typed(fields, "topic_id", str, type(None)),
                table_format=TableFormat(_typed(fields, "format", str)),
                isolation=_typed(fields, "isolation", str),
                headers=_typed(fields, "headers", bool),
                run=_count(fields["run"]),
                next_offsets={
                    _count(int(number)): _count(offset)
                    for number, offset in _typed(fields, "next_offsets", dict).items()
                },
                details=_typed(fields, "details", dict),
            )
        except KeyError as error:
            raise StateRefused(f"{where}: the state is damaged: it has no {error.args[0]}") from error
        except (ValueError, DuralogError) as error:
            raise StateRefused(f"{where}: the state is damaged: {error}") from error

    def check(self, expected: TableState, where: str) -> None:
        """Refuse a run that would write `expected` if it cannot continue from this state."""
        for name, found, wanted in (
            ("job", self.job, expected.job),
            ("topic", self.topic, expected.topic),
            ("format", str(self.table_format), str(expected.table_format)),
        ):
            if found != wanted:
                raise StateRefused(f"{where}: the table there is of another {name}: expected {wanted}, found {found}")
        if self.headers != expected.headers:
            has, wants = ("has no", "with") if expected.headers else ("has a", "without")
            raise StateRefused(f"{where}: the table {has} column headers: run {wants} headers into another target")
        if self.topic_id is not None and expected.topic_id is not None and self.topic_id != expected.topic_id:
            raise StateRefused(
                f"{where}: topic {self.topic} was deleted and made again since: expected id {self.topic_id}, found"
                f" {expected.topic_id}. Its offsets start at 0 again, so give another target"
            )


def read_state(target: LakeTarget, name: str) -> TableState | None:
    """The state in a table's folder, None if there is none."""
    data = target.read(name, most_bytes=_MOST_BYTES)
    return None if data is None else TableState.from_json(data, f"{target.location}/{name}")


def write_state(target: LakeTarget, name: str, state: TableState) -> None:
    target.replace(name, state.to_json().encode())


def _typed(fields: Mapping[str, Any], name: str, *types: type) -> Any:
    value = fields[name]
    if not isinstance(value, types):
        raise ValueError(f"{name} is {value!r}")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not an offset or number")
    return value
