"""An unchanged `server.properties` for a broker: what is refused, and what is reported to have no effect.

A config by which Kafka would protect clients or data must not be dropped silently: it is refused. All other configs
without an effect are listed in one line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.config.kafka_only_configs import is_known_to_kafka
from duralog.config.listener_config import unprefixed
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
_EXPECTED = {"process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "broker.id"}
"""Every KRaft broker has them; they make no difference for one node."""


def read_settings(properties: bytes, overrides: Mapping[str, str]) -> BrokerConfig:
    """The configs of a `server.properties`, and over them those of the command line."""
    given = {**decode_properties(properties).values, **overrides}
    for name, reason in _REFUSED.items():
        if given.get(name, "").strip() not in ("", _HARMLESS.get(name, "")):
            raise InvalidConfig(f"{name} is not supported: {reason}")
    config = BrokerConfig.from_properties(properties, overrides)
    if config.log_dirs is not None and len(config.log_dirs) > 1:
        raise InvalidConfig(
            f"log.dirs: {', '.join(config.log_dirs)} are several directories; one is supported: say which with"
            " --override log.dirs=DIR"
        )
    only_kafkas = {name for name in given if unprefixed(name) not in BROKER_CONFIGS and is_known_to_kafka(name)}
    without_effect = sorted({*only_kafkas, *config.ignored} - _EXPECTED - _REFUSED.keys())
    if without_effect:
        _logger.warning("these configs have no effect here: %s", ", ".join(without_effect))
    return config
