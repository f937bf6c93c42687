from __future__ import annotations

import sys
from collections.abc import Callable

from bench import data
from bench.job import MEGABYTES, MILLION_RECORDS, PEAK_MEGABYTES, SECONDS, Contender, Job, Run, Setting, Target, Unit

_DURALOG, _KAFKA = "duralog", "Kafka"
_MILLISECONDS = Unit("ms", 1e-3, is_rate=False)
_CPU_SECONDS = Unit("CPU s/GB", is_rate=False)
_SAME_FOR_ALL = (
    "Each broker runs alone on a new directory, with one topic of 100 partitions. Kafka has the JVM options of its own "
    "start script (1 GB heap, G1). CPU seconds and memory are those of the broker."
)
_RAW = (
    "The requests are built before the clock starts. One Python process sends them and only counts the responses. A "
    "warm-up of a quarter as much again is not counted."
)


def _load(broker: str, load: str, amount: int, least: int) -> Callable[[Setting], Run]:
    """`amount` is that of a full run; a shorter one has less, but not less than `least`."""

    def prepare(setting: Setting) -> Run:
        asked = max(least, amount * min(setting.records, data.RECORDS) // data.RECORDS)
        worker = [sys.executable, "-m", "bench.workers.broker_load", broker.lower(), load]
        return Run(command=[*worker, str(setting.scratch), str(asked)])

    return prepare


def _job(
    load: str,
    title: str,
    unit: Unit,
    about: str,
    amount: int,
    *,
    least: int = 1,
    target: Target,
    rounds: int | None = None,
) -> Job:
    return Job(
        name=f"broker-{load}",
        title=title,
        unit=unit,
        about=f"{about} {_SAME_FOR_ALL}",
        contenders=tuple(
            Contender(name, _load(name, load, amount, least), is_peer=name == _KAFKA) for name in (_DURALOG, _KAFKA)
        ),
        compare_with=_KAFKA,
        targets=(target,),
        rounds=rounds,
        is_slow=True,
    )


def _times(bound: float) -> Target:
    return Target(_DURALOG, bound, than=_KAFKA)


JOBS = (
    _job(
        "producer-100",
        "Broker: producer perf, 100 B, acks=1",
        MILLION_RECORDS,
        "Kafka's `ProducerPerformance` with 3,000,000 records of 100 bytes, acks=1 and otherwise the producer's "
        "defaults. The rate is the one that the tool reports.",
        3_000_000,
        target=_times(1.4),
    ),
    _job(
        "producer-1000",
        "Broker: producer perf, 1 kB, batches of 128 KB",
        MILLION_RECORDS,
        "The same tool with 500,000 records of 1,000 bytes, acks=1 and batch.size=131072.",
        500_000,
        target=_times(1.5),
    ),
    _job(
        "producer-idempotent",
        "Broker: producer perf, idempotent, acks=all",
        MILLION_RECORDS,
        "The same tool with 500,000 records of 1,000 bytes, batch.size=131072, enable.idempotence=true and acks=all.",
        500_000,
        target=_times(1.3),
    ),
    _job(
        "consumer-100",
        "Broker: consumer perf, 100 B",
        MILLION_RECORDS,
        "Kafka's `ConsumerPerformance` reads about 3,000,000 existing records of 100 bytes in batches of 16 KB. The "
        "rate is the one that the tool reports, without the time to join the group.",
        3_000_000,
        target=_times(1.15),
    ),
    _job(
        "consumer-1000",
        "Broker: consumer perf, 1 kB",
        MILLION_RECORDS,
        "The same tool with about 500,000 records of 1,000 bytes.",
        500_000,
        target=_times(1.5),
    ),
    _job(
        "confluent",
        "Broker: confluent-kafka producer, 100 B",
        MILLION_RECORDS,
        "2,000,000 records of 100 bytes by confluent-kafka (librdkafka) with acks=1, a queue of 1,000,000 and "
        "otherwise its defaults, from the first `produce` to the end of `flush`.",
        2_000_000,
        target=_times(1.1),
    ),
    _job(
        "produce-1",
        "Broker: Produce requests of 16 KB on one connection",
        MEGABYTES,
        f"400 MB, five requests in flight, records of 100 bytes, uncompressed. {_RAW}",
        400,
        target=_times(3.0),
    ),
    _job(
        "produce-4",
        "Broker: Produce requests of 16 KB on four connections",
        MEGABYTES,
        f"400 MB, five requests in flight on each connection, records of 100 bytes, uncompressed. {_RAW}",
        400,
        target=_times(2.0),
    ),
    _job(
        "fetch",
        "Broker: Fetch requests of 1 MB",
        MEGABYTES,
        "1 GB, two requests in flight, from partitions that have been read once before. The requests are built before "
        "the clock starts; the client reads the responses and drops them.",
        1000,
        least=200,
        target=_times(2.0),
    ),
    _job(
        "latency",
        "Broker: a small Produce, p99, idle",
        _MILLISECONDS,
        "One record of 100 bytes per request, one request at a time with half a millisecond in between, 4,000 requests "
        "after a warm-up of 1,000: the 99th percentile of the time from sending to the response.",
        4000,
        least=1000,
        target=_times(2.0),
    ),
    _job(
        "latency-loaded",
        "Broker: a small Produce, p99, under 40 MB/s",
        _MILLISECONDS,
        "As `broker-latency`, while another process sends 40 MB/s in requests of 16 KB.",
        4000,
        least=1000,
        target=_times(2.0),
    ),
    _job(
        "produce-cpu",
        "Broker: CPU of producing",
        _CPU_SECONDS,
        f"CPU seconds of the broker for 1 GB in requests of 16 KB on four connections. {_RAW}",
        1000,
        least=200,
        target=_times(3.0),
        rounds=5,
    ),
    _job(
        "fetch-cpu",
        "Broker: CPU of consuming",
        _CPU_SECONDS,
        "CPU seconds of the broker for 1 GB in responses of 1 MB on one connection, after it has been read once.",
        1000,
        least=200,
        target=_times(3.0),
        rounds=5,
    ),
    _job(
        "tls-producer",
        "Broker: producer perf with TLS, 1 kB, batches of 128 KB",
        MILLION_RECORDS,
        "As `broker-producer-1000`, through a listener with TLS 1.3. The certificate has an RSA key of 2,048 bits.",
        500_000,
        target=_times(1.0),
    ),
    _job(
        "tls-consumer",
        "Broker: consumer perf with TLS, 1 kB",
        MILLION_RECORDS,
        "As `broker-consumer-1000`, through a listener with TLS 1.3.",
        500_000,
        target=_times(1.0),
    ),
    _job(
        "logins",
        "Broker: log-ins by SASL_SSL with SCRAM-SHA-256",
        Unit("log-ins/s", is_rate=True),
        "2,000 connections, one after the other: a TLS handshake with an RSA key of 2,048 bits, and a log-in. The "
        "client is one Python process, which hashes the password once.",
        2000,
        least=500,
        target=Target(_DURALOG, 200.0),
    ),
    _job(
        "latency-logins",
        "Broker: a small Produce, p99, under 200 log-ins/s",
        _MILLISECONDS,
        "As `broker-latency`, while another process connects and logs in 200 times a second by SASL_SSL with SCRAM.",
        4000,
        least=1000,
        target=_times(1.0),
    ),
    _job(
        "start",
        "Broker: start to first response",
        SECONDS,
        "From the start of the process to its response to ApiVersions, on a directory with 100 empty partitions, after "
        "a clean shutdown.",
        1,
        target=Target(_DURALOG, 1.0),
        rounds=2,
    ),
    _job(
        "memory",
        "Broker: memory after 1 GB",
        PEAK_MEGABYTES,
        "Resident memory of the broker, mapped files included, after 1 GB was produced on four connections and read "
        "back.",
        1000,
        least=1000,
        target=Target(_DURALOG, 200.0),
        rounds=1,
    ),
)
