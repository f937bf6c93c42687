"""The options of Spark's Kafka connector that are for its consumer, and mean nothing without a broker.

A user who switches a working query to this source changes the format and the path, and nothing else. So these are
accepted, and have no effect. Those that would change what a query reads are used (`kafka.isolation.level`) or refused,
as the connector refuses them. A name that no consumer has is refused, too: it may be a misspelt one that matters.
"""

from __future__ import annotations

from collections.abc import Mapping

from duralog.config.definitions import nearest
from duralog.spark.option_text import InvalidOption

KAFKA_PREFIX = "kafka."
ISOLATION_LEVEL = "kafka.isolation.level"

WITHOUT_EFFECT = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxRecordsPerPartition",
)
"""They limit or name what a consumer does; the rows are the same without them."""

_REFUSED = {
    "kafka.auto.offset.reset": "give startingOffsets, which says where a new query begins",
    "kafka.key.deserializer": "keys come as binary: cast or decode the column",
    "kafka.value.deserializer": "values come as binary: cast or decode the column",
    "kafka.enable.auto.commit": "the checkpoint of a streaming query keeps its offsets",
    "kafka.interceptor.classes": "there is no consumer that could call them",
}
_CONSUMER_CONFIGS = (
    "kafka.allow.auto.create.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.auto.include.jmx.reporter",
    "kafka.bootstrap.servers",
    "kafka.check.crcs",
    "kafka.client.dns.lookup",
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.config.providers",
    "kafka.connections.max.idle.ms",
    "kafka.default.api.timeout.ms",
    "kafka.enable.metrics.push",
    "kafka.exclude.internal.topics",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.group.id",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.group.remote.assignor",
    "kafka.heartbeat.interval.ms",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.recovery.rebootstrap.trigger.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.partition.assignment.strategy",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.security.protocol",
    "kafka.security.providers",
    "kafka.send.buffer.bytes",
    "kafka.session.timeout.ms",
    "kafka.share.acknowledgement.mode",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
)
_PREFIXES = ("kafka.sasl.", "kafka.ssl.")


def check_consumer_options(options: Mapping[str, str]) -> None:
    """The options that begin with `kafka.`: those of a consumer, and none that changes the rows."""
    given = [name for name in options if name.lower().startswith(KAFKA_PREFIX)]
    for name in given:
        reason = _REFUSED.get(name.lower())
        if reason is not None:
            raise InvalidOption(f"option {name.lower()} is not for reading with Spark: {reason}")
        if name.lower() not in _CONSUMER_CONFIGS and not name.lower().startswith(_PREFIXES):
            near = nearest(name.lower(), _CONSUMER_CONFIGS)
            raise InvalidOption(f"there is no option {name}, Kafka's consumer has no such config{near}")
