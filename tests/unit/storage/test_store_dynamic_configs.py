"""Configs that are set while a store is open: kept in the cluster metadata, in force at once, there after a restart."""

from __future__ import annotations

from pathlib import Path

import duralog
from duralog.config import BrokerConfig, Origin
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE, GROUP_RESOURCE
from duralog.storage.store import Store


def test_topics_follow_the_broker_at_once_and_after_the_next_start(tmp_path: Path) -> None:
    with duralog.open(str(tmp_path)) as store:
        store.create_topic("plain")
        store.create_topic("own", config={"retention.ms": 5})
        store.alter_configs_of(BROKER_RESOURCE, ALL_BROKERS, {"log.retention.ms": "700"})
        assert store.config.log_retention_ms == 700
        assert store.config.given["log.retention.ms"] is Origin.DYNAMIC_BROKER
        assert store.topic_config("plain").retention_ms == 700
        assert store.partition("plain", 0).config.retention_ms == 700
        assert store.partition("own", 0).config.retention_ms == 5
        assert store.given_config.log_retention_ms is None
    with duralog.open(str(tmp_path)) as store:
        assert store.partition("plain", 0).config.retention_ms == 700


def test_one_brokers_configs_win_and_are_taken_back(tmp_path: Path) -> None:
    with duralog.open(str(tmp_path)) as store:
        node = str(store.node_id)
        store.create_topic("plain")
        store.alter_configs_of(BROKER_RESOURCE, ALL_BROKERS, {"message.max.bytes": "1000"})
        store.alter_configs_of(BROKER_RESOURCE, node, {"message.max.bytes": "2000"})
        assert store.partition("plain", 0).config.max_message_bytes == 2000
        assert store.configs_of(BROKER_RESOURCE, node) == {"message.max.bytes": "2000"}
        store.alter_configs_of(BROKER_RESOURCE, node, {"message.max.bytes": None})
        assert store.partition("plain", 0).config.max_message_bytes == 1000
        assert store.configs_of(BROKER_RESOURCE, node) == {}


def test_what_cannot_be_understood_is_kept_without_effect(tmp_path: Path) -> None:
    with duralog.open(str(tmp_path)) as store:
        store.alter_configs_of(BROKER_RESOURCE, ALL_BROKERS, {"a.plugins.own": "1", "log.segment.bytes": "few"})
        assert store.configs_of(BROKER_RESOURCE, ALL_BROKERS)["a.plugins.own"] == "1"
        assert store.config.ignored.keys() == {"a.plugins.own", "log.segment.bytes"}
        assert store.config.log_segment_bytes == BrokerConfig().log_segment_bytes


def test_producers_are_forgotten_by_the_new_time(tmp_path: Path) -> None:
    now_ms = 1_000_000
    with Store(str(tmp_path), clock=lambda: now_ms) as store:
        store.create_topic("plain")
        log = store.partition("plain", 0)
        log.append([duralog.Record(value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        now_ms += 5_000
        assert log.expire_producers() == 0
        store.alter_configs_of(BROKER_RESOURCE, ALL_BROKERS, {"producer.id.expiration.ms": "4000"})
        assert log.expire_producers() == 1
        store.create_topic("later")
        later = store.partition("later", 0)
        later.append([duralog.Record(value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        now_ms += 4_000
        assert later.expire_producers() == 1


def test_configs_of_groups_are_kept(tmp_path: Path) -> None:
    with duralog.open(str(tmp_path)) as store:
        store.alter_configs_of(GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": "50000"})
    with duralog.open(str(tmp_path)) as store:
        assert store.configs_of(GROUP_RESOURCE, "g") == {"consumer.session.timeout.ms": "50000"}
        assert store.configs_of(GROUP_RESOURCE, "h") == {}
        before = store.config
        store.alter_configs_of(GROUP_RESOURCE, "g", {"consumer.session.timeout.ms": None})
        assert store.configs_of(GROUP_RESOURCE, "g") == {}
        assert store.config is before


def test_the_cleaner_goes_by_the_new_configs(tmp_path: Path) -> None:
    config = BrokerConfig.of({"log.cleaner.threads": 1})
    with duralog.open(str(tmp_path), config=config) as store:
        store.alter_configs_of(
            BROKER_RESOURCE, ALL_BROKERS, {"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": "8388608"}
        )
        assert store.cleaner.settings.compaction.memory_bytes == 8388608 // 4
        assert store.cleaner.totals().threads == 4
        assert len(store._cleaner_scheduler._threads) == 4
