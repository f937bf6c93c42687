"""The options of a write that begin with `kafka.`: the configs of Kafka's producer, as Spark's Kafka sink takes them.

A user who switches a working write to this sink changes the format and the path, and nothing else. So configs that only
tune a producer are accepted, and have no effect without a broker. Those that would change partitions or guarantees of a
write are refused. A name that no producer has is refused, too: it may be a misspelt one that matters. With a broker,
the client knows more names than Kafka's own producer, so the client checks them (`broker_sink`), before the first task.
"""

from __future__ import annotations

from collections.abc import Mapping

from duralog.config.definitions import nearest
from duralog.spark.option_text import InvalidOption, refused

KAFKA_PREFIX = "kafka."
BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"

_REFUSED = {
    "key.serializer": "keys are written as the bytes that they are",
    "value.serializer": "values are written as the bytes that they are",
    "transactional.id": "the write chooses it",
    "transaction.two.phase.commit.enable": "the write chooses it",
    "partitioner.class": "rows go to the partition of the column partition, or of their key",
    "partitioner.ignore.keys": "rows go to the partition of the column partition, or of their key",
    "interceptor.classes": "there is no Java producer that could call them",
}
_PROMISED = {"acks": ("all", "-1"), "enable.idempotence": ("true",)}
"""What every write guarantees; it cannot be set to less."""
_WITHOUT_EFFECT = (
    "buffer.memory",
    "config.providers",
    "max.block.ms",
    "max.request.size",
    "metadata.max.idle.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "receive.buffer.bytes",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
)
"""Of the Java producer alone: the client that sends rows to a broker has no such configs."""
_PASSED_ON = (
    "client.dns.lookup",
    "client.id",
    "connections.max.idle.ms",
    "delivery.timeout.ms",
    "enable.metrics.push",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "transaction.timeout.ms",
)
_OPTIONS_OF_THE_WRITE = (
    "batch.size",
    "bootstrap.servers",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
)
"""`write_options` reads them: they are for writes to files as well."""
_PREFIXES = ("sasl.", "ssl.")

PRODUCER_CONFIGS = (*_REFUSED, *_PROMISED, *_WITHOUT_EFFECT, *_PASSED_ON, *_OPTIONS_OF_THE_WRITE)
"""All that Kafka's producer has, but for those of `sasl.` and `ssl.`."""


def producer_configs(given: Mapping[str, str]) -> dict[str, str]:
    """What is for the client that sends rows to a broker, under Kafka's names. REQUIRES: lower-case names."""
    configs = {name[len(KAFKA_PREFIX) :]: value for name, value in given.items() if name.startswith(KAFKA_PREFIX)}
    for name, value in configs.items():
        if name in _REFUSED:
            raise InvalidOption(f"option {KAFKA_PREFIX}{name} cannot be set: {_REFUSED[name]}")
        if name in _PROMISED and value.strip().lower() not in _PROMISED[name]:
            raise refused(f"{KAFKA_PREFIX}{name}", value, f"{' or '.join(_PROMISED[name])}, as every write has it")
        if BOOTSTRAP_SERVERS not in given and name not in PRODUCER_CONFIGS and not name.startswith(_PREFIXES):
            near = nearest(name, PRODUCER_CONFIGS)
            raise InvalidOption(f"there is no option {KAFKA_PREFIX}{name}, Kafka's producer has no such config{near}")
    return {
        name: value
        for name, value in configs.items()
        if name not in (*_PROMISED, *_WITHOUT_EFFECT, *_OPTIONS_OF_THE_WRITE)
    }
