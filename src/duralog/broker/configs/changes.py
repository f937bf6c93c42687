"""Changes of configs that clients ask for: checked in Kafka's order, written to the cluster metadata, then in force.

A change names a resource (a topic, this broker, all brokers or a group) and the operations on its configs. Resources
are independent of each other. Everything here but `finish` runs inside `Topics.change`, so that nothing changes between
the check and the write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from duralog.broker.configs.dynamic import broker_configs_fault
from duralog.broker.configs.faults import topic_configs_fault
from duralog.broker.configs.group_configs import GROUP_CONFIGS, group_configs_fault
from duralog.broker.configs.resources import ConfigLayers
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topic_faults import Fault, fault_of, name_fault
from duralog.broker.topics.topics import Topics
from duralog.broker.wire import error_codes as codes
from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS
from duralog.config.definitions import LIST
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS
from duralog.errors import DuralogError
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from duralog.storage.store import Store

SET, DELETE, APPEND, SUBTRACT = range(4)
"""What to do with a config, by Kafka's numbers."""
OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")

MOST_CONFIGS = 1000
"""Of one broker. Kafka keeps any number of unknown names."""

DONE = Fault(codes.NONE, None)


@dataclass(frozen=True, slots=True)
class Change:
    """A requested change of one resource."""

    resource_type: int
    name: str
    operations: Mapping[str, tuple[int, str | None]]
    """By config: what to do, and a value where that needs one."""
    replaces_all: bool = False
    """Whether configs that are not named are reset."""


class ConfigChanges:
    """The changes of one request."""

    def __init__(self, runtime: Runtime, topics: Topics, limits: ConnectionLimits, *, validate_only: bool) -> None:
        self._runtime = runtime
        self._topics = topics
        self._limits = limits
        self._store = runtime.store
        self._validate_only = validate_only
        self._changed_topics: list[str] = []
        self._has_changed_brokers = False

    def make(self, change: Change) -> Fault:
        """Check a change, and apply it unless it is only to be validated. Returns what the client gets."""
        texts = self._texts(change)
        if isinstance(texts, Fault):
            return texts
        fault = self._fault(change, texts)
        if fault is not None:
            return fault
        stored = self._stored(change)
        different = {name: text for name, text in texts.items() if stored.get(name) != text}
        if not self._validate_only and different:
            try:
                self._write(change, different)
            except DuralogError as error:
                return fault_of(error, self._runtime.log_lines)
        return DONE

    def finish(self) -> None:
        """On the loop, after all changes of the request."""
        if self._has_changed_brokers:
            self._limits.follow(self._runtime.config)
            self._topics.refresh_all()
        else:
            for name in self._changed_topics:
                self._topics.refresh(name)

    def _stored(self, change: Change) -> Mapping[str, str]:
        if change.resource_type == TOPIC_RESOURCE:
            topic = self._store.find_topic(change.name)
            return {} if topic is None else topic.overrides
        return self._store.configs_of(change.resource_type, change.name)

    def _write(self, change: Change, texts: Mapping[str, str | None]) -> None:
        if change.resource_type == TOPIC_RESOURCE:
            self._changed_topics.append(change.name)
            self._store.alter_topic_config(change.name, texts)
        else:
            self._has_changed_brokers |= change.resource_type == BROKER_RESOURCE
            self._store.alter_configs_of(change.resource_type, change.name, texts)

    # Resulting values

    def _texts(self, change: Change) -> dict[str, str | None] | Fault:
        """The configs that get another value; None for those that are reset."""
        stored = self._stored(change)
        texts: dict[str, str | None] = {}
        if change.replaces_all:
            texts = {name: None for name in stored if name not in change.operations}
        for name, (operation, value) in change.operations.items():
            if operation == SET:
                texts[name] = value
            elif operation == DELETE:
                texts[name] = None
            elif _kind_of(change.resource_type, name) != LIST.name:
                return _not_a_list(change.resource_type, OPERATIONS[operation], name)
            else:
                present = stored[name] if name in stored else self._inherited(change, name)
                elements = LIST.parse(present) or ()
                words = [word.strip() for word in (value or "").split(",")]
                if operation == APPEND:
                    texts[name] = ",".join([*elements, *(word for word in words if word not in elements)])
                else:
                    texts[name] = ",".join(element for element in elements if element not in words)
        return texts

    def _inherited(self, change: Change, name: str) -> str:
        """The value of a list that the resource itself does not set."""
        if change.resource_type == TOPIC_RESOURCE:
            return self._store.config.topic_defaults().text(name)
        values = ConfigLayers(self._store).values(name)
        return (values[0].text or "") if values else ""

    # Refusals

    def _fault(self, change: Change, texts: Mapping[str, str | None]) -> Fault | None:
        configs = _changed(self._stored(change), texts)
        if change.resource_type == TOPIC_RESOURCE:
            return self._topic_fault(change.name, configs)
        if change.resource_type == GROUP_RESOURCE:
            if not change.name:
                return Fault(codes.INVALID_REQUEST, "Default group resources are not allowed.")
            message = group_configs_fault(configs, self._store.config)
            return None if message is None else Fault(codes.INVALID_CONFIG, message)
        return broker_fault(self._store, change.name, texts)

    def _topic_fault(self, name: str, configs: Mapping[str, str]) -> Fault | None:
        if not name:
            return Fault(codes.INVALID_REQUEST, "Default topic resources are not allowed.")
        fault = name_fault(name)
        if fault is not None:
            return fault
        message = topic_configs_fault(configs, self._store.config.topic_defaults())
        if message is not None:
            return Fault(codes.INVALID_CONFIG, message)
        if self._store.find_topic(name) is None:
            return Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return None


def broker_fault(store: Store, name: str, changes: Mapping[str, str | None]) -> Fault | None:
    """Why configs of this broker, or of `ALL_BROKERS`, cannot be set, or reset with None."""
    own, for_all = (store.configs_of(BROKER_RESOURCE, each) for each in (str(store.node_id), ALL_BROKERS))
    before = store.given_config.asked_for({**for_all, **own})
    if name == ALL_BROKERS:
        changed = for_all = _changed(for_all, changes)
    else:
        changed = own = _changed(own, changes)
    if len(changed) > MOST_CONFIGS:
        return Fault(codes.POLICY_VIOLATION, f"A broker may have {MOST_CONFIGS} configs at most.")
    after = store.given_config.asked_for({**for_all, **own})
    fault = broker_configs_fault(
        changes,
        store.config,
        after,
        for_all=name == ALL_BROKERS,
        has_eligible_replicas=bool(store.features.get("eligible.leader.replicas.version")),
    )
    if fault is not None:
        return fault
    # An invalid value that was stored earlier must not block changes of other configs.
    known = before.lock_outs()
    for config, reason in after.lock_outs().items():
        if config not in known or changes.get(config) is not None:
            return Fault(codes.INVALID_CONFIG, reason)
    return None


def _changed(stored: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in {**stored, **changes}.items() if text is not None}


def _kind_of(resource_type: int, name: str) -> str | None:
    if resource_type == GROUP_RESOURCE:
        return GROUP_CONFIGS[name].kind.name if name in GROUP_CONFIGS else None
    definitions = TOPIC_CONFIGS if resource_type == TOPIC_RESOURCE else BROKER_CONFIGS
    return definitions[name].kind.name if name in definitions else None


def _not_a_list(resource_type: int, operation: str, name: str) -> Fault:
    if resource_type == BROKER_RESOURCE:
        if name not in BROKER_CONFIGS and name not in KAFKA_ONLY_CONFIGS:
            return Fault(codes.INVALID_CONFIG, f"Unknown config name: {name}")
        verb = operation.lower()
        return Fault(codes.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}")
    return Fault(codes.INVALID_CONFIG, f"Can't {operation} to key {name} because its type is not LIST.")
