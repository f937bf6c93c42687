"""Reads a `server.properties` for a broker: refuses some configs, and reports those without effect.

A config by which Kafka would protect clients or data must not be dropped silently: it is refused. All other configs
without an effect are listed in one line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.config.definitions import nearest
from duralog.config.kafka_only_configs import is_known_to_kafka
from duralog.config.listener_config import SECURITY_CONFIGS, unprefixed
from duralog.errors import InvalidConfig
from duralog.format.java_properties import decode_properties

_logger = logging.getLogger(__name__)

_REFUSED = {
    "create.topic.policy.class.name": "policies are Java classes",
    "alter.config.policy.class.name": "policies are Java classes",
    "config.providers": "providers are Java classes",
    "remote.log.storage.system.enable": "there is no tiered storage here",
    "max.connection.creation.rate": "the rate of new connections is not limited here",
}
_HARMLESS = {
    "remote.log.storage.system.enable": "false",
    "max.connection.creation.rate": "2147483647",
}
"""Values of those that request nothing."""
_OF_LISTENERS = {*SECURITY_CONFIGS, "max.connections"}
"""Those that may be set for one listener."""
_EXPECTED = {"process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "broker.id"}
"""Every KRaft broker has them; they make no difference for one node."""


def read_settings(properties: bytes, overrides: Mapping[str, str]) -> BrokerConfig:
    """The configs of a `server.properties`, and over them those of the command line."""
    given = {**decode_properties(properties).values, **overrides}
    for name, value in given.items():
        own = unprefixed(name)
        if own in _REFUSED and value.strip() not in ("", _HARMLESS.get(own, "")):
            raise InvalidConfig(f"{name} is not supported: {_REFUSED[own]}")
    config = BrokerConfig.from_properties(properties, overrides)
    only_kafkas = {name for name in given if unprefixed(name) not in BROKER_CONFIGS and is_known_to_kafka(name)}
    of_listeners = {name: own for name in given if (own := unprefixed(name)) != name}
    only_for_all = {name for name, own in of_listeners.items() if own in BROKER_CONFIGS and own not in _OF_LISTENERS}
    without_effect = sorted({*only_kafkas, *only_for_all, *config.ignored} - _EXPECTED - _REFUSED.keys())
    misspelled = {name: near for name in config.ignored if not is_known_to_kafka(name) and (near := _near(name))}
    for name, near in sorted(misspelled.items()):
        _logger.warning("there is no config %s%s It has no effect", name, near)
    if rest := [name for name in without_effect if name not in misspelled]:
        _logger.warning("these configs have no effect here: %s", ", ".join(rest))
    return config


def _near(name: str) -> str:
    """What a name may be a mistake for. Not for those of other products: they are longer."""
    return nearest(name, BROKER_CONFIGS, cutoff=0.9)
