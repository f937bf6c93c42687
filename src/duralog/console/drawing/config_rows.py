"""All configs of a topic or a broker as rows of a table: value, default, where the value comes from, what it means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from duralog.config.definitions import ConfigDef
from duralog.config.entries import (
    ALL_BROKERS_SOURCE,
    DEFAULT_SOURCE,
    PASSWORD,
    STATIC_SOURCE,
    THIS_BROKER_SOURCE,
    TOPIC_SOURCE,
    Entry,
)
from duralog.console.drawing.words import UNKNOWN, value_in_words

SOURCES = {
    TOPIC_SOURCE: "topic",
    THIS_BROKER_SOURCE: "this broker, dynamic",
    ALL_BROKERS_SOURCE: "all brokers, dynamic",
    STATIC_SOURCE: "given at the start",
    DEFAULT_SOURCE: "default",
}
_HIDDEN = "(hidden)"
_EMPTY = "(empty)"


@dataclass(frozen=True, slots=True)
class ConfigRow:
    name: str
    value: str
    """The value as shown."""
    in_words: str
    """`7 days`; empty where the value says it already."""
    default: str
    source: str
    about: str
    """Its purpose, in a sentence."""
    is_default: bool
    is_set_here: bool
    """Whether it is stored, for the topic or for brokers, so that it can be reset."""
    can_change: bool
    """False if it is only read when a broker starts."""
    typed: str
    """The value as input; empty for a secret."""

    @property
    def origin(self) -> str:
        """Where the value comes from, and the default, in a line below the value."""
        return "default" if self.is_default else f"from: {self.source}; default: {self.default}"

    @property
    def explanation(self) -> str:
        """The purpose, where the value comes from, and the default."""
        set_by = "Not set." if self.is_default else f"Set: {self.source}."
        default = "It has no default." if self.default == UNKNOWN else f"Its default: {self.default}"
        return f"{self.about} {set_by} {default}".strip()


def config_rows(
    entries: Iterable[Entry], definitions: Mapping[str, ConfigDef], *, stored: frozenset[int]
) -> list[ConfigRow]:
    """By name. `stored` are the sources whose values can be reset there."""
    return [_row(entry, definitions.get(entry.name), stored) for entry in sorted(entries, key=lambda entry: entry.name)]


def _row(entry: Entry, definition: ConfigDef | None, stored: frozenset[int]) -> ConfigRow:
    is_secret = entry.kind == PASSWORD
    value = "" if entry.text is None or is_secret else entry.text
    return ConfigRow(
        name=entry.name,
        value=_HIDDEN if is_secret and entry.values else _shown(entry.text),
        in_words=value_in_words(entry.name, value),
        default=_default(entry, definition),
        source=SOURCES.get(entry.in_force_from, "unknown"),
        about=(entry.doc or ("" if definition is None else definition.doc)).replace("`", ""),
        is_default=entry.in_force_from == DEFAULT_SOURCE,
        is_set_here=any(each.source in stored and each.name == entry.name for each in entry.values),
        can_change=not entry.read_only,
        typed=value,
    )


def _default(entry: Entry, definition: ConfigDef | None) -> str:
    """The value of the config if it was not set anywhere."""
    for value in entry.values:
        if value.source == DEFAULT_SOURCE and value.name == entry.name:
            return _shown(value.text)
    if definition is None:
        return _shown(entry.text) if entry.in_force_from == DEFAULT_SOURCE else UNKNOWN
    return UNKNOWN if definition.default is None else _shown(definition.text(definition.default))


def _shown(text: str | None) -> str:
    return UNKNOWN if text is None else text or _EMPTY
