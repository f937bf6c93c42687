"""Why configs are refused, in Kafka's texts, which clients and tools show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duralog.config import TOPIC_CONFIGS, ConfigDef, TopicConfig
from duralog.config.definitions import BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, Kind
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS
from duralog.config.topic import GZIP_LEVEL
from duralog.errors import InvalidConfig

_TIERED = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
_KINDS: Mapping[str, Kind[Any]] = {kind.name: kind for kind in (BOOLEAN, SHORT, INT, LONG, DOUBLE)}
_LEAST = {"max.connection.creation.rate": 0, "num.replica.fetchers": 1}
_MIN_LAG, _MAX_LAG = "min.compaction.lag.ms", "max.compaction.lag.ms"


def value_fault(definition: ConfigDef, text: str) -> str | None:
    """Why a config cannot have this value."""
    try:
        definition.parse(text)
    except InvalidConfig:
        return _list_fault(definition, text) if definition.kind.name == LIST.name else _plain_fault(definition, text)
    return None


def _plain_fault(definition: ConfigDef, text: str) -> str:
    parsed = definition.kind.parse(text)
    if parsed is None:
        return kind_fault(definition.name, definition.kind, text)
    return f"Invalid value {text.strip()} for configuration {definition.name}: {_not_allowed(definition, parsed)}"


def kind_fault(name: str, kind: Kind[Any], text: str) -> str:
    """That a value is not of the config's type."""
    expected = "Expected value to be either true or false"
    reason = expected if kind is BOOLEAN else f"Not a number of type {kind.name.upper()}"
    return f"Invalid value {text.strip()} for configuration {name}: {reason}"


def kafka_only_fault(name: str, text: str) -> str | None:
    """Why Kafka would refuse this value of a config that has no effect here."""
    kind = _KINDS.get(KAFKA_ONLY_CONFIGS[name].kind)
    if kind is None:
        return None
    value = kind.parse(text)
    if value is None:
        return kind_fault(name, kind, text)
    if name in _LEAST and value < _LEAST[name]:
        return f"Invalid value {text.strip()} for configuration {name}: Value must be at least {_LEAST[name]}"
    return None


def _not_allowed(definition: ConfigDef, value: float | str) -> str:
    allowed = definition.allowed
    if allowed is GZIP_LEVEL:
        return "Value must be between 1 and 9 or equal to -1"
    words = allowed.text.split(" ")
    if allowed.text.startswith("at least "):
        return f"Value must be at least {words[2]}"
    if allowed.text.startswith("from ") and not isinstance(value, str):
        low, high = words[1], words[3]
        return f"Value must be at least {low}" if value < float(low) else f"Value must be no more than {high}"
    return f"String must be one of: {allowed.text.removeprefix('one of ')}"


def _list_fault(definition: ConfigDef, text: str) -> str:
    elements = LIST.parse(text)
    if elements is None:
        return f"Configuration '{definition.name}' values must not be empty."
    if definition.name.endswith(".throttled.replicas"):
        return (
            f"Invalid value [{', '.join(elements)}] for configuration {definition.name}: {definition.name} must be the"
            " literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )
    choices = definition.allowed.text.removeprefix("any of ").removesuffix(", or none")
    wrong = next((element for element in elements if element not in choices.split(", ")), text)
    return f"Invalid value {wrong} for configuration {definition.name}: String must be one of: {choices}"


def topic_configs_fault(configs: Mapping[str, str], defaults: TopicConfig) -> str | None:
    """Why a topic cannot set all of these configs itself. `defaults` are what it has of the others."""
    for name in configs:
        if name not in TOPIC_CONFIGS:
            return f"Unknown topic config name: {name}"
    for name, definition in TOPIC_CONFIGS.items():
        fault = value_fault(definition, configs[name]) if name in configs else None
        if fault is not None:
            return fault
    effective = defaults.with_stored(configs)
    if effective.remote_storage_enable:
        return _TIERED
    if effective.min_compaction_lag_ms > effective.max_compaction_lag_ms:
        return (
            f"conflict topic config setting {_MIN_LAG} ({effective.min_compaction_lag_ms}) >"
            f" {_MAX_LAG} ({effective.max_compaction_lag_ms})"
        )
    return None
