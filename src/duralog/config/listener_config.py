"""The configs of one listener: those with its prefix, over those without. In Kafka: `valuesWithPrefixOverride`.

`listener.name.NAME.CONFIG` counts for the listener of that name, in lower case; `listener.name.NAME.MECHANISM.CONFIG`
for one of its SASL mechanisms.
"""

from __future__ import annotations

from typing import Any

from duralog.config.broker import BROKER_CONFIGS, LISTENER_PREFIX, BrokerConfig, broker_definition
from duralog.config.definitions import PASSWORD, Password, definitions_of
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS
from duralog.config.log_settings import LogSettings
from duralog.config.security_settings import SecuritySettings

SECURITY_CONFIGS = tuple(sorted(definitions_of(SecuritySettings).keys() - definitions_of(LogSettings).keys()))


class ListenerConfig:
    """The configs of a listener as they were when this was made."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self.broker = config
        self.prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def get(self, name: str, mechanism: str | None = None) -> Any:
        """The value of a config for this listener, or for one of its mechanisms."""
        given = self.broker.of_listeners
        if mechanism is not None and (text := given.get(f"{self.prefix}{mechanism.lower()}.{name}")) is not None:
            return broker_definition(name).parse(text.value)
        own = self.own(name)
        return self.broker.get(name) if own is None else own

    def own(self, name: str) -> Any:
        """The value that the config has with the listener's prefix. None if it is not set so."""
        text = self.broker.of_listeners.get(f"{self.prefix}{name}")
        return None if text is None else broker_definition(name).parse(text.value)

    def secret(self, name: str) -> str | None:
        """The value of a config of the kind password."""
        value: Password | None = self.get(name)
        return None if value is None else value.value

    def jaas(self, mechanism: str) -> str | None:
        """The JAAS configuration of a mechanism. Without both prefixes there is none."""
        given = self.broker.of_listeners.get(f"{self.prefix}{mechanism.lower()}.sasl.jaas.config")
        return None if given is None else given.value

    def __eq__(self, other: object) -> bool:
        """Whether all security configs of the listener are the same."""
        if not isinstance(other, ListenerConfig):
            return NotImplemented
        return self.prefix == other.prefix and self._all() == other._all()

    __hash__ = None  # type: ignore[assignment]

    def _all(self) -> tuple[Any, ...]:
        own = {name: text for name, text in self.broker.of_listeners.items() if name.startswith(self.prefix)}
        return own, [self.broker.get(name) for name in SECURITY_CONFIGS]


def unprefixed(name: str) -> str:
    """The config that a name with the prefix of a listener, and perhaps of a mechanism, is for."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    _, _, own = name.removeprefix(LISTENER_PREFIX).partition(".")
    _, _, of_mechanism = own.partition(".")
    return of_mechanism if own not in _KNOWN and of_mechanism in _KNOWN else own


def is_secret(name: str) -> bool:
    """Whether the value of a broker config must not be shown. An unknown one of a listener may be a secret, too."""
    own = unprefixed(name)
    if own in BROKER_CONFIGS:
        return BROKER_CONFIGS[own].kind is PASSWORD
    if own in KAFKA_ONLY_CONFIGS:
        return KAFKA_ONLY_CONFIGS[own].kind == PASSWORD.name
    return own != name


_KNOWN = BROKER_CONFIGS.keys() | KAFKA_ONLY_CONFIGS.keys()
