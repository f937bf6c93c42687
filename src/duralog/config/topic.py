"""The configs of a topic: one frozen value for each log, and for each value where it came from.

A topic's configs are the broker's, overridden by the topic's own. Those that a user gives are checked strictly. Of
those that a directory has stored, unknown and invalid ones are ignored: a directory may come from another version of
Kafka, and must still open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from duralog.config.definitions import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT64_MAX,
    LIST,
    LONG,
    STRING,
    WORDS,
    Allowed,
    ConfigDef,
    Synonym,
    at_least,
    between,
    config,
    definitions_of,
    each_of,
    nearest,
    one_of,
    optional_config,
)
from duralog.config.sources import ConfigSource, Origin
from duralog.errors import InvalidConfig

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

CLEANUP_POLICY = each_of("compact", "delete")
COMPRESSION_TYPE = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVEL = Allowed("from 1 to 9, or -1", lambda level: level == -1 or 1 <= level <= 9)
LZ4_LEVEL = between(1, 17)
ZSTD_LEVEL = between(-131072, 22)
TIMESTAMP_TYPE = one_of("CreateTime", "LogAppendTime")
SMALLEST_SEGMENT = at_least(1 << 20)

_REPLICA = re.compile(r"[0-9]+:[0-9]+")
_THROTTLED = Allowed(
    "either * or partition:broker pairs",
    lambda replicas: replicas == ("*",) or all(map(_REPLICA.fullmatch, replicas)),
)


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """All configs of one topic. Times are milliseconds."""

    cleanup_policy: frozenset[str] = config(
        WORDS,
        frozenset({"delete"}),
        CLEANUP_POLICY,
        broker=("log.cleanup.policy",),
        doc="What happens to old data: `delete` whole segments by age and size, `compact` to the last record of each"
        " key, both, or neither.",
    )
    compression_type: str = config(
        STRING,
        "producer",
        COMPRESSION_TYPE,
        broker=("compression.type",),
        doc="The codec that batches are stored with; `producer` keeps each batch's own.",
    )
    compression_gzip_level: int = config(
        INT,
        -1,
        GZIP_LEVEL,
        broker=("compression.gzip.level",),
        doc="The compression level of gzip; -1 is its own default.",
    )
    compression_lz4_level: int = config(
        INT, 9, LZ4_LEVEL, broker=("compression.lz4.level",), doc="The compression level of lz4; 9 is its fast mode."
    )
    compression_zstd_level: int = config(
        INT, 3, ZSTD_LEVEL, broker=("compression.zstd.level",), doc="The compression level of zstd."
    )
    delete_retention_ms: int = config(
        LONG,
        DAY_MS,
        at_least(0),
        broker=("log.cleaner.delete.retention.ms",),
        doc="How long compaction keeps tombstones and transaction markers, so that readers see them.",
    )
    file_delete_delay_ms: int = config(
        LONG,
        MINUTE_MS,
        at_least(0),
        broker=("log.segment.delete.delay.ms",),
        doc="How long the renamed files of a deleted segment are kept for current readers.",
    )
    flush_messages: int = config(
        LONG, INT64_MAX, at_least(1), broker=("log.flush.interval.messages",), doc="Fsync after this many records."
    )
    flush_ms: int = config(
        LONG,
        INT64_MAX,
        at_least(0),
        broker=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Fsync when records have waited this long for it.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = config(
        LIST, (), _THROTTLED, doc="Kafka's: follower replicas whose replication is throttled."
    )
    index_interval_bytes: int = config(
        INT,
        4096,
        at_least(0),
        broker=("log.index.interval.bytes",),
        doc="The indexes get an entry for a batch when more than this many bytes were appended since the last entry.",
    )
    internal_segment_bytes: int | None = optional_config(
        INT,
        at_least(1),
        broker=("internal.segment.bytes",),
        doc="For tests: a `segment.bytes` that may be smaller than 1 MiB, and takes precedence.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = config(
        LIST, (), _THROTTLED, doc="Kafka's: leader replicas whose replication is throttled."
    )
    local_retention_bytes: int = config(
        LONG,
        -2,
        at_least(-2),
        broker=("log.local.retention.bytes",),
        doc="Kafka's, for tiered storage: bytes to keep on this disk; -2 means `retention.bytes`.",
    )
    local_retention_ms: int = config(
        LONG,
        -2,
        at_least(-2),
        broker=("log.local.retention.ms",),
        doc="Kafka's, for tiered storage: how long to keep data on this disk; -2 means `retention.ms`.",
    )
    max_compaction_lag_ms: int = config(
        LONG,
        INT64_MAX,
        at_least(1),
        broker=("log.cleaner.max.compaction.lag.ms",),
        doc="The longest time that a record waits for compaction, even if little is new.",
    )
    max_message_bytes: int = config(
        INT,
        1048588,
        at_least(0),
        broker=("message.max.bytes",),
        doc="The largest batch that is accepted: its compressed size, with the header.",
    )
    message_timestamp_after_max_ms: int = config(
        LONG,
        HOUR_MS,
        at_least(0),
        broker=("log.message.timestamp.after.max.ms",),
        doc="How far a record's timestamp may be ahead of the clock. Not checked with log append time.",
    )
    message_timestamp_before_max_ms: int = config(
        LONG,
        INT64_MAX,
        at_least(0),
        broker=("log.message.timestamp.before.max.ms",),
        doc="How far a record's timestamp may be behind the clock. Not checked with log append time.",
    )
    message_timestamp_type: str = config(
        STRING,
        "CreateTime",
        TIMESTAMP_TYPE,
        broker=("log.message.timestamp.type",),
        doc="Whose clock a record's timestamp comes from: the producer's, or the log's when it is appended.",
    )
    min_cleanable_dirty_ratio: float = config(
        DOUBLE,
        0.5,
        between(0, 1),
        broker=("log.cleaner.min.cleanable.ratio",),
        doc="The share of a log that must be new since the last compaction for the next one to start.",
    )
    min_compaction_lag_ms: int = config(
        LONG,
        0,
        at_least(0),
        broker=("log.cleaner.min.compaction.lag.ms",),
        doc="The minimum age of a record before it is compacted.",
    )
    min_insync_replicas: int = config(
        INT,
        1,
        at_least(1),
        broker=("min.insync.replicas",),
        doc="Kafka's: replicas that must have a record before `acks=all` is answered. One node has one.",
    )
    preallocate: bool = config(
        BOOLEAN, False, broker=("log.preallocate",), doc="Preallocate the full size of a new segment's file."
    )
    remote_log_copy_disable: bool = config(BOOLEAN, False, doc="Kafka's, for tiered storage.")
    remote_log_delete_on_disable: bool = config(BOOLEAN, False, doc="Kafka's, for tiered storage.")
    remote_storage_enable: bool = config(
        BOOLEAN, False, doc="Kafka's, for tiered storage. duralog keeps all data here."
    )
    retention_bytes: int = config(
        LONG,
        -1,
        broker=("log.retention.bytes",),
        doc="Old segments are deleted if the partition is larger than this without them; negative: never.",
    )
    retention_ms: int = config(
        LONG,
        7 * DAY_MS,
        at_least(-1),
        broker=(
            "log.retention.ms",
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
        doc="A segment is deleted when its newest record is older than this; -1: never.",
    )
    segment_bytes: int = config(
        INT,
        1 << 30,
        SMALLEST_SEGMENT,
        broker=("log.segment.bytes",),
        doc="A new segment starts when the next batch would make the file larger than this.",
    )
    segment_index_bytes: int = config(
        INT,
        10 << 20,
        at_least(4),
        broker=("log.index.size.max.bytes",),
        doc="The size of each index file of the segment that is written to. A new segment starts when one is full.",
    )
    segment_jitter_ms: int = config(
        LONG,
        0,
        at_least(0),
        broker=("log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS)),
        doc="A random time up to this is subtracted from `segment.ms`, so that not all partitions roll at once.",
    )
    segment_ms: int = config(
        LONG,
        7 * DAY_MS,
        at_least(1),
        broker=("log.roll.ms", Synonym("log.roll.hours", HOUR_MS)),
        doc="A new segment starts when the first record of the current one is older than this.",
    )
    unclean_leader_election_enable: bool = config(
        BOOLEAN,
        False,
        broker=("unclean.leader.election.enable",),
        doc="Kafka's: whether an out-of-sync replica may become leader.",
    )

    sources: Mapping[str, ConfigSource] = field(default_factory=dict, compare=False, repr=False)
    """Where the values that are not defaults came from, by name."""
    ignored: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Stored configs that have no effect here, and why."""

    def get(self, name: str) -> Any:
        """The value of a config by Kafka's name."""
        return getattr(self, topic_definition(name).attribute)

    def text(self, name: str) -> str:
        """The value of a config as Kafka writes it."""
        return topic_definition(name).text(self.get(name))

    def source(self, name: str) -> ConfigSource:
        return self.sources.get(topic_definition(name).name, ConfigSource(Origin.DEFAULT, name))

    def with_overrides(self, overrides: Mapping[str, object]) -> TopicConfig:
        """These configs, overridden by a topic's own. Refuses unknown names, invalid values and contradictions."""
        changed = self._with(parse_topic_configs(overrides))
        changed.check()
        return changed

    def with_stored(self, overrides: Mapping[str, object]) -> TopicConfig:
        """The same for what a directory has stored: invalid configs are left out, and listed in `ignored`."""
        values, ignored = {}, dict(self.ignored)
        for name, value in overrides.items():
            try:
                values.update(parse_topic_configs({name: value}))
            except InvalidConfig as error:
                ignored[name] = str(error)
        return replace(self._with(values), ignored=ignored)

    def check(self) -> None:
        """Raises InvalidConfig for values that contradict each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            names = [self.source(name).name for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")]
            raise InvalidConfig(
                f"{names[0]} ({self.min_compaction_lag_ms}) must not be larger than"
                f" {names[1]} ({self.max_compaction_lag_ms})"
            )

    def _with(self, values: Mapping[str, Any]) -> TopicConfig:
        sources = {name: ConfigSource(Origin.TOPIC, name) for name in values}
        return self.replaced(values, sources)

    def replaced(self, values: Mapping[str, Any], sources: Mapping[str, ConfigSource]) -> TopicConfig:
        """With other values, by name. They are of the right types; nothing is checked."""
        changed = replace(
            self,
            **{TOPIC_CONFIGS[name].attribute: value for name, value in values.items()},
            sources={**self.sources, **sources},
        )
        if changed.internal_segment_bytes is None:
            return changed
        return replace(
            changed,
            segment_bytes=changed.internal_segment_bytes,
            sources={**changed.sources, "segment.bytes": changed.source("internal.segment.bytes")},
        )


TOPIC_CONFIGS: Mapping[str, ConfigDef] = definitions_of(TopicConfig)
"""Every config of a topic, by name."""


def topic_definition(name: str) -> ConfigDef:
    definition = TOPIC_CONFIGS.get(name)
    if definition is not None:
        return definition
    for known in TOPIC_CONFIGS.values():
        if any(synonym.name == name for synonym in known.synonyms):
            raise InvalidConfig(f"{name} is a broker config; a topic's is called {known.name}")
    raise InvalidConfig(f"there is no topic config {name}{nearest(name, TOPIC_CONFIGS)}")


def parse_topic_configs(overrides: Mapping[str, object]) -> dict[str, Any]:
    """The values as Python values, by name. Raises InvalidConfig for an unknown name or a bad value."""
    return {name: topic_definition(name).parse(value) for name, value in overrides.items()}


def topic_config_texts(overrides: Mapping[str, object]) -> dict[str, str]:
    """The values as the cluster metadata stores them. Raises InvalidConfig like `parse_topic_configs`.

    Lists keep their order, as in Kafka, though it may not matter.
    """
    parsed = parse_topic_configs(overrides)
    return {
        name: LIST.text(LIST.parse(overrides[name]) or ()) if isinstance(value, frozenset) else definition.text(value)
        for name, value in parsed.items()
        for definition in (TOPIC_CONFIGS[name],)
    }
