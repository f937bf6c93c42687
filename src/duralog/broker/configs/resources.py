"""The configs of topics, brokers and groups, as clients see them: values, sources and synonyms.

A broker config has up to four values, of which the first that is there counts: set while the broker ran, for this
broker or for all; given at its start; Kafka's default. A stored value that is overridden on the command line or ignored
comes last. A topic's or a group's own value comes before those of the broker config that it follows. Kafka lists them
all as synonyms, but begins at the requested name: for `log.retention.ms`, which is not set, it does not list that
`log.retention.hours` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from duralog.broker.configs.dynamic import CHANGEABLE_CONFIGS
from duralog.broker.configs.group_configs import GROUP_CONFIGS, NO_EFFECT
from duralog.broker.wire.request import Fields
from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS, BrokerConfig, Origin
from duralog.config.entries import (
    ALL_BROKERS_SOURCE,
    DEFAULT_SOURCE,
    GROUP_SOURCE,
    PASSWORD,
    STATIC_SOURCE,
    THIS_BROKER_SOURCE,
    TOPIC_SOURCE,
    Entry,
    Value,
)
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS
from duralog.config.listener_config import is_secret
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE, GROUP_RESOURCE
from duralog.storage.metadata.topics import Topic
from duralog.storage.store import Store

LOGGER_RESOURCE = 8
"""A resource type by Kafka's number, next to those of the cluster metadata: this one is not stored."""
_HIDDEN = frozenset(
    {
        "allow.everyone.if.no.acl.found",
        "duralog.audit.log.file",
        "duralog.audit.log.max.bytes",
        "duralog.audit.log.max.files",
        "group.consumer.regex.refresh.interval.ms",
        "internal.segment.bytes",
        "log.initial.task.delay.ms",
        "producer.id.expiration.check.interval.ms",
        "super.users",
    }
)
"""Existing configs that Kafka does not list."""
_GO_TOGETHER = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
"""Broker configs for the same thing, the finest unit first."""
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **{name: names for names in _GO_TOGETHER for name in names},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}


class ConfigLayers:
    """All values of the broker configs, as they are now."""

    def __init__(self, store: Store, *, listeners: str | None = None) -> None:
        """`listeners` is what the broker listens on, if one runs."""
        given = store.given_config
        static = {} if listeners is None else {**_always_given(store), "listeners": listeners}
        self._config = store.config
        self._stored: tuple[tuple[int, Mapping[str, str]], ...] = (
            (THIS_BROKER_SOURCE, store.configs_of(BROKER_RESOURCE, str(store.node_id))),
            (ALL_BROKERS_SOURCE, store.configs_of(BROKER_RESOURCE, ALL_BROKERS)),
        )
        self._static = (STATIC_SOURCE, static | {name: given.text(name) for name in given.given})

    def values(self, name: str) -> tuple[Value, ...]:
        """What a broker config and its synonyms are set to, the value in force first."""
        names = _SYNONYMS.get(name, (name,))
        is_hidden = is_secret(name)

        def values(layers: Iterable[tuple[int, Mapping[str, str]]]) -> list[Value]:
            return [
                Value(each, None if is_hidden else layer[each], source)
                for source, layer in layers
                for each in names
                if each in layer
            ]

        stored = values(self._stored)
        has_effect = [value for value in stored if has_stored_effect(self._config, value.name)]
        defaults = [Value(each, text, DEFAULT_SOURCE) for each in names if (text := _default_of(each)) is not None]
        found = [*has_effect, *values([self._static]), *defaults]
        begins = next((place for place, value in enumerate(found) if value.name == name), len(found))
        if begins == len(found):
            return ()
        return (*found[begins:], *(value for value in stored if value not in has_effect))


def has_stored_effect(config: BrokerConfig, name: str) -> bool:
    """Whether a config that is stored for this broker or for all takes part, of a broker with these configs in force.

    Not if an override of the command line wins over it, or if its value is ignored. Kafka keeps names that are unknown.
    """
    return not config.is_fixed(name) and (name not in config.ignored or name not in BROKER_CONFIGS)


def _always_given(store: Store) -> dict[str, str]:
    """Configs that every node has, even if not given: Kafka does not start without them."""
    node_id = str(store.node_id)
    return {"node.id": node_id, "broker.id": node_id, "log.dirs": ",".join(store.paths)}


def _default_of(name: str) -> str | None:
    definition = BROKER_CONFIGS.get(name)
    if definition is None:
        return KAFKA_ONLY_CONFIGS[name].default if name in KAFKA_ONLY_CONFIGS else None
    return None if definition.default is None else definition.text(definition.default)


def _kind_of(name: str) -> str:
    definition = BROKER_CONFIGS.get(name)
    if definition is not None:
        return definition.kind.name
    return KAFKA_ONLY_CONFIGS[name].kind if name in KAFKA_ONLY_CONFIGS else "unknown"


def _doc_of(name: str) -> str:
    return BROKER_CONFIGS[name].doc if name in BROKER_CONFIGS else NO_EFFECT


def broker_entries(store: Store, listeners: str | None) -> Iterator[Entry]:
    """All configs of this broker, which listens there, or of a directory without a broker."""
    layers = ConfigLayers(store, listeners=listeners)
    for name in sorted({*BROKER_CONFIGS, *KAFKA_ONLY_CONFIGS} - _HIDDEN):
        values = layers.values(name)
        text = values[0].text if values else None
        yield Entry(name, text, values, _kind_of(name), _doc_of(name), read_only=name not in CHANGEABLE_CONFIGS)


def all_brokers_entries(store: Store) -> Iterator[Entry]:
    """What is set for all brokers."""
    for name, text in sorted(store.configs_of(BROKER_RESOURCE, ALL_BROKERS).items()):
        kind = PASSWORD if is_secret(name) else _kind_of(name)
        shown = None if kind == PASSWORD else text
        value = Value(name, shown, ALL_BROKERS_SOURCE)
        yield Entry(name, shown, (value,), kind, _doc_of(name), read_only=name not in CHANGEABLE_CONFIGS)


def topic_entries(store: Store, topic: Topic) -> Iterator[Entry]:
    """All configs of a topic."""
    layers = ConfigLayers(store)
    for name, definition in sorted(TOPIC_CONFIGS.items()):
        if name in _HIDDEN:
            continue
        broker_names = [synonym.name for synonym in definition.synonyms]
        values = layers.values(broker_names[0]) if broker_names else ()
        text: str | None = topic.config.text(name)
        if definition.kind.name == "list" and values:
            text = values[0].text  # In the order in which it was given.
        if name in topic.overrides:
            text = topic.overrides[name]
            values = (Value(name, text, TOPIC_SOURCE), *values)
        yield Entry(name, text, values, definition.kind.name, definition.doc)


def effective_topic_configs(store: Store, overrides: Mapping[str, str]) -> list[Fields]:
    """The configs of a topic that sets these itself, as CreateTopics returns them."""
    config = store.config.topic_defaults().with_stored(overrides)
    own, for_all = (
        {config for config in store.configs_of(BROKER_RESOURCE, each) if has_stored_effect(store.config, config)}
        for each in (str(store.node_id), ALL_BROKERS)
    )
    entries: list[Fields] = []
    for name, definition in sorted(TOPIC_CONFIGS.items()):
        if name in _HIDDEN:
            continue
        names = {synonym.name for synonym in definition.synonyms}
        if name in overrides:
            source = TOPIC_SOURCE
        elif names & own:
            source = THIS_BROKER_SOURCE
        elif names & for_all:
            source = ALL_BROKERS_SOURCE
        else:
            is_given = config.source(name).origin is Origin.BROKER
            source = STATIC_SOURCE if is_given else DEFAULT_SOURCE
        entries.append(
            {
                "name": name,
                "value": overrides.get(name, config.text(name)),
                "read_only": False,
                "config_source": source,
                "is_sensitive": False,
            }
        )
    return entries


def group_entries(store: Store, group: str) -> Iterator[Entry]:
    """All configs of a group, whether it exists or not."""
    layers = ConfigLayers(store)
    set_here = store.configs_of(GROUP_RESOURCE, group)
    for name, definition in sorted(GROUP_CONFIGS.items()):
        values: tuple[Value, ...] = (Value(name, definition.default, DEFAULT_SOURCE),)
        if definition.broker_config is not None:
            values = layers.values(definition.broker_config)
        if name in set_here:
            values = (Value(name, set_here[name], GROUP_SOURCE), *values)
        yield Entry(name, values[0].text if values else None, values, definition.kind.name, definition.doc)


def chosen(entries: Iterable[Entry], names: Iterable[str] | None) -> Iterator[Entry]:
    """The entries that a client asks for by name; all of them if it names none."""
    wanted = frozenset(names or ())
    return (entry for entry in entries if not wanted or entry.name in wanted)
