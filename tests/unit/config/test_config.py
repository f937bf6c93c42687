"""Configs: what is accepted, what is refused and with which words, which layer wins."""

from __future__ import annotations

import re

import pytest

from duralog.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigSource,
    Origin,
    TopicConfig,
    topic_config_texts,
)
from duralog.config.kafka_only_configs import KAFKA_NAMES
from duralog.errors import CorruptRecord, InvalidConfig

LONG_MAX = 2**63 - 1


class TestDeclarations:
    @pytest.mark.parametrize("table", [TOPIC_CONFIGS, BROKER_CONFIGS], ids=["topic", "broker"])
    def test_every_default_is_allowed_and_reads_back_from_its_text(self, table):
        for definition in table.values():
            if definition.default is not None:
                assert definition.parse(definition.text(definition.default)) == definition.default, definition.name
            assert definition.doc

    def test_a_broker_with_defaults_gives_topics_their_defaults(self):
        assert BrokerConfig().topic_defaults() == TopicConfig()

    def test_every_synonym_is_a_broker_config(self):
        assert {synonym.name for each in TOPIC_CONFIGS.values() for synonym in each.synonyms} <= BROKER_CONFIGS.keys()

    def test_no_name_is_both_used_and_only_known(self):
        assert KAFKA_NAMES.isdisjoint(BROKER_CONFIGS)


class TestValues:
    @pytest.mark.parametrize(
        ("name", "given", "value"),
        [
            ("segment.bytes", "1048576", 1 << 20),
            ("segment.bytes", 1 << 20, 1 << 20),
            ("retention.ms", " +5 ", 5),
            ("retention.ms", -1, -1),
            ("flush.messages", str(LONG_MAX), LONG_MAX),
            ("min.cleanable.dirty.ratio", "1", 1.0),
            ("min.cleanable.dirty.ratio", 0, 0.0),
            ("min.cleanable.dirty.ratio", "5e-1", 0.5),
            ("min.cleanable.dirty.ratio", ".25f", 0.25),
            ("preallocate", " TRUE ", True),
            ("preallocate", False, False),
            ("cleanup.policy", "compact, delete", {"compact", "delete"}),
            ("cleanup.policy", ["compact"], {"compact"}),
            ("cleanup.policy", {"delete"}, {"delete"}),
            ("cleanup.policy", "delete,delete", {"delete"}),
            ("cleanup.policy", "", set()),
            ("compression.type", " zstd ", "zstd"),
            ("compression.gzip.level", -1, -1),
            ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
            ("leader.replication.throttled.replicas", "*", ("*",)),
        ],
    )
    def test_accepted(self, name, given, value):
        config = TopicConfig().with_overrides({name: given})
        assert config.get(name) == value
        assert type(config.get(name)) is type(TOPIC_CONFIGS[name].default)

    @pytest.mark.parametrize(
        ("name", "given", "allowed"),
        [
            ("segment.bytes", 100, "a whole number of 32 bits, at least 1048576"),
            ("segment.bytes", "1048575", "a whole number of 32 bits, at least 1048576"),
            ("segment.bytes", 2**31, "a whole number of 32 bits, at least 1048576"),
            ("segment.bytes", 1048576.0, "a whole number of 32 bits, at least 1048576"),
            ("flush.messages", str(LONG_MAX + 1), "a whole number of 64 bits, at least 1"),
            ("flush.messages", True, "a whole number of 64 bits, at least 1"),
            ("retention.ms", "1_000", "a whole number of 64 bits, at least -1"),
            ("retention.ms", "", "a whole number of 64 bits, at least -1"),
            ("retention.ms", None, "a whole number of 64 bits, at least -1"),
            ("min.cleanable.dirty.ratio", 1.01, "a number, from 0 to 1"),
            ("min.cleanable.dirty.ratio", "NaN", "a number, from 0 to 1"),
            ("min.cleanable.dirty.ratio", True, "a number, from 0 to 1"),
            ("preallocate", "yes", "true or false"),
            ("preallocate", 1, "true or false"),
            ("cleanup.policy", "compact,foo", "a list of words, any of compact, delete, or none"),
            ("cleanup.policy", "delete,", "a list of words, any of compact, delete, or none"),
            ("cleanup.policy", [1], "a list of words, any of compact, delete, or none"),
            ("cleanup.policy", 5, "a list of words, any of compact, delete, or none"),
            ("compression.type", "none", "text, one of uncompressed, zstd, lz4, snappy, gzip, producer"),
            ("compression.type", 4, "text, one of uncompressed, zstd, lz4, snappy, gzip, producer"),
            ("compression.gzip.level", 0, "a whole number of 32 bits, from 1 to 9, or -1"),
            ("leader.replication.throttled.replicas", "x", "a list of words, either * or partition:broker pairs"),
        ],
    )
    def test_refused_by_name_with_what_is_allowed(self, name, given, allowed):
        with pytest.raises(InvalidConfig) as error:
            TopicConfig().with_overrides({name: given})
        assert str(error.value) == f"{name}: {given!r} is not allowed, it must be {allowed}"

    def test_a_long_value_is_cut_in_the_error(self):
        with pytest.raises(InvalidConfig, match=r"ratio: 10{99}\.\.\. is not allowed"):
            TopicConfig().with_overrides({"min.cleanable.dirty.ratio": 10**400})

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (1.7976931348623157e308, "1.7976931348623157E308"),
            (0.9, "0.9"),
            (0.001, "0.001"),
            (1.0, "1.0"),
            (9999999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12345678.5, "1.23456785E7"),
            (0.00012, "1.2E-4"),
            (-1e10, "-1.0E10"),
            (0.0, "0.0"),
        ],
    )
    def test_doubles_are_written_as_java_does(self, value, text):
        assert (
            BrokerConfig.of({"log.cleaner.io.max.bytes.per.second": value}).text("log.cleaner.io.max.bytes.per.second")
            == text
        )

    def test_overrides_as_they_are_stored(self):
        given = {
            "cleanup.policy": ["delete", "compact"],
            "preallocate": True,
            "segment.bytes": 1 << 20,
            "flush.ms": " 7 ",
        }
        assert topic_config_texts(given) == {
            "cleanup.policy": "delete,compact",
            "preallocate": "true",
            "segment.bytes": "1048576",
            "flush.ms": "7",
        }


class TestTopicConfig:
    def test_unknown_names_are_refused_with_the_nearest(self):
        with pytest.raises(InvalidConfig, match=r"no topic config segment\.byts; did you mean segment\.bytes"):
            TopicConfig().with_overrides({"segment.byts": 1})
        with pytest.raises(InvalidConfig, match=r"no topic config qqq$"):
            TopicConfig().get("qqq")

    def test_a_broker_name_is_refused_with_the_topic_name(self):
        with pytest.raises(
            InvalidConfig, match=r"log\.roll\.hours is a broker config; a topic's is called segment\.ms"
        ):
            TopicConfig().with_overrides({"log.roll.hours": 1})

    def test_lags_that_contradict_each_other(self):
        with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms \(10\) .* max\.compaction\.lag\.ms \(5\)"):
            TopicConfig().with_overrides({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5})
        assert TopicConfig().with_overrides({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 5})

    def test_internal_segment_bytes_wins_and_may_be_small(self):
        config = TopicConfig().with_overrides({"segment.bytes": 1 << 20, "internal.segment.bytes": 100})
        assert config.segment_bytes == 100
        assert config.source("segment.bytes") == ConfigSource(Origin.TOPIC, "internal.segment.bytes")
        assert config.with_overrides({"segment.bytes": 2 << 20}).segment_bytes == 100

    def test_what_a_directory_stored_is_taken_as_far_as_it_is_understood(self):
        stored = {"message.format.version": "2.8", "segment.bytes": "14", "retention.ms": "5"}
        config = TopicConfig().with_stored(stored)
        assert config.retention_ms == 5
        assert config.segment_bytes == 1 << 30
        assert config.ignored.keys() == {"message.format.version", "segment.bytes"}
        assert "at least 1048576" in config.ignored["segment.bytes"]

    def test_configs_are_equal_by_their_values(self):
        assert TopicConfig().with_overrides({"retention.ms": 604800000}) == TopicConfig()
        assert TopicConfig().with_overrides({"retention.ms": 1}) != TopicConfig()


class TestBrokerConfig:
    def test_values_by_attribute_and_by_name(self):
        config = BrokerConfig.of({"log.segment.bytes": "2097152", "log.cleaner.enable": "false"})
        assert config.log_segment_bytes == config.get("log.segment.bytes") == 2 << 20
        assert config.log_cleaner_enable is False
        assert config.text("log.cleaner.enable") == "false"
        assert config.text("log.retention.ms") == ""

    def test_the_first_synonym_wins(self):
        hours, minutes, ms = ({"log.retention.hours": 2}, {"log.retention.minutes": 3}, {"log.retention.ms": 4})
        assert BrokerConfig.of(hours).topic_defaults().retention_ms == 7_200_000
        assert BrokerConfig.of(hours | minutes).topic_defaults().retention_ms == 180_000
        assert BrokerConfig.of(hours | minutes | ms).topic_defaults().retention_ms == 4

    @pytest.mark.parametrize(
        ("given", "name", "value"),
        [
            ({"log.roll.hours": 3}, "segment.ms", 10_800_000),
            ({"log.roll.hours": 3, "log.roll.ms": 5}, "segment.ms", 5),
            ({"log.roll.jitter.hours": 1}, "segment.jitter.ms", 3_600_000),
            ({"log.flush.scheduler.interval.ms": 9}, "flush.ms", 9),
            ({"log.flush.scheduler.interval.ms": 9, "log.flush.interval.ms": 8}, "flush.ms", 8),
            ({"log.retention.ms": -5}, "retention.ms", -1),
            ({"log.retention.hours": -1}, "retention.ms", -1),
            ({"message.max.bytes": 10}, "max.message.bytes", 10),
            ({"log.cleanup.policy": "compact"}, "cleanup.policy", {"compact"}),
        ],
    )
    def test_topic_defaults(self, given, name, value):
        assert BrokerConfig.of(given).topic_defaults().get(name) == value

    def test_where_a_topics_values_came_from(self):
        broker = BrokerConfig.of({"log.retention.hours": 168, "log.segment.bytes": 1 << 20})
        config = broker.with_dynamic({"message.max.bytes": "77"}).topic_defaults().with_overrides({"flush.ms": 5})
        assert config.source("retention.ms") == ConfigSource(Origin.BROKER, "log.retention.hours")
        assert config.source("segment.bytes") == ConfigSource(Origin.BROKER, "log.segment.bytes")
        assert config.source("max.message.bytes") == ConfigSource(Origin.DYNAMIC_BROKER, "message.max.bytes")
        assert config.source("flush.ms") == ConfigSource(Origin.TOPIC, "flush.ms")
        assert config.source("preallocate") == ConfigSource(Origin.DEFAULT, "preallocate")

    def test_small_segments_for_all_topics(self):
        with pytest.raises(InvalidConfig, match="at least 1048576"):
            BrokerConfig.of({"log.segment.bytes": 4096})
        assert BrokerConfig.of({"internal.segment.bytes": 4096}).topic_defaults().segment_bytes == 4096

    @pytest.mark.parametrize(
        ("given", "complaint"),
        [
            ({"log.segment.byts": 1}, "there is no config log.segment.byts; did you mean log.segment.bytes"),
            (
                {"segment.ms": 1},
                "segment.ms is a topic config; to set it for all topics, use log.roll.ms or log.roll.hours",
            ),
            ({"remote.storage.enable": 1}, "remote.storage.enable is a topic config, it cannot be set for all topics"),
            ({"log.retention.hours": 0}, "must be a whole number of 32 bits, at least 1, or negative for no limit"),
            ({"log.roll.ms": 0}, "log.roll.ms: 0 is not allowed"),
            ({"log.dirs": "/a,,/b"}, "log.dirs: '/a,,/b' is not allowed"),
            ({"log.cleaner.io.max.bytes.per.second": "1e400"}, "'1e400' is not allowed, it must be a number"),
            ({"group.consumer.heartbeat.interval.ms": 15001}, "to group.consumer.max.heartbeat.interval.ms (15000)"),
            ({"log.dirs": ""}, "log.dirs: '' is not allowed, it must be a list of words, not empty"),
            (
                {"log.cleaner.min.compaction.lag.ms": 10, "log.cleaner.max.compaction.lag.ms": 5},
                "log.cleaner.min.compaction.lag.ms (10) must not be larger than log.cleaner.max.compaction.lag.ms (5)",
            ),
            (
                {"log.cleaner.dedupe.buffer.size": 2 << 20, "log.cleaner.threads": 2},
                "log.cleaner.dedupe.buffer.size (2097152) must be more than 1048576 for each of log.cleaner.threads",
            ),
            (
                {"group.consumer.session.timeout.ms": 1000},
                "group.consumer.session.timeout.ms (1000) must be from group.consumer.min.session.timeout.ms (45000)"
                " to group.consumer.max.session.timeout.ms (60000)",
            ),
        ],
    )
    def test_refused(self, given, complaint):
        with pytest.raises(InvalidConfig, match=re.escape(complaint)):
            BrokerConfig.of(given)

    def test_what_only_kafka_uses_has_no_effect(self):
        config = BrokerConfig.of({"process.roles": "broker", "listener.name.external.ssl.keystore.type": "PEM"})
        assert config == BrokerConfig()
        assert not config.ignored

    def test_a_server_properties_as_it_is(self):
        config = BrokerConfig.from_properties(
            rb"""
            # The id of the node
            node.id=3
            process.roles=broker,controller
            log.dirs = /data/a,/data/b
            log.retention.hours=\
                24
            confluent.metrics.enable=true
            log.segment.bites=5
            retention.ms=5
            """
        )
        assert config.node_id == 3
        assert config.log_dirs == ("/data/a", "/data/b")
        assert config.topic_defaults().retention_ms == 86_400_000
        assert config.given.keys() == {"node.id", "log.dirs", "log.retention.hours"}
        assert list(config.ignored) == ["confluent.metrics.enable", "log.segment.bites", "retention.ms"]
        assert "did you mean log.segment.bytes" in config.ignored["log.segment.bites"]
        assert "use log.retention.ms" in config.ignored["retention.ms"]

    def test_a_bad_value_in_a_server_properties_is_refused(self):
        with pytest.raises(InvalidConfig, match=r"num\.partitions: 'many' is not allowed"):
            BrokerConfig.from_properties(b"num.partitions=many\n")
        with pytest.raises(CorruptRecord):
            BrokerConfig.from_properties(b"num.partitions=\\u12\n")

    def test_dynamic_configs_that_only_fit_together_are_taken_in_any_order(self):
        lags = {"log.cleaner.min.compaction.lag.ms": "100", "log.cleaner.max.compaction.lag.ms": "200"}
        before = BrokerConfig.of({"log.cleaner.max.compaction.lag.ms": 50})
        for values in (lags, dict(reversed(lags.items()))):
            config = before.with_dynamic(values)
            assert config.ignored == {}
            assert (config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms) == (100, 200)

    def test_dynamic_configs_win_and_bad_ones_have_no_effect(self):
        config = BrokerConfig.of({"log.retention.ms": 5, "num.partitions": 3}).with_dynamic(
            {
                "log.retention.ms": "6",
                "num.partitions": "0",
                "log.cleaner.threads": "500",
                "future.config": "1",
                "ssl.key.password": "secret",
            }
        )
        assert (config.log_retention_ms, config.num_partitions, config.log_cleaner_threads) == (6, 3, 1)
        assert config.ignored.keys() == {"num.partitions", "log.cleaner.threads", "future.config"}


def test_a_retention_counts_as_chosen_when_it_is_asked_for() -> None:
    chosen = BrokerConfig().with_chosen_retention()
    assert chosen == BrokerConfig()
    assert chosen.topic_defaults().source("retention.ms") == ConfigSource(Origin.BROKER, "log.retention.hours")
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        given = BrokerConfig.of({name: 100_000})
        assert given.with_chosen_retention() is given
    dynamic = chosen.with_dynamic({"log.retention.ms": "5"})
    assert dynamic.topic_defaults().source("retention.ms").origin is Origin.DYNAMIC_BROKER
