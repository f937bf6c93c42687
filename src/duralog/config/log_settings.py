"""The broker configs of the logs: those that set a topic config for all topics, and those of the directory's upkeep."""

from __future__ import annotations

from dataclasses import dataclass

from duralog.config.definitions import (
    BOOLEAN,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    INT64_MAX,
    LIST,
    LONG,
    NOT_EMPTY,
    STRING,
    WORDS,
    Allowed,
    at_least,
    between,
    config,
    optional_config,
)
from duralog.config.topic import (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    DAY_MS,
    GZIP_LEVEL,
    HOUR_MS,
    LZ4_LEVEL,
    MINUTE_MS,
    SMALLEST_SEGMENT,
    TIMESTAMP_TYPE,
    ZSTD_LEVEL,
)

_LIMIT_OR_NEVER = Allowed("at least 1, or negative for no limit", lambda value: value != 0)


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Kafka's broker configs that concern logs. Times are milliseconds unless the name says otherwise."""

    log_dirs: tuple[str, ...] | None = optional_config(LIST, NOT_EMPTY, doc="The log directories.")
    metadata_log_dir: str | None = optional_config(
        STRING, doc="The directory of the metadata log, by default the first of `log.dirs`."
    )
    log_dir: tuple[str, ...] = config(
        LIST, ("/tmp/kafka-logs",), NOT_EMPTY, doc="The log directory where `log.dirs` is not given."
    )
    num_partitions: int = config(INT, 1, at_least(1), doc="Partitions of a topic that is created without a number.")

    log_segment_bytes: int = config(INT, 1 << 30, SMALLEST_SEGMENT, doc="For all topics: `segment.bytes`.")
    internal_segment_bytes: int | None = optional_config(
        INT,
        at_least(1),
        doc="For tests; only duralog has it as a broker config: `internal.segment.bytes` of all topics.",
    )
    log_roll_ms: int | None = optional_config(LONG, at_least(1), doc="For all topics: `segment.ms`.")
    log_roll_hours: int = config(INT, 168, at_least(1), doc="`segment.ms` in hours, where `log.roll.ms` is not given.")
    log_roll_jitter_ms: int | None = optional_config(LONG, at_least(0), doc="For all topics: `segment.jitter.ms`.")
    log_roll_jitter_hours: int = config(
        INT, 0, at_least(0), doc="`segment.jitter.ms` in hours, where `log.roll.jitter.ms` is not given."
    )
    log_index_size_max_bytes: int = config(INT, 10 << 20, at_least(4), doc="For all topics: `segment.index.bytes`.")
    log_index_interval_bytes: int = config(INT, 4096, at_least(0), doc="For all topics: `index.interval.bytes`.")
    log_preallocate: bool = config(BOOLEAN, False, doc="For all topics: `preallocate`.")

    log_retention_ms: int | None = optional_config(
        LONG, _LIMIT_OR_NEVER, doc="For all topics: `retention.ms`; any negative number: never."
    )
    log_retention_minutes: int | None = optional_config(
        INT, _LIMIT_OR_NEVER, doc="`retention.ms` in minutes, where `log.retention.ms` is not given."
    )
    log_retention_hours: int = config(
        INT, 168, _LIMIT_OR_NEVER, doc="`retention.ms` in hours, where neither of the two above is given."
    )
    log_retention_bytes: int = config(LONG, -1, doc="For all topics: `retention.bytes`, of each partition.")
    log_retention_check_interval_ms: int = config(
        LONG, 5 * MINUTE_MS, at_least(1), doc="How often to check for old segments."
    )
    log_local_retention_ms: int = config(LONG, -2, at_least(-2), doc="For all topics: `local.retention.ms`.")
    log_local_retention_bytes: int = config(LONG, -2, at_least(-2), doc="For all topics: `local.retention.bytes`.")
    log_segment_delete_delay_ms: int = config(
        LONG, MINUTE_MS, at_least(0), doc="For all topics: `file.delete.delay.ms`."
    )

    log_flush_interval_messages: int = config(LONG, INT64_MAX, at_least(1), doc="For all topics: `flush.messages`.")
    log_flush_interval_ms: int | None = optional_config(LONG, at_least(0), doc="For all topics: `flush.ms`.")
    log_flush_scheduler_interval_ms: int = config(
        LONG,
        INT64_MAX,
        at_least(0),
        doc="How often to check for records that are due for an fsync by `flush.ms`; also `flush.ms` for all"
        " topics, where `log.flush.interval.ms` is not given.",
    )
    log_flush_offset_checkpoint_interval_ms: int = config(
        INT, MINUTE_MS, at_least(0), doc="How often `recovery-point-offset-checkpoint` is written."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = config(
        INT, MINUTE_MS, at_least(0), doc="How often `log-start-offset-checkpoint` is written."
    )
    replica_high_watermark_checkpoint_interval_ms: int = config(
        LONG, 5000, doc="How often `replication-offset-checkpoint` is written."
    )
    log_initial_task_delay_ms: int = config(
        LONG, 30_000, at_least(0), doc="The delay after the start before periodic tasks begin."
    )
    num_recovery_threads_per_data_dir: int = config(
        INT, 2, at_least(1), doc="Threads that load and recover partitions at the start, and close them at the end."
    )
    log_dir_failure_timeout_ms: int = config(
        LONG, 30_000, at_least(1), doc="Kafka's: how long a broker waits to report a failed directory before it stops."
    )
    cordoned_log_dirs: tuple[str, ...] = config(LIST, (), doc="Directories that get no new partitions.")

    log_cleanup_policy: frozenset[str] = config(
        WORDS, frozenset({"delete"}), CLEANUP_POLICY, doc="For all topics: `cleanup.policy`."
    )
    log_cleaner_enable: bool = config(BOOLEAN, True, doc="Whether compacted topics are compacted in the background.")
    log_cleaner_threads: int = config(INT, 1, at_least(1), doc="Threads that compact.")
    log_cleaner_dedupe_buffer_size: int = config(
        LONG,
        128 << 20,
        doc="Bytes for the map of keys, over all cleaner threads. Each needs more than 1 MiB.",
    )
    log_cleaner_io_buffer_size: int = config(
        INT, 512 << 10, at_least(0), doc="Bytes of I/O buffers, over all cleaner threads."
    )
    log_cleaner_io_buffer_load_factor: float = config(DOUBLE, 0.9, doc="How full the map of keys may get.")
    log_cleaner_io_max_bytes_per_second: float = config(
        DOUBLE, DOUBLE_MAX, doc="The limit of compaction's reads and writes together, in bytes per second."
    )
    log_cleaner_backoff_ms: int = config(LONG, 15_000, at_least(0), doc="The pause when no log is due for compaction.")
    log_cleaner_min_cleanable_ratio: float = config(
        DOUBLE, 0.5, between(0, 1), doc="For all topics: `min.cleanable.dirty.ratio`."
    )
    log_cleaner_delete_retention_ms: int = config(
        LONG, DAY_MS, at_least(0), doc="For all topics: `delete.retention.ms`."
    )
    log_cleaner_min_compaction_lag_ms: int = config(
        LONG, 0, at_least(0), doc="For all topics: `min.compaction.lag.ms`."
    )
    log_cleaner_max_compaction_lag_ms: int = config(
        LONG, INT64_MAX, at_least(1), doc="For all topics: `max.compaction.lag.ms`."
    )

    compression_type: str = config(STRING, "producer", COMPRESSION_TYPE, doc="For all topics: `compression.type`.")
    compression_gzip_level: int = config(INT, -1, GZIP_LEVEL, doc="For all topics: `compression.gzip.level`.")
    compression_lz4_level: int = config(INT, 9, LZ4_LEVEL, doc="For all topics: `compression.lz4.level`.")
    compression_zstd_level: int = config(INT, 3, ZSTD_LEVEL, doc="For all topics: `compression.zstd.level`.")
    message_max_bytes: int = config(INT, 1048588, at_least(0), doc="For all topics: `max.message.bytes`.")
    log_message_timestamp_type: str = config(
        STRING, "CreateTime", TIMESTAMP_TYPE, doc="For all topics: `message.timestamp.type`."
    )
    log_message_timestamp_before_max_ms: int = config(
        LONG, INT64_MAX, at_least(0), doc="For all topics: `message.timestamp.before.max.ms`."
    )
    log_message_timestamp_after_max_ms: int = config(
        LONG, HOUR_MS, at_least(0), doc="For all topics: `message.timestamp.after.max.ms`."
    )
    min_insync_replicas: int = config(INT, 1, at_least(1), doc="For all topics: `min.insync.replicas`.")
    unclean_leader_election_enable: bool = config(
        BOOLEAN, False, doc="For all topics: `unclean.leader.election.enable`."
    )
    producer_id_expiration_ms: int = config(
        INT, DAY_MS, at_least(1), doc="The state of a producer that has been idle for this long is removed."
    )
    producer_id_expiration_check_interval_ms: int = config(
        INT, 10 * MINUTE_MS, at_least(1), doc="How often to check for idle producers."
    )
