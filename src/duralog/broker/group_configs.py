"""The configs of groups: which there are, the broker configs that they go by, and why one is refused.

Those of consumer groups are followed. Those of share and streams groups, which are not served here, can be set and read
back as in Kafka, and have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duralog.config import BrokerConfig
from duralog.config.definitions import BOOLEAN, INT, STRING, Kind

_SESSION_TIMEOUT = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
_ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
_BOUNDED = (_HEARTBEAT_INTERVAL, _SESSION_TIMEOUT, _ASSIGNMENT_INTERVAL)
_NO_EFFECT = "Kafka's. It has no effect here."


@dataclass(frozen=True, slots=True)
class GroupConfig:
    kind: Kind[Any]
    default: str | None
    """None where a broker config tells."""
    doc: str = _NO_EFFECT
    broker_config: str | None = None


def _like_broker(name: str, doc: str = _NO_EFFECT) -> GroupConfig:
    return GroupConfig(INT, None, doc, f"group.{name}")


GROUP_CONFIGS: Mapping[str, GroupConfig] = {
    _SESSION_TIMEOUT: _like_broker(_SESSION_TIMEOUT, "A member of the group that is silent this long is out."),
    _HEARTBEAT_INTERVAL: _like_broker(_HEARTBEAT_INTERVAL, "How often a member of the group says that it is there."),
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
            "streams.num.standby.replicas",
            "streams.session.timeout.ms",
        )
    },
    "share.auto.offset.reset": GroupConfig(STRING, "latest"),
    "share.isolation.level": GroupConfig(STRING, "read_uncommitted"),
    "share.renew.acknowledge.enable": GroupConfig(BOOLEAN, "true"),
}


def group_configs_fault(configs: Mapping[str, str], config: BrokerConfig) -> str | None:
    """Why a group cannot set all of these configs itself. `config` is the broker's."""
    for name in configs:
        if name not in GROUP_CONFIGS:
            return f"Unknown group config name: {name}"
    for name, text in configs.items():
        kind = GROUP_CONFIGS[name].kind
        if kind.parse(text) is None:
            reason = (
                "Expected value to be either true or false"
                if kind is BOOLEAN
                else f"Not a number of type {kind.name.upper()}"
            )
            return f"Invalid value {text.strip()} for configuration {name}: {reason}"
    for name in _BOUNDED:
        if name not in configs:
            continue
        value, (first, _, rest) = int(configs[name]), name.partition(".")
        low, high = f"group.{first}.min.{rest}", f"group.{first}.max.{rest}"
        if value < config.get(low):
            return f"{name} must be greater than or equal to {low}"
        if value > config.get(high):
            return f"{name} must be less than or equal to {high}"
    session, heartbeat = (
        int(configs[name]) if name in configs else config.get(f"group.{name}")
        for name in (_SESSION_TIMEOUT, _HEARTBEAT_INTERVAL)
    )
    if session <= heartbeat:
        return f"{_SESSION_TIMEOUT} must be greater than {_HEARTBEAT_INTERVAL}"
    return None
