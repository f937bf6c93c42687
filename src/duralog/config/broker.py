"""The configs of a broker or a store: Kafka's names, from a mapping or from a `server.properties` as it is.

A name that only Kafka uses is accepted and has no effect. An unknown name is refused if a program gives it, since it is
a mistake. In a `server.properties` it has no effect, as in Kafka, and is listed in `ignored`: plugins and wrappers of
Kafka keep their own settings there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from duralog.config.definitions import ConfigDef, Password, definitions_of, nearest
from duralog.config.kafka_only_configs import is_known_to_kafka
from duralog.config.server_settings import ServerSettings
from duralog.config.sources import ConfigSource, Origin
from duralog.config.topic import TOPIC_CONFIGS, TopicConfig
from duralog.config.ways_in import lock_outs
from duralog.errors import InvalidConfig
from duralog.format.java_properties import decode_properties
from duralog.format.varint import Bytes

_SMALLEST_CLEANER_MAP_BYTES = 1 << 20
LISTENER_PREFIX = "listener.name."


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(ServerSettings):
    """All configs, each an attribute: `log.segment.bytes` is `log_segment_bytes`."""

    given: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    """The configs that are not at their defaults, and their layers."""
    ignored: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Configs without effect, because they are unknown or not allowed, and why."""
    fixed: frozenset[str] = field(default_factory=frozenset, compare=False, repr=False)
    """The overrides of the command line, which take precedence over the cluster metadata."""
    reached_from: frozenset[str] = field(default_factory=frozenset, compare=False, repr=False)
    """The addresses that clients can come from, of a broker that only this machine reaches. Empty for anywhere."""

    of_listeners: Mapping[str, Password] = field(default_factory=dict, compare=False, repr=False)
    """The configs with the prefix of a listener. None is shown: some are secrets (`duralog.config.listener_config`)."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> BrokerConfig:
        """Configs by Kafka's names. Refuses unknown names, bad values and contradictions."""
        known = {name: value for name, value in values.items() if not _is_kafkas_alone(name)}
        parsed = {name: broker_definition(name).parse(value) for name, value in known.items()}
        config = replace(cls()._with(parsed, Origin.BROKER), of_listeners=_of_listeners(values))
        return config._checked()

    @classmethod
    def from_properties(cls, data: Bytes, overrides: Mapping[str, object] | None = None) -> BrokerConfig:
        """The configs of a `server.properties`. Refuses bad values and contradictions; unknown names are `ignored`.

        `overrides` win over the file and over what the cluster metadata holds. Unknown names among them are refused.
        """
        values: dict[str, object] = {}
        ignored: dict[str, str] = {}
        for name, value in decode_properties(data).values.items():
            if name in BROKER_CONFIGS or _is_kafkas_alone(name):
                values[name] = value
            else:
                ignored[name] = _unknown(name)
        overrides = overrides or {}
        return replace(cls.of({**values, **overrides}), ignored=ignored, fixed=frozenset(overrides))

    def reached_only_from(self, addresses: frozenset[str]) -> BrokerConfig:
        """For a broker whose clients can only connect from these addresses. Refuses configs that would lock out all of
        them.
        """
        return replace(self, reached_from=addresses)._checked()

    def listening_on(self, listener: str) -> BrokerConfig:
        """With this listener instead of all others. It is also the advertised address."""
        return replace(self, listeners=(listener,), advertised_listeners=None)

    def with_dynamic(self, values: Mapping[str, object]) -> BrokerConfig:
        """With the broker configs of the cluster metadata on top. Those that are invalid, contradict others or would
        lock out all clients have no effect and are listed in `ignored`: they were set while a broker ran, and a
        directory must still open.
        """
        parsed, ignored = self._parsed(values)
        try:
            changed = self._with(parsed, Origin.DYNAMIC_BROKER)._checked()
        except InvalidConfig:
            changed, contradicting = self._with_as_many_as_possible(parsed)
            ignored |= contradicting
        own = {name: text for name, text in _of_listeners(values).items() if name not in self.fixed}
        of_listeners = {**self.of_listeners, **own}
        return replace(changed, ignored={**self.ignored, **ignored}, of_listeners=of_listeners)

    def _with_as_many_as_possible(self, parsed: Mapping[str, Any]) -> tuple[BrokerConfig, dict[str, str]]:
        """One config may only be valid together with another one, so this repeats until no more can be added."""
        changed, left = self, dict(parsed)
        while True:
            ignored: dict[str, str] = {}
            for name, value in left.items():
                try:
                    changed = changed._with({name: value}, Origin.DYNAMIC_BROKER)._checked()
                except InvalidConfig as error:
                    ignored[name] = str(error)
            if len(ignored) == len(left):
                return changed, ignored
            left = {name: left[name] for name in ignored}

    def asked_for(self, values: Mapping[str, object]) -> BrokerConfig:
        """The effective values with these configs of the cluster metadata, whether they are valid together or not.
        Overrides of the command line are ignored, since the next start may lack them.
        """
        parsed, _ = replace(self, fixed=frozenset())._parsed(values)
        return self._with(parsed, Origin.DYNAMIC_BROKER)

    def lock_outs(self) -> Mapping[str, str]:
        """The configs that would lock out all clients, and why."""
        return lock_outs(self, self.reached_from)

    def is_fixed(self, name: str) -> bool:
        """Whether an override of the command line sets it, or the same in another unit."""
        return not self.fixed.isdisjoint(_SAME_SETTING.get(name, (name,)))

    def released(self, names: Iterable[str]) -> BrokerConfig:
        """The same, but from now on the cluster metadata applies to these: a client has changed them."""
        same = {each for name in names for each in _SAME_SETTING.get(name, (name,))}
        return replace(self, fixed=self.fixed - same) if self.fixed & same else self

    def _parsed(self, values: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, str]]:
        """The values of the cluster metadata that can have an effect, and why others cannot."""
        parsed: dict[str, Any] = {}
        ignored: dict[str, str] = {}
        for name, value in values.items():
            if _is_kafkas_alone(name) or self.is_fixed(name):
                continue
            try:
                parsed[name] = broker_definition(name).parse(value)
            except InvalidConfig as error:
                ignored[name] = str(error)
        return parsed, ignored

    def with_chosen_retention(self) -> BrokerConfig:
        """As if the default of `log.retention.hours` were given, unless a retention by time is given.

        The default deletes nothing that was due when a directory was opened; a configured retention does.
        """
        if any(synonym.name in self.given for synonym in TOPIC_CONFIGS["retention.ms"].synonyms):
            return self
        return self._with({"log.retention.hours": self.log_retention_hours}, Origin.BROKER)

    def get(self, name: str) -> Any:
        """The value of a config by Kafka's name."""
        return getattr(self, broker_definition(name).attribute)

    def text(self, name: str) -> str:
        """The value of a config as Kafka writes it."""
        return broker_definition(name).text(self.get(name))

    def topic_defaults(self) -> TopicConfig:
        """The configs of a topic that sets none itself."""
        values: dict[str, Any] = {}
        sources: dict[str, ConfigSource] = {}
        for topic_config in TOPIC_CONFIGS.values():
            for synonym in topic_config.synonyms:
                value = self.get(synonym.name)
                if value is not None:
                    values[topic_config.name] = value * synonym.multiplier if synonym.multiplier != 1 else value
                    if synonym.name in self.given:
                        sources[topic_config.name] = ConfigSource(self.given[synonym.name], synonym.name)
                    break
        values["retention.ms"] = max(values["retention.ms"], -1)
        return TopicConfig().replaced(values, sources)

    def _with(self, values: Mapping[str, Any], origin: Origin) -> BrokerConfig:
        return replace(
            self,
            **{BROKER_CONFIGS[name].attribute: value for name, value in values.items()},
            given={**self.given, **dict.fromkeys(values, origin)},
        )

    def _checked(self) -> BrokerConfig:
        self.topic_defaults().check()
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads <= _SMALLEST_CLEANER_MAP_BYTES:
            raise InvalidConfig(
                f"log.cleaner.dedupe.buffer.size ({self.log_cleaner_dedupe_buffer_size}) must be more than"
                f" {_SMALLEST_CLEANER_MAP_BYTES} for each of log.cleaner.threads ({self.log_cleaner_threads})"
            )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidConfig(
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) must be at least"
                f" socket.request.max.bytes ({self.socket_request_max_bytes})"
            )
        for fault in self.lock_outs().values():
            raise InvalidConfig(fault)
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            low, value, high = (f"group.consumer.{prefix}{name}" for prefix in ("min.", "", "max."))
            if not self.get(low) <= self.get(value) <= self.get(high):
                raise InvalidConfig(
                    f"{value} ({self.get(value)}) must be from {low} ({self.get(low)}) to {high} ({self.get(high)})"
                )
        return self


BROKER_CONFIGS: Mapping[str, ConfigDef] = definitions_of(BrokerConfig)
"""Every broker config that duralog uses, by name."""

_SAME_SETTING: Mapping[str, tuple[str, ...]] = {
    synonym.name: tuple(each.name for each in topic_config.synonyms)
    for topic_config in TOPIC_CONFIGS.values()
    if any(synonym.multiplier != 1 for synonym in topic_config.synonyms)
    for synonym in topic_config.synonyms
}
"""Broker configs for the same thing in different units, by each of them."""


def broker_definition(name: str) -> ConfigDef:
    definition = BROKER_CONFIGS.get(name)
    if definition is None:
        raise InvalidConfig(_unknown(name))
    return definition


def _is_kafkas_alone(name: str) -> bool:
    return name not in BROKER_CONFIGS and is_known_to_kafka(name)


def _of_listeners(values: Mapping[str, object]) -> dict[str, Password]:
    return {name: Password(str(value).strip()) for name, value in values.items() if name.startswith(LISTENER_PREFIX)}


def _unknown(name: str) -> str:
    topic_config = TOPIC_CONFIGS.get(name)
    if topic_config is None:
        return f"there is no config {name}{nearest(name, BROKER_CONFIGS)}"
    if not topic_config.synonyms:
        return f"{name} is a topic config, it cannot be set for all topics"
    names = " or ".join(synonym.name for synonym in topic_config.synonyms)
    return f"{name} is a topic config; to set it for all topics, use {names}"
