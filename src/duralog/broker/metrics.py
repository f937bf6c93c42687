"""The metrics of the broker for Prometheus. Nothing is counted for them alone: a scrape reads and adds up.

What lives on the loop is read there, in one callback, so that the numbers are consistent; the store may be read from
any thread (`store_metrics`). The number of series is bounded by the APIs and the states of groups and transactions.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from duralog.broker.audit.log import AuditLog
from duralog.broker.fetch.purgatory import Fetches
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.offsets.table import TopicOffsets
from duralog.broker.net.server import Server
from duralog.broker.runtime import Runtime
from duralog.broker.store_metrics import counter, gauge, of_lag, of_store
from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.wire.request_stats import TIME_BUCKETS_SECONDS

_WAIT_SECONDS, _WAITS = 0.1, 50
"""How long a scrape waits for the loop, in steps: the loop of a stopping broker may not answer any more."""


@dataclass(frozen=True, slots=True)
class ApiFigures:
    api: str
    count: int
    errors: int
    seconds: float
    buckets: tuple[int, ...]
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFigures:
    """The state of the loop's thread at one moment."""

    apis: list[ApiFigures]
    connections: int
    refused_connections: int
    closed_connections: Counter[str]
    request_memory_bytes: int
    request_memory_limit_bytes: int
    connections_waiting_for_memory: int
    background_requests: int
    timers: int
    waiting_fetches: int
    fetch_sessions: int
    groups: Counter[tuple[str, str]]
    committed: dict[str, TopicOffsets]
    """By group."""
    committed_offsets: int
    fetched_bytes: dict[str, int]
    """By topic."""
    transactions: Counter[str]
    skipped_records: dict[tuple[str, str], int]
    """By topic and reason."""
    unloaded_partitions: dict[str, int]
    """By topic."""


@dataclass(frozen=True, slots=True)
class MeasuredParts:
    """The parts that a scrape reads."""

    runtime: Runtime
    server: Server
    fetches: Fetches
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    is_stopping: Callable[[], bool]
    audit: AuditLog | None = None


def read_loop(parts: MeasuredParts) -> LoopFigures:
    """REQUIRES: this is the loop's thread."""
    server = parts.server
    groups, transactions = parts.groups.log, parts.transactions.log
    skipped = {CONSUMER_OFFSETS: groups.skipped, TRANSACTION_STATE: transactions.skipped}
    return LoopFigures(
        apis=[
            ApiFigures(
                stats.api,
                stats.count,
                stats.errors,
                stats.seconds,
                tuple(stats.buckets),
                stats.bytes_in,
                stats.bytes_out,
            )
            for stats in server.dispatcher.stats.values()
        ],
        connections=server.connection_count,
        refused_connections=server.refused,
        closed_connections=Counter(server.closed),
        request_memory_bytes=server.memory.used_bytes,
        request_memory_limit_bytes=server.memory.limit_bytes,
        connections_waiting_for_memory=server.memory.waiting_count,
        background_requests=server.background_requests,
        timers=len(parts.runtime.timers),
        waiting_fetches=parts.fetches.waiting,
        fetch_sessions=len(parts.fetches.sessions),
        groups=Counter((group.kind, group.state) for group in parts.groups.by_id.values()),
        committed=parts.groups.offsets.copy(),
        committed_offsets=len(parts.groups.offsets),
        fetched_bytes=dict(parts.fetches.fetched_bytes),
        transactions=Counter(state.status.name for state in parts.transactions.states.values()),
        skipped_records={
            (topic, reason): count
            for topic, records in skipped.items()
            for reason, count in (("unloadable", records.unloadable), ("unknown", records.unknown))
        },
        unloaded_partitions={
            CONSUMER_OFFSETS: len(groups.unreadable),
            TRANSACTION_STATE: len(transactions.unreadable),
        },
    )


class BrokerCollector(Collector):
    """Called by a scrape, in the thread that serves it."""

    def __init__(self, parts: MeasuredParts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        figures = self._ask_loop()
        if figures is not None:
            yield from _of_requests(figures.apis)
            yield from _of_loop(figures)
            yield of_lag(self._parts.runtime.store, figures.committed)
        if (audit := self._parts.audit) is not None:
            yield counter("audit_dropped_entries", "Entries that the audit log lost or left out.", audit.dropped)
        store = self._parts.runtime.store
        yield from of_store(store, None if figures is None else figures.fetched_bytes)

    def _ask_loop(self) -> LoopFigures | None:
        """None if the loop does not answer in time: the scrape has the rest."""
        found: list[LoopFigures] = []
        is_there = threading.Event()

        def read() -> None:
            found.append(read_loop(self._parts))
            is_there.set()

        self._parts.runtime.call_soon(read)
        for _ in range(_WAITS):
            if is_there.wait(_WAIT_SECONDS) or self._parts.is_stopping():
                break
        return found[0] if found else None


def _of_requests(apis: Iterable[ApiFigures]) -> Iterator[Metric]:
    requests = CounterMetricFamily("duralog_requests", "Requests that were answered.", labels=["api"])
    errors = CounterMetricFamily("duralog_request_errors", "Requests that failed unexpectedly.", labels=["api"])
    bytes_in = CounterMetricFamily("duralog_request_bytes", "Bytes of requests.", labels=["api"])
    bytes_out = CounterMetricFamily("duralog_response_bytes", "Bytes of answers.", labels=["api"])
    seconds = HistogramMetricFamily(
        "duralog_request_seconds", "From a request being complete to its answer, waiting included.", labels=["api"]
    )
    bounds = [*(str(bound) for bound in TIME_BUCKETS_SECONDS), "+Inf"]
    for figures in apis:
        labels = [figures.api]
        requests.add_metric(labels, figures.count)
        errors.add_metric(labels, figures.errors)
        bytes_in.add_metric(labels, figures.bytes_in)
        bytes_out.add_metric(labels, figures.bytes_out)
        seconds.add_metric(labels, list(zip(bounds, accumulate(figures.buckets), strict=True)), figures.seconds)
    yield from (requests, errors, bytes_in, bytes_out, seconds)


def _of_loop(figures: LoopFigures) -> Iterator[Metric]:
    yield gauge("connections", "Connected clients.", figures.connections)
    yield counter("refused_connections", "Connections refused because of a limit.", figures.refused_connections)
    closed = CounterMetricFamily(
        "duralog_closed_connections", "Connections that were closed for a reason.", labels=["reason"]
    )
    for reason, count in sorted(figures.closed_connections.items()):
        closed.add_metric([reason], count)
    yield closed
    yield gauge("request_memory_bytes", "Bytes that requests and answers hold.", figures.request_memory_bytes)
    yield gauge("request_memory_limit_bytes", "Above it, connections are not read.", figures.request_memory_limit_bytes)
    yield gauge(
        "connections_waiting_for_memory",
        "Connections that are not read because memory is short.",
        figures.connections_waiting_for_memory,
    )
    yield gauge("background_requests", "Requests in progress on worker threads.", figures.background_requests)
    yield gauge("timers", "Timers that are set.", figures.timers)
    yield gauge("waiting_fetches", "Fetches that wait for records.", figures.waiting_fetches)
    yield gauge("fetch_sessions", "Fetch sessions that are remembered.", figures.fetch_sessions)
    groups = GaugeMetricFamily("duralog_groups", "Groups of consumers.", labels=["kind", "state"])
    for (kind, state), count in sorted(figures.groups.items()):
        groups.add_metric([kind, state], count)
    yield groups
    yield gauge("committed_offsets", "Offsets that groups have committed.", figures.committed_offsets)
    transactions = GaugeMetricFamily("duralog_transactional_ids", "Transactional producers.", labels=["state"])
    for state, count in sorted(figures.transactions.items()):
        transactions.add_metric([state], count)
    yield transactions
    skipped = GaugeMetricFamily(
        "duralog_skipped_coordinator_records",
        "Records that the coordinators skipped at start: not loadable, or of an unknown type or version.",
        labels=["topic", "reason"],
    )
    for (topic, reason), count in figures.skipped_records.items():
        skipped.add_metric([topic, reason], count)
    unloaded = GaugeMetricFamily(
        "duralog_unloaded_coordinator_partitions",
        "Partitions whose groups or transactional ids are not served, because their logs cannot be read.",
        labels=["topic"],
    )
    for topic, count in figures.unloaded_partitions.items():
        unloaded.add_metric([topic], count)
    yield from (skipped, unloaded)
