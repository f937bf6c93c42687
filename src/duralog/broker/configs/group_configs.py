"""The configs of groups: their names, the broker configs that they follow, and why a value is refused.

Those of consumer groups have an effect. Those of share and streams groups, which are not served here, can be set and
read back as in Kafka, and have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.config.definitions import BOOLEAN, INT, STRING, Kind
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS

_SESSION_TIMEOUT = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
_STANDBYS = "streams.num.standby.replicas"
_OFFSET_RESET = "share.auto.offset.reset"
_OFFSET_RESETS = re.compile(r"(?i:earliest|latest)|by_duration:\S+")
_ISOLATION = "share.isolation.level"
_ISOLATIONS = ("read_committed", "read_uncommitted")
NO_EFFECT = "Kafka's. It has no effect here."


@dataclass(frozen=True, slots=True)
class GroupConfig:
    kind: Kind[Any]
    default: str | None
    """None if a broker config has it."""
    doc: str = NO_EFFECT
    broker_config: str | None = None


def _like_broker(name: str, doc: str = NO_EFFECT) -> GroupConfig:
    return GroupConfig(INT, None, doc, f"group.{name}")


GROUP_CONFIGS: Mapping[str, GroupConfig] = {
    _SESSION_TIMEOUT: _like_broker(_SESSION_TIMEOUT, "A member that sends no heartbeat for this long is removed."),
    _HEARTBEAT_INTERVAL: _like_broker(_HEARTBEAT_INTERVAL, "The interval of heartbeats."),
    _ASSIGNMENT_INTERVAL: _like_broker(_ASSIGNMENT_INTERVAL, "The least time from one assignment to the next."),
    **{
        name: _like_broker(name)
        for name in (
            "share.assignment.interval.ms",
            "share.delivery.count.limit",
            "share.heartbeat.interval.ms",
            "share.partition.max.record.locks",
            "share.record.lock.duration.ms",
            "share.session.timeout.ms",
            "streams.assignment.interval.ms",
            "streams.heartbeat.interval.ms",
            "streams.initial.rebalance.delay.ms",
            _STANDBYS,
            "streams.session.timeout.ms",
        )
    },
    _OFFSET_RESET: GroupConfig(STRING, "latest"),
    _ISOLATION: GroupConfig(STRING, "read_uncommitted"),
    "share.renew.acknowledge.enable": GroupConfig(BOOLEAN, "true"),
}


def group_configs_fault(configs: Mapping[str, str], config: BrokerConfig) -> str | None:
    """Why a group cannot set all of these configs itself. `config` is the broker's."""
    for name in configs:
        if name not in GROUP_CONFIGS:
            return f"Unknown group config name: {name}"
    for name, text in configs.items():
        reason = _value_fault(name, text)
        if reason is not None:
            return f"Invalid value {text.strip()} for configuration {name}: {reason}"
    for name, text in configs.items():
        low, high = _bounds(name)
        if GROUP_CONFIGS[name].kind is INT and int(text) < _bound(config, low, int(text)):
            return f"{name} must be greater than or equal to {low}"
        if GROUP_CONFIGS[name].kind is INT and int(text) > _bound(config, high, int(text)):
            return f"{name} must be less than or equal to {high}"
    session, heartbeat = (
        int(configs[name]) if name in configs else config.get(f"group.{name}")
        for name in (_SESSION_TIMEOUT, _HEARTBEAT_INTERVAL)
    )
    if session <= heartbeat:
        return f"{_SESSION_TIMEOUT} must be greater than {_HEARTBEAT_INTERVAL}"
    return None


def _value_fault(name: str, text: str) -> str | None:
    kind = GROUP_CONFIGS[name].kind
    if kind.parse(text) is None:
        if kind is BOOLEAN:
            return "Expected value to be either true or false"
        return f"Not a number of type {kind.name.upper()}"
    if kind is INT and int(text) < 0:
        return "Value must be at least 0"
    if name == _ISOLATION and text.strip() not in _ISOLATIONS:
        return f"String must be one of: {', '.join(_ISOLATIONS)}"
    if name == _OFFSET_RESET and not _OFFSET_RESETS.fullmatch(text.strip()):
        return (
            f"Invalid value `{text.strip()}` for configuration {name}. The value must be either 'earliest', 'latest' or"
            " of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    return None


def _bounds(name: str) -> tuple[str, str]:
    """The broker configs that a group's own value stays between, if there are such."""
    if name == _STANDBYS:
        return "", "group.streams.max.standby.replicas"
    first, _, rest = name.partition(".")
    return f"group.{first}.min.{rest}", f"group.{first}.max.{rest}"


def _bound(config: BrokerConfig, name: str, otherwise: int) -> int:
    if name in BROKER_CONFIGS:
        return int(config.get(name))
    known = KAFKA_ONLY_CONFIGS.get(name)
    return otherwise if known is None or known.default is None else int(known.default)
