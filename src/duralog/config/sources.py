"""Where a config's value came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Origin(Enum):
    """Which layer of configs a value came from."""

    DEFAULT = "default"
    BROKER = "broker"
    """server.properties, or what the store was opened with."""
    DYNAMIC_BROKER = "dynamic broker"
    """Set at run time for one broker or for all, kept in the cluster metadata."""
    TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class ConfigSource:
    origin: Origin
    name: str
    """The config that was given, which may be a synonym: `log.retention.hours` for `retention.ms`."""
