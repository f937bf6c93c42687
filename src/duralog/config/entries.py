"""Configs as DescribeConfigs shows them: a value, its source by Kafka's numbers, and the values that it overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

TOPIC_SOURCE = 1
THIS_BROKER_SOURCE = 2
ALL_BROKERS_SOURCE = 3
STATIC_SOURCE = 4
DEFAULT_SOURCE = 5
LOGGER_SOURCE = 6
GROUP_SOURCE = 8

TYPES = {
    "unknown": 0,
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}

PASSWORD = "password"
"""The kind of configs whose values are not shown."""


class Value(NamedTuple):
    """A value that a config has or would have."""

    name: str
    text: str | None
    source: int


class Entry(NamedTuple):
    """A config with all its values."""

    name: str
    text: str | None
    values: tuple[Value, ...]
    """The synonyms: what was set, the first one being in force."""
    kind: str
    doc: str
    read_only: bool = False
    source: int | None = None
    """If it differs from the source of the first value."""

    @property
    def in_force_from(self) -> int:
        """Where the value comes from."""
        return self.source or (self.values[0].source if self.values else DEFAULT_SOURCE)

    def fields(self, *, with_synonyms: bool, with_doc: bool) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "value": self.text,
            "read_only": self.read_only,
            "config_source": self.in_force_from,
            "is_sensitive": self.kind == PASSWORD,
            "synonyms": [{"name": value.name, "value": value.text, "source": value.source} for value in self.values]
            if with_synonyms
            else [],
            "config_type": TYPES[self.kind],
            "documentation": self.doc if with_doc else None,
        }
