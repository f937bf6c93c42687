"""Kafka's configs, under Kafka's names: typed, with Kafka 4.3.1's defaults and ranges."""

from duralog.config.broker import BROKER_CONFIGS, BrokerConfig
from duralog.config.definitions import ConfigDef, Synonym
from duralog.config.sources import ConfigSource, Origin
from duralog.config.topic import TOPIC_CONFIGS, TopicConfig, topic_config_texts

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigSource",
    "Origin",
    "Synonym",
    "TopicConfig",
    "topic_config_texts",
]
