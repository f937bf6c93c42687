"""The configs of a topic that are not what Kafka takes by itself, with what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from duralog.config.topic import topic_definition
from duralog.console.drawing.words import UNKNOWN, value_in_words
from duralog.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class ConfigRow:
    name: str
    value: str
    in_words: str
    """`7 days`; empty where the value says it already."""
    default: str
    about: str


def changed_configs(configs: Mapping[str, str]) -> list[ConfigRow]:
    """By name. One that was set to the very default is none of them."""
    rows = [_row(name, value) for name, value in sorted(configs.items())]
    return [row for row in rows if row.value != row.default]


def _row(name: str, value: str) -> ConfigRow:
    try:
        definition = topic_definition(name)
    except InvalidConfig:
        default, about = UNKNOWN, ""
    else:
        default = UNKNOWN if definition.default is None else definition.text(definition.default) or "(empty)"
        about = definition.doc
    return ConfigRow(name, value, value_in_words(name, value), default, about)
