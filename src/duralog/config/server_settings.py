"""The broker configs of the server: its identity, its connections, its groups and its transactions."""

from __future__ import annotations

from dataclasses import dataclass

from duralog.config.connection_overrides import is_connection_overrides
from duralog.config.definitions import (
    ANY,
    BOOLEAN,
    INT,
    INT32_MAX,
    LIST,
    LONG,
    NOT_EMPTY,
    SHORT,
    STRING,
    Allowed,
    at_least,
    between,
    config,
    one_of_any_case,
    optional_config,
)
from duralog.config.security_settings import SecuritySettings
from duralog.config.topic import DAY_MS, HOUR_MS, MINUTE_MS

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_AUTHORIZERS = Allowed(f"empty or {STANDARD_AUTHORIZER}", lambda text: text in ("", STANDARD_AUTHORIZER))
_PRINCIPALS = Allowed(
    "of the form User:NAME;User:NAME", lambda text: all(":" in each for each in text.split(";") if each.strip())
)
_NUMBERS_OF_ADDRESSES = Allowed("of the form ADDRESS:NUMBER,ADDRESS:NUMBER", is_connection_overrides)


@dataclass(frozen=True, kw_only=True)
class ServerSettings(SecuritySettings):
    """Kafka's broker configs beyond the logs. Times are milliseconds unless the name says otherwise."""

    node_id: int | None = optional_config(
        INT, at_least(0), doc="The id of this node in a new directory. Kafka requires it."
    )
    broker_rack: str | None = optional_config(STRING, ANY, doc="The rack of this node, which clients see.")
    auto_create_topics_enable: bool = config(
        BOOLEAN, True, doc="Whether a missing topic is created when a client requests it."
    )
    delete_topic_enable: bool = config(BOOLEAN, True, doc="Whether clients may delete topics.")
    default_replication_factor: int = config(INT, 1, doc="Replicas of a new topic. One node can have one.")

    listeners: tuple[str, ...] = config(
        LIST, ("PLAINTEXT://:9092",), NOT_EMPTY, doc="The addresses to listen on, with the protocol of each."
    )
    advertised_listeners: tuple[str, ...] | None = optional_config(
        LIST, NOT_EMPTY, doc="The addresses that clients connect to, if they differ from `listeners`."
    )
    listener_security_protocol_map: str = config(
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="The security protocol of each listener name.",
    )
    controller_listener_names: tuple[str, ...] | None = optional_config(
        LIST, NOT_EMPTY, doc="Listeners of Kafka's controllers, which are not opened: duralog has none."
    )
    num_network_threads: int = config(INT, 3, at_least(1), doc="Kafka's: threads that read and write sockets.")
    num_io_threads: int = config(INT, 8, at_least(1), doc="Kafka's: threads that handle requests.")
    background_threads: int = config(INT, 10, at_least(1), doc="Kafka's: threads for periodic work.")
    queued_max_requests: int = config(INT, 500, at_least(1), doc="Requests that may be queued before reading stops.")
    queued_max_request_bytes: int = config(
        LONG,
        -1,
        doc="Bytes that requests and responses of all connections may hold before reading stops. 0 or less: an eighth"
        " of the machine's memory, and at least `socket.request.max.bytes`.",
    )
    quota_window_num: int = config(INT, 11, at_least(1), doc="Windows over which a client's rates are measured.")
    quota_window_size_seconds: int = config(INT, 1, at_least(1), doc="The length of each window.")
    controller_quota_window_num: int = config(
        INT, 11, at_least(1), doc="Windows whose `controller_mutation_rate` a client may use at once."
    )
    controller_quota_window_size_seconds: int = config(INT, 1, at_least(1), doc="The length of each window.")
    socket_request_max_bytes: int = config(
        INT, 100 << 20, at_least(1), doc="The largest request that is read. Less than 512 would lock out all clients."
    )
    connections_max_idle_ms: int = config(
        LONG,
        10 * MINUTE_MS,
        doc="A connection that is silent this long is closed; negative: never. 0 to 100 would lock out all clients.",
    )
    max_connections: int = config(
        INT, INT32_MAX, at_least(0), doc="Connections at the same time. 0 would lock out all clients."
    )
    max_connections_per_ip: int = config(
        INT, INT32_MAX, at_least(0), doc="Connections from one address. 0 needs an address in the overrides."
    )
    max_connections_per_ip_overrides: str = config(
        STRING,
        "",
        _NUMBERS_OF_ADDRESSES,
        doc="Overrides for single addresses or host names: `127.0.0.1:100,10.0.0.1:5`.",
    )
    socket_listen_backlog_size: int = config(INT, 50, at_least(1), doc="Connections that wait to be accepted.")
    socket_send_buffer_bytes: int = config(
        INT, 100 << 10, doc="SO_SNDBUF of a connection. By default, the kernel tunes the size."
    )
    socket_receive_buffer_bytes: int = config(
        INT, 100 << 10, doc="SO_RCVBUF of a connection. By default, the kernel tunes the size."
    )
    fetch_max_bytes: int = config(INT, 55 << 20, at_least(1024), doc="The most bytes of one Fetch response.")
    max_incremental_fetch_session_cache_slots: int = config(
        INT, 1000, at_least(0), doc="The size of the cache of fetch sessions."
    )

    group_min_session_timeout_ms: int = config(INT, 6000, doc="The shortest session timeout of a classic group.")
    group_max_session_timeout_ms: int = config(
        INT, 30 * MINUTE_MS, doc="The longest session timeout of a classic group."
    )
    group_initial_rebalance_delay_ms: int = config(
        INT, 3000, doc="How long a new group waits for more members before its first rebalance."
    )
    group_max_size: int = config(INT, INT32_MAX, at_least(1), doc="Members of a classic group.")
    group_consumer_session_timeout_ms: int = config(
        INT, 45_000, at_least(1), doc="A member of a consumer group that is silent this long is removed."
    )
    group_consumer_min_session_timeout_ms: int = config(
        INT, 45_000, at_least(1), doc="The shortest session timeout that may be set."
    )
    group_consumer_max_session_timeout_ms: int = config(
        INT, 60_000, at_least(1), doc="The longest session timeout that may be set."
    )
    group_consumer_heartbeat_interval_ms: int = config(
        INT, 5000, at_least(1), doc="The heartbeat interval of members of a consumer group."
    )
    group_consumer_min_heartbeat_interval_ms: int = config(
        INT, 5000, at_least(1), doc="The shortest heartbeat interval that may be set."
    )
    group_consumer_max_heartbeat_interval_ms: int = config(
        INT, 15_000, at_least(1), doc="The longest heartbeat interval that may be set."
    )
    group_consumer_max_size: int = config(INT, INT32_MAX, at_least(1), doc="Members of a consumer group.")
    group_consumer_assignors: tuple[str, ...] = config(
        LIST, ("uniform", "range"), NOT_EMPTY, doc="The assignors of partitions; the first is the default."
    )

    group_consumer_migration_policy: str = config(
        STRING,
        "bidirectional",
        one_of_any_case("upgrade", "downgrade", "bidirectional", "disabled"),
        doc="Which groups may change between the classic and the consumer protocol.",
    )
    group_consumer_assignment_interval_ms: int = config(
        INT, 1000, at_least(0), doc="The least time between two assignments of a consumer group."
    )
    group_consumer_min_assignment_interval_ms: int = config(
        INT, 0, at_least(0), doc="The shortest assignment interval that may be set."
    )
    group_consumer_max_assignment_interval_ms: int = config(
        INT, 15_000, at_least(0), doc="The longest assignment interval that may be set."
    )
    group_consumer_regex_refresh_interval_ms: int = config(
        INT, 10 * MINUTE_MS, at_least(10_000), doc="How often topic patterns are matched against the topics again."
    )

    offset_metadata_max_bytes: int = config(INT, 4096, doc="The longest metadata text of a committed offset.")
    offsets_topic_num_partitions: int = config(INT, 50, at_least(1), doc="Partitions of `__consumer_offsets`.")
    offsets_topic_segment_bytes: int = config(INT, 100 << 20, at_least(1), doc="Its `segment.bytes`.")
    offsets_topic_replication_factor: int = config(SHORT, 3, at_least(1), doc="Its replicas. One node has one.")
    offsets_topic_compression_codec: int = config(
        INT, 0, between(0, 4), doc="The number of the codec it is written with."
    )
    offsets_retention_minutes: int = config(
        INT, 7 * DAY_MS // MINUTE_MS, at_least(1), doc="Minutes that the offsets of an empty group are kept."
    )
    offsets_retention_check_interval_ms: int = config(
        LONG, 10 * MINUTE_MS, at_least(1), doc="How often to check for expired offsets."
    )

    transaction_max_timeout_ms: int = config(
        INT, 15 * MINUTE_MS, at_least(1), doc="The longest timeout that a transactional producer may request."
    )
    transaction_partition_verification_enable: bool = config(
        BOOLEAN, True, doc="Whether a transactional batch is refused if its transaction does not include the partition."
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = config(
        INT, 10_000, at_least(1), doc="How often to check for transactions past their timeout."
    )
    transactional_id_expiration_ms: int = config(
        INT, 7 * DAY_MS, at_least(1), doc="A transactional id that is unused this long is removed."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = config(
        INT, HOUR_MS, at_least(1), doc="How often to check for unused transactional ids."
    )
    transaction_state_log_num_partitions: int = config(INT, 50, at_least(1), doc="Partitions of `__transaction_state`.")
    transaction_state_log_segment_bytes: int = config(INT, 100 << 20, at_least(1), doc="Its `segment.bytes`.")
    transaction_state_log_replication_factor: int = config(SHORT, 3, at_least(1), doc="Its replicas. One node has one.")
    transaction_state_log_min_isr: int = config(INT, 2, at_least(1), doc="Its `min.insync.replicas`.")

    authorizer_class_name: str = config(
        STRING,
        "",
        _AUTHORIZERS,
        doc=f"`{STANDARD_AUTHORIZER}` checks every request by the ACLs. Empty: everyone may do everything.",
    )
    super_users: str = config(
        STRING, "", _PRINCIPALS, doc="Principals that may do everything, regardless of ACLs: `User:alice;User:bob`."
    )
    allow_everyone_if_no_acl_found: bool = config(
        BOOLEAN, False, doc="Whether everyone may use a resource that no ACL names. Otherwise only `super.users` may."
    )
    duralog_audit_log_file: str = config(
        STRING,
        "",
        doc="A file for the audit log: changes, one JSON line each. Refusals and failed log-ins go to"
        " `NAME-refusals.EXT` next to it. Empty: none is written.",
    )
    duralog_audit_log_max_bytes: int = config(
        LONG, 100 << 20, at_least(1), doc="Each file of the audit log is rotated before it exceeds this."
    )
    duralog_audit_log_max_files: int = config(
        INT, 10, at_least(0), doc="The number of rotated files that are kept for each audit log file."
    )
