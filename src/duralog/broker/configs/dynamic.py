"""Which broker configs may be changed while the broker runs, by Kafka's rules, and why a change is refused.

Values are stored in the cluster metadata, even if duralog does not use them: Kafka, started on the directory, does. An
unknown name is kept as well, as in Kafka, where plugins may read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from duralog.broker.configs.faults import kafka_only_fault, value_fault
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.wire import error_codes as codes
from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.config.kafka_only_configs import KAFKA_ONLY_CONFIGS
from duralog.config.ways_in import OVERRIDES, PER_ADDRESS

_DYNAMIC = """
background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers cordoned.log.dirs follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms
group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms group.streams.assignment.interval.ms
listener.security.protocol.map listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.flush.interval.messages
log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes log.local.retention.bytes
log.local.retention.ms log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
log.message.timestamp.type log.preallocate log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
max.connections.per.ip.overrides message.max.bytes metric.reporters min.insync.replicas num.io.threads
num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers principal.builder.class
producer.id.expiration.ms remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size remote.log.reader.threads
sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol
share.coordinator.cached.buffer.max.bytes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
ssl.truststore.location ssl.truststore.password ssl.truststore.type transaction.partition.verification.enable
unclean.leader.election.enable
"""
_ONE_BROKERS = """
cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class sasl.enabled.mechanisms
sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol ssl.cipher.suites ssl.client.auth
ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm
"""
_LISTENERS = """
ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""

DYNAMIC_CONFIGS = frozenset(_DYNAMIC.split())
"""Those that Kafka changes while it runs."""
ONE_BROKERS_CONFIGS = frozenset(_ONE_BROKERS.split())
"""Those that cannot be set for all brokers at once."""
LISTENERS_CONFIGS = frozenset(_LISTENERS.split())
"""Those that can only be set for one listener."""

_MIN_IN_SYNC = "min.insync.replicas"
_CLEANER_MEMORY = "log.cleaner.dedupe.buffer.size"
_CLEANER_THREADS = "log.cleaner.threads"
_LEAST_MEMORY = 1 << 20
_CONFIG_EXCEPTION = "org.apache.kafka.common.config.ConfigException"
_NO_NAME = "for configuration Invalid dynamic configuration"
"""Kafka passes one exception as the value of another, and its message as the name."""
_BOUND_AT_START = frozenset({"listeners", "listener.security.protocol.map"})
"""Dynamic in Kafka, which opens and closes ports then. Here that happens at the start."""
CHANGEABLE_CONFIGS = DYNAMIC_CONFIGS - _BOUND_AT_START
"""All others are described as read-only: clients offer no change of them."""
_NEVER_ZERO = ("max.connections", "max.connection.creation.rate")
"""Their definitions allow 0, which would let no client in."""
_THREAD_COUNTS = (
    "num.network.threads",
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.")
_OF_A_LISTENER = (*_NEVER_ZERO, "num.network.threads")
"""Those that can also be set for one listener."""


def broker_configs_fault(
    changes: Mapping[str, str | None],
    config: BrokerConfig,
    asked_for: BrokerConfig,
    *,
    for_all: bool,
    has_eligible_replicas: bool,
) -> Fault | None:
    """Why these configs of a broker, or of all of them, cannot be set, or reset with None.

    `config` is in force, `asked_for` is what would be. Kafka's feature of eligible leader replicas wants
    `min.insync.replicas` set for all brokers, and for none alone.
    """
    known = [name for name in changes if name in BROKER_CONFIGS or name in KAFKA_ONLY_CONFIGS]
    fixed = [name for name in known if name not in DYNAMIC_CONFIGS]
    if fixed:
        return _refused("Cannot update these configs dynamically", fixed)
    unlisted = [name for name in known if name in LISTENERS_CONFIGS]
    if unlisted:
        return _refused(
            "These security configs can be dynamically updated only per-listener using the listener prefix", unlisted
        )
    single = [name for name in known if for_all and name in ONE_BROKERS_CONFIGS]
    if single:
        return _refused("Cannot update these configs at default cluster level, broker id must be specified", single)
    bound = [name for name in known if name in _BOUND_AT_START and changes[name] is not None]
    if bound:
        return _refused("Cannot update these configs dynamically", bound)
    reason = (
        _values_fault(changes)
        or _together_fault(changes.keys(), asked_for)
        or _reconfiguring_fault(changes, config, asked_for)
    )
    if reason is not None:
        return Fault(codes.INVALID_REQUEST, reason)
    if not has_eligible_replicas or _MIN_IN_SYNC not in changes:
        return None
    if not for_all:
        return Fault(codes.INVALID_CONFIG, f"Broker-level {_MIN_IN_SYNC} cannot be altered while ELR is enabled.")
    if changes[_MIN_IN_SYNC] is None:
        return Fault(codes.INVALID_CONFIG, f"Cluster-level {_MIN_IN_SYNC} cannot be removed while ELR is enabled.")
    return None


def _refused(reason: str, names: list[str]) -> Fault:
    return Fault(codes.INVALID_REQUEST, f"{reason}: [{', '.join(names)}]")


def _values_fault(changes: Mapping[str, str | None]) -> str | None:
    """Why a value is not allowed, by the config's definition alone."""
    for name, text in changes.items():
        plain = _plain_name(name)
        fault = None
        if text is not None and plain in BROKER_CONFIGS:
            fault = value_fault(BROKER_CONFIGS[plain], text)
        elif text is not None and plain in KAFKA_ONLY_CONFIGS:
            fault = kafka_only_fault(plain, text)
        if fault is not None:
            return fault
    return None


def _plain_name(name: str) -> str:
    """Without the prefix of a listener, where the config may have one."""
    plain = _LISTENER_PREFIX.sub("", name, count=1)
    return plain if plain in _OF_A_LISTENER else name


def _together_fault(names: Set[str], asked_for: BrokerConfig) -> str | None:
    """Why the configs that are changed are not allowed together with the others."""
    memory = asked_for.log_cleaner_dedupe_buffer_size // asked_for.log_cleaner_threads
    if memory <= _LEAST_MEMORY and names & {_CLEANER_MEMORY, _CLEANER_THREADS}:
        return f"requirement failed: {_CLEANER_MEMORY} must be at least 1MB per cleaner thread."
    has_no_addresses = asked_for.max_connections_per_ip == 0 and not asked_for.max_connections_per_ip_overrides
    if has_no_addresses and names & {PER_ADDRESS, OVERRIDES}:
        return f"requirement failed: {PER_ADDRESS} can be set to zero only if {OVERRIDES} property is set."
    return None


def _reconfiguring_fault(
    changes: Mapping[str, str | None], config: BrokerConfig, asked_for: BrokerConfig
) -> str | None:
    """Refusals by the reconfigurable parts of a running Kafka."""
    for name, text in changes.items():
        if text is not None and _plain_name(name) in _NEVER_ZERO and int(text) == 0:
            return _exception(f"Invalid {_plain_name(name)} 0")
    for name in _THREAD_COUNTS:
        text = changes.get(name)
        if text is not None:
            now = config.get(name) if name in BROKER_CONFIGS else int(KAFKA_ONLY_CONFIGS[name].default or 0)
            wanted = int(text)
            begin = f"Dynamic thread count update validation failed for {name}={wanted}, value should"
            if wanted < now // 2:
                return _exception(f"{begin} be at least half the current value {now}")
            if wanted > now * 2:
                return _exception(f"{begin} not be greater than double the current value {now}")
    threads, wanted = config.log_cleaner_threads, asked_for.log_cleaner_threads
    if _CLEANER_THREADS in changes and not threads // 2 <= wanted <= threads * 2:
        step = "increased to more than double" if wanted > threads else "reduced to less than half"
        return _exception(f"Log cleaner threads cannot be {step} the current value {threads}")
    return None


def _exception(reason: str) -> str:
    return f"Invalid value {_CONFIG_EXCEPTION}: {reason} {_NO_NAME}"
