"""Which retention `duralog retain` applied to a topic, and where it came from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duralog.cli.voice.tables import plural, size_text
from duralog.config.error_text import printable
from duralog.config.times import duration_text

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.config import TopicConfig

_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class AppliedRetention:
    topic: str
    config: TopicConfig
    overrides: Collection[str]
    """Configs that an option set for this run."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "retention",
            "topic": self.topic,
            "retention_ms": self.config.retention_ms,
            "retention_ms_from": self._source("retention.ms"),
            "retention_bytes": self.config.retention_bytes,
            "retention_bytes_from": self._source("retention.bytes"),
        }

    def __str__(self) -> str:
        time_ms, size_bytes = self.config.retention_ms, self.config.retention_bytes
        time = "no limit" if time_ms < 0 else duration_text(time_ms)
        size = "no limit" if size_bytes < 0 else size_text(size_bytes)
        return (
            f"retention.ms={time_ms} ({time}, {self._source('retention.ms')}),"
            f" retention.bytes={size_bytes} ({size}, {self._source('retention.bytes')})"
        )

    def _source(self, name: str) -> str:
        from duralog.config import Origin

        if name in self.overrides:
            return f"--{name.replace('.', '-')}"
        source = self.config.source(name)
        return {
            Origin.DEFAULT: "Kafka's default",
            Origin.BROKER: f"{source.name} of the broker",
            Origin.DYNAMIC_BROKER: f"{source.name} of the broker, set dynamically",
            Origin.TOPIC: "set for the topic",
        }[source.origin]


def applied_retentions(configs: Mapping[str, TopicConfig], overrides: Collection[str]) -> list[AppliedRetention]:
    """Of the topics that lose segments by time or size, by name."""
    return [
        AppliedRetention(topic, config, overrides)
        for topic, config in sorted(configs.items())
        if "delete" in config.cleanup_policy
    ]


def write_applied(output: Output, applied: Iterable[AppliedRetention], touched: Collection[str]) -> None:
    """In text the first ones, those of the `touched` topics before the others; in JSON all."""
    if output.as_json:
        for each in applied:
            output.object(each.to_dict())
        return
    in_order = sorted(applied, key=lambda each: each.topic not in touched)
    for each in in_order[:_MOST_SHOWN]:
        output.note(printable(each.topic), str(each))
    if len(in_order) > _MOST_SHOWN:
        output.note("retention", f"of {plural(len(in_order) - _MOST_SHOWN, 'more topic')}: --json has all")
