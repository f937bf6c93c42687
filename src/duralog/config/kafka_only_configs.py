"""The broker configs of Kafka 4.3.1 that have no effect in duralog, with their types and defaults.

They are accepted in a `server.properties`, and DescribeConfigs lists them, so that a tool that shows or compares
configs finds all of Kafka's names. None of them has an effect here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# A name, its type, and its default after an equals sign, if it has one.
_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms int=100
add.partitions.to.txn.retry.backoff.ms int=20
alter.config.policy.class.name class
alter.log.dirs.replication.quota.window.num int=11
alter.log.dirs.replication.quota.window.size.seconds int=1
auto.leader.rebalance.enable boolean=true
broker.heartbeat.interval.ms int=2000
broker.id int=-1
broker.session.timeout.ms int=9000
client.quota.callback.class class
config.providers list=
controlled.shutdown.enable boolean=true
controller.quorum.append.linger.ms int=25
controller.quorum.auto.join.enable boolean=false
controller.quorum.bootstrap.servers list=
controller.quorum.election.backoff.max.ms int=1000
controller.quorum.election.timeout.ms int=1000
controller.quorum.fetch.max.bytes int=1048576
controller.quorum.fetch.snapshot.max.bytes int=1048576
controller.quorum.fetch.timeout.ms int=2000
controller.quorum.request.timeout.ms int=2000
controller.quorum.retry.backoff.ms int=20
controller.quorum.voters list=
controller.socket.timeout.ms int=30000
create.topic.policy.class.name class
delegation.token.expiry.check.interval.ms long=3600000
delegation.token.expiry.time.ms long=86400000
delegation.token.max.lifetime.ms long=604800000
delegation.token.secret.key password
delete.records.purgatory.purge.interval.requests int=1
early.start.listeners list
fetch.purgatory.purge.interval.requests int=1000
follower.fetch.last.tiered.offset.enable boolean=false
group.coordinator.append.linger.ms int=-1
group.coordinator.background.threads int=2
group.coordinator.cached.buffer.max.bytes int=1048588
group.coordinator.rebalance.protocols list=classic,consumer,streams
group.coordinator.threads int=4
group.share.assignment.interval.ms int=1000
group.share.assignors list=simple
group.share.delivery.count.limit int=5
group.share.heartbeat.interval.ms int=5000
group.share.max.assignment.interval.ms int=15000
group.share.max.delivery.count.limit int=10
group.share.max.heartbeat.interval.ms int=15000
group.share.max.partition.max.record.locks int=4000
group.share.max.record.lock.duration.ms int=60000
group.share.max.session.timeout.ms int=60000
group.share.max.share.sessions int=2000
group.share.max.size int=200
group.share.min.assignment.interval.ms int=0
group.share.min.delivery.count.limit int=2
group.share.min.heartbeat.interval.ms int=5000
group.share.min.partition.max.record.locks int=100
group.share.min.record.lock.duration.ms int=15000
group.share.min.session.timeout.ms int=45000
group.share.partition.max.record.locks int=2000
group.share.record.lock.duration.ms int=30000
group.share.session.timeout.ms int=45000
group.streams.assignment.interval.ms int=1000
group.streams.heartbeat.interval.ms int=5000
group.streams.initial.rebalance.delay.ms int=3000
group.streams.max.assignment.interval.ms int=15000
group.streams.max.heartbeat.interval.ms int=15000
group.streams.max.session.timeout.ms int=60000
group.streams.max.size int=2147483647
group.streams.max.standby.replicas int=2
group.streams.min.assignment.interval.ms int=0
group.streams.min.heartbeat.interval.ms int=5000
group.streams.min.session.timeout.ms int=45000
group.streams.num.standby.replicas int=0
group.streams.session.timeout.ms int=45000
initial.broker.registration.timeout.ms int=60000
inter.broker.listener.name string
kafka.metrics.polling.interval.secs int=10
kafka.metrics.reporters list=
leader.imbalance.check.interval.seconds long=300
max.connection.creation.rate int=2147483647
max.request.partition.size.limit int=2000
metadata.log.max.record.bytes.between.snapshots long=20971520
metadata.log.max.snapshot.interval.ms long=3600000
metadata.log.segment.bytes int=1073741824
metadata.log.segment.ms long=604800000
metadata.max.idle.interval.ms int=500
metadata.max.retention.bytes long=104857600
metadata.max.retention.ms long=604800000
metric.reporters list=org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int=2
metrics.recording.level string=INFO
metrics.sample.window.ms long=30000
num.replica.alter.log.dirs.threads int
num.replica.fetchers int=1
offsets.commit.timeout.ms int=5000
offsets.load.buffer.size int=5242880
principal.builder.class class=org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles list
producer.purgatory.purge.interval.requests int=1000
remote.fetch.max.wait.ms int=500
remote.list.offsets.request.timeout.ms long=30000
remote.log.index.file.cache.total.size.bytes long=1073741824
remote.log.manager.copier.thread.pool.size int=10
remote.log.manager.copy.max.bytes.per.second long=9223372036854775807
remote.log.manager.copy.quota.window.num int=11
remote.log.manager.copy.quota.window.size.seconds int=1
remote.log.manager.expiration.thread.pool.size int=10
remote.log.manager.fetch.max.bytes.per.second long=9223372036854775807
remote.log.manager.fetch.quota.window.num int=11
remote.log.manager.fetch.quota.window.size.seconds int=1
remote.log.manager.follower.thread.pool.size int=2
remote.log.manager.task.interval.ms long=30000
remote.log.manager.thread.pool.size int=2
remote.log.metadata.custom.metadata.max.bytes int=128
remote.log.metadata.manager.class.path string
remote.log.metadata.manager.impl.prefix string=rlmm.config.
remote.log.metadata.manager.listener.name string
remote.log.reader.max.pending.tasks int=100
remote.log.reader.threads int=10
remote.log.storage.manager.class.name string
remote.log.storage.manager.class.path string
remote.log.storage.manager.impl.prefix string=rsm.config.
remote.log.storage.system.enable boolean=false
replica.fetch.backoff.ms int=1000
replica.fetch.max.bytes int=1048576
replica.fetch.min.bytes int=1
replica.fetch.response.max.bytes int=10485760
replica.fetch.wait.max.ms int=500
replica.lag.time.max.ms long=30000
replica.selector.class string
replica.socket.receive.buffer.bytes int=65536
replica.socket.timeout.ms int=30000
replication.quota.window.num int=11
replication.quota.window.size.seconds int=1
request.timeout.ms int=30000
sasl.client.callback.handler.class class
sasl.kerberos.kinit.cmd string=/usr/bin/kinit
sasl.kerberos.min.time.before.relogin long=60000
sasl.kerberos.principal.to.local.rules list=DEFAULT
sasl.kerberos.service.name string
sasl.kerberos.ticket.renew.jitter double=0.05
sasl.kerberos.ticket.renew.window.factor double=0.8
sasl.login.callback.handler.class class
sasl.login.class class
sasl.login.connect.timeout.ms int
sasl.login.read.timeout.ms int
sasl.login.refresh.buffer.seconds short=300
sasl.login.refresh.min.period.seconds short=60
sasl.login.refresh.window.factor double=0.8
sasl.login.refresh.window.jitter double=0.05
sasl.login.retry.backoff.max.ms long=10000
sasl.login.retry.backoff.ms long=100
sasl.mechanism.controller.protocol string=GSSAPI
sasl.mechanism.inter.broker.protocol string=GSSAPI
sasl.oauthbearer.assertion.algorithm string=RS256
sasl.oauthbearer.assertion.claim.aud string
sasl.oauthbearer.assertion.claim.exp.seconds int=300
sasl.oauthbearer.assertion.claim.iss string
sasl.oauthbearer.assertion.claim.jti.include boolean=false
sasl.oauthbearer.assertion.claim.nbf.seconds int=60
sasl.oauthbearer.assertion.claim.sub string
sasl.oauthbearer.assertion.file string
sasl.oauthbearer.assertion.private.key.file string
sasl.oauthbearer.assertion.private.key.passphrase password
sasl.oauthbearer.assertion.template.file string
sasl.oauthbearer.client.credentials.client.id string
sasl.oauthbearer.client.credentials.client.secret password
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long=10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long=100
sasl.oauthbearer.jwt.retriever.class class=org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class=org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope string
sasl.oauthbearer.token.endpoint.url string
security.inter.broker.protocol string=PLAINTEXT
security.providers string
share.coordinator.append.linger.ms int=-1
share.coordinator.cached.buffer.max.bytes int=1048588
share.coordinator.load.buffer.size int=5242880
share.coordinator.snapshot.update.records.per.snapshot int=500
share.coordinator.state.topic.compression.codec int=0
share.coordinator.state.topic.min.isr short=2
share.coordinator.state.topic.num.partitions int=50
share.coordinator.state.topic.replication.factor short=3
share.coordinator.state.topic.segment.bytes int=104857600
share.coordinator.threads int=1
share.coordinator.write.timeout.ms int=5000
share.fetch.purgatory.purge.interval.requests int=1000
socket.connection.setup.timeout.max.ms long=30000
socket.connection.setup.timeout.ms long=10000
ssl.allow.dn.changes boolean=false
ssl.allow.san.changes boolean=false
ssl.endpoint.identification.algorithm string=https
ssl.engine.factory.class class
ssl.keymanager.algorithm string=SunX509
ssl.protocol string=TLSv1.3
ssl.provider string
ssl.secure.random.implementation string
ssl.trustmanager.algorithm string=PKIX
telemetry.max.bytes int=1048576
transaction.state.log.load.buffer.size int=5242880
transaction.two.phase.commit.enable boolean=false
"""
_METADATA_MANAGER = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


_INTERNAL = """
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
group.share.initialize.retry.interval.ms group.share.persister.class.name
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
internal.metadata.max.batch.size.in.bytes remote.log.index.file.cache.ttl.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter server.max.startup.time.ms
share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.state.topic.prune.interval.ms
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
"""
"""Kafka reads these, but DescribeConfigs does not list them."""
_PREFIXES = ("listener.name.", "rsm.config.", "rlmm.config.", "config.providers")
"""Of listeners, of the two plugins of tiered storage, and of the plugins that fetch values from elsewhere."""


class KafkaOnlyConfig(NamedTuple):
    kind: str
    default: str | None


def _parsed() -> dict[str, KafkaOnlyConfig]:
    table = {"remote.log.metadata.manager.class.name": KafkaOnlyConfig("string", _METADATA_MANAGER)}
    for line in _TABLE.strip().split("\n"):
        name, _, rest = line.partition(" ")
        kind, equals, default = rest.partition("=")
        table[name] = KafkaOnlyConfig(kind, default if equals else None)
    return table


KAFKA_ONLY_CONFIGS: Mapping[str, KafkaOnlyConfig] = _parsed()
"""Those that DescribeConfigs lists."""
KAFKA_NAMES = frozenset((*KAFKA_ONLY_CONFIGS, *_INTERNAL.split()))


def is_known_to_kafka(name: str) -> bool:
    return name in KAFKA_NAMES or name.startswith(_PREFIXES)
