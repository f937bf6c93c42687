from __future__ import annotations

import sys
from collections.abc import Callable

from bench import data
from bench.job import MEGABYTES, MILLION_RECORDS, PEAK_MEGABYTES, SECONDS, Contender, Job, Run, Setting, Target, Unit

_DURALOG, _KAFKA = "duralog", "Kafka"
_MILLISECONDS = Unit("ms", 1e-3, is_rate=False)
_CPU_SECONDS = Unit("CPU s for a GB", is_rate=False)
_SAME_FOR_ALL = (
    "Both brokers run alone on a new directory, with one topic of 100 partitions; Kafka as its own start script starts "
    "it (1 GB of heap, G1). CPU seconds and memory are the broker's."
)
_RAW = (
    "The requests are made before the clock starts and sent by one Python process, which only counts the answers; "
    "what is sent first, a quarter as much again, is not counted."
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
        contenders=tuple(Contender(name, _load(name, load, amount, least)) for name in (_DURALOG, _KAFKA)),
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
        "Kafka's `ProducerPerformance` with 3,000,000 records of 100 bytes and the producer's defaults but for acks=1; "
        "the rate is the one that it tells.",
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
        "As before, but with enable.idempotence=true and acks=all.",
        500_000,
        target=_times(1.3),
    ),
    _job(
        "consumer-100",
        "Broker: consumer perf, 100 B",
        MILLION_RECORDS,
        "Kafka's `ConsumerPerformance` reads about 3,000,000 records of 100 bytes that were written before, in batches "
        "of 16 KB; the rate is the one that it tells, without the time for joining the group.",
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
        "2,000,000 records of 100 bytes by confluent-kafka (librdkafka) with its defaults but for acks=1 and a queue "
        "of 1,000,000, from the first `produce` to the end of `flush`.",
        2_000_000,
        target=_times(1.1),
    ),
    _job(
        "produce-1",
        "Broker: Produce requests of 16 KB on one connection",
        MEGABYTES,
        f"400 MB, five requests under way at a time, records of 100 bytes, uncompressed. {_RAW}",
        400,
        target=_times(3.0),
    ),
    _job(
        "produce-4",
        "Broker: Produce requests of 16 KB on four connections",
        MEGABYTES,
        f"The same, five requests under way on each connection. {_RAW}",
        400,
        target=_times(2.0),
    ),
    _job(
        "fetch",
        "Broker: Fetch requests of 1 MB",
        MEGABYTES,
        "1 GB, two requests under way at a time, of partitions that were written before and have been read once. The "
        "requests are made before the clock starts; the client reads the answers and forgets them.",
        1000,
        least=200,
        target=_times(2.0),
    ),
    _job(
        "latency",
        "Broker: a small Produce, p99, idle",
        _MILLISECONDS,
        "One record of 100 bytes a request, one request after the other with half a millisecond between them, 4,000 "
        "times after a warm-up of 1,000: the time from sending to the answer that 99 in 100 stay below.",
        4000,
        least=1000,
        target=_times(2.0),
    ),
    _job(
        "latency-loaded",
        "Broker: a small Produce, p99, under 40 MB/s",
        _MILLISECONDS,
        "The same while another process sends 40 MB/s in requests of 16 KB.",
        4000,
        least=1000,
        target=_times(2.0),
    ),
    _job(
        "produce-cpu",
        "Broker: CPU of producing",
        _CPU_SECONDS,
        f"Of the broker, for 1 GB in requests of 16 KB on four connections. {_RAW}",
        1000,
        least=200,
        target=_times(3.0),
        rounds=5,
    ),
    _job(
        "fetch-cpu",
        "Broker: CPU of consuming",
        _CPU_SECONDS,
        "Of the broker, for 1 GB in answers of 1 MB, on one connection, after reading it once.",
        1000,
        least=200,
        target=_times(3.0),
        rounds=5,
    ),
    _job(
        "start",
        "Broker: start to first answer",
        SECONDS,
        "From the start of the process to its answer to ApiVersions, on a directory with 100 empty partitions that was "
        "closed well.",
        1,
        target=Target(_DURALOG, 1.0),
        rounds=2,
    ),
    _job(
        "memory",
        "Broker: memory after 1 GB",
        PEAK_MEGABYTES,
        "What the broker has in memory (resident, files that it maps included) after 1 GB was produced on four "
        "connections and read back.",
        1000,
        least=1000,
        target=Target(_DURALOG, 200.0),
        rounds=1,
    ),
)
