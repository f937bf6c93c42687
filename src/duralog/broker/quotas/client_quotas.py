"""Which quotas apply to a client, and how long it is muted when it has exceeded one. In Kafka: `ClientQuotaManager`.

Bytes of Produce requests, bytes of Fetch responses, and the time of the event loop (`request_percentage`: 100 is one
thread) are counted per user, per client id, or per both, as the quota that applies says. The most specific one applies:

user and client id, user and default client id, user, default user and client id, default user and default client id,
default user, client id, default client id.

A client above its quota gets its answer at once, with the time to wait in it (`throttle_time_ms`), and nothing more is
read from its connection until then. A Fetch above the quota is answered without records. Nothing sleeps, and without
quotas nothing is counted.

Partitions that are created and deleted (`controller_mutation_rate`) are counted where topics are changed.

Connections of an address above its `connection_creation_rate` are accepted and not served, and closed after the delay.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from typing import NamedTuple

from duralog.broker.net.dispatch import Dispatcher
from duralog.broker.net.server import Server
from duralog.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from duralog.broker.quotas.mutations import LONGEST_MS, MutationQuota
from duralog.broker.quotas.rate import TokenBucket, WindowedRate
from duralog.broker.runtime import Runtime
from duralog.broker.wire.request import Request
from duralog.storage.metadata.client_quotas import QuotaEntity

_PRODUCE = 0
_EXEMPT = frozenset({17, 27, 36})
"""SaslHandshake, WriteTxnMarkers, SaslAuthenticate: their time is not counted, as in Kafka."""
_MANY = 1000
"""Rates and clients that are remembered before those that are no longer needed are removed."""
_MOST_RATES = 10_000
"""Above it, the rates and buckets that were not used for the longest time are removed, even if they still count."""
_BUCKET_REMOVAL_MS = 1000
_CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_PERCENT = 100

RateKey = tuple[str, str, str]
"""The quota's key, the user and the client id; empty for what it is not counted by."""


class Usage(NamedTuple):
    """A quota and its current rate, shared by all clients that it is for."""

    allowed: float
    rate: WindowedRate


class FetchQuota(NamedTuple):
    """The quota of one Fetch."""

    quotas: ClientQuotas
    usage: Usage

    @property
    def most_bytes(self) -> int:
        """The most that the quota allows at once: an answer that is larger could never be sent."""
        allowed = self.usage.allowed * self.quotas.burst_seconds
        # What is not a number becomes 0, as in Java.
        return max(int(min(allowed, LONGEST_MS)), 1) if allowed == allowed else 1

    def throttle_ms(self, response_bytes: int) -> int:
        """Count the bytes, unless they are too many: then they must not be sent, and the client has to wait."""
        now_ms = self.quotas.now_ms()
        allowed, rate = self.usage
        rate.record(response_bytes, now_ms)
        delay_ms = _whole(rate.throttle_ms(allowed, now_ms))
        if delay_ms > 0:
            rate.record(-response_bytes, now_ms)
        return delay_ms


class ClientQuotas:
    """Only the loop's thread uses it."""

    def __init__(self, runtime: Runtime, dispatcher: Dispatcher, server: Server) -> None:
        self._runtime = runtime
        self._dispatcher = dispatcher
        self._server = server
        self.now_ms = runtime.timers.clock_ms
        self._limits: dict[str, dict[QuotaEntity, float]] = {}
        """By the quota's key."""
        self._usages: dict[RateKey, Usage | None] = {}
        self._rates: dict[RateKey, WindowedRate] = {}
        self._next_removal_ms = 0.0
        self._buckets: dict[RateKey, TokenBucket] = {}
        self._next_bucket_removal_ms = 0.0
        self._by_address: dict[str, float] = {}
        self._names: dict[str, frozenset[str]] = {}
        self.follow()

    @property
    def burst_seconds(self) -> int:
        config = self._runtime.config
        return max(config.quota_window_num - 1, 1) * config.quota_window_size_seconds

    def follow(self) -> None:
        """Adopt the quotas of the cluster metadata."""
        self._usages.clear()
        self._limits = {key: {} for key in _CLIENT_KEYS}
        addresses: dict[str | None, float] = {}
        for entity, values in self._runtime.store.client_quotas.items():
            names = dict(entity)
            if IP in names and CONNECTION_CREATION_RATE in values:
                addresses[names[IP]] = values[CONNECTION_CREATION_RATE]
            elif names.keys() <= {USER, CLIENT_ID}:
                for key in _CLIENT_KEYS & values.keys():
                    self._limits[key][entity] = values[key]
        self._dispatcher.throttle = self.throttle_ms if any(self._limits.values()) else None
        self._follow_addresses(addresses)

    # Requests

    def throttle_ms(self, request: Request, busy_seconds: float, request_bytes: int) -> int:
        """Count a request. How long its client has to wait after it."""
        delay_ms = 0
        now_ms = self.now_ms()
        if request.api_key == _PRODUCE:
            usage = self._usage(PRODUCER_BYTE_RATE, request)
            if usage is not None:
                usage.rate.record(request_bytes, now_ms)
                delay_ms = _whole(usage.rate.throttle_ms(usage.allowed, now_ms))
        if request.api_key not in _EXEMPT:
            usage = self._usage(REQUEST_PERCENTAGE, request)
            if usage is not None:
                usage.rate.record(busy_seconds * _PERCENT, now_ms)
                # As in Kafka: for the time of threads, a client waits one window at most.
                longest = self._runtime.config.quota_window_size_seconds * 1000
                delay_ms = max(delay_ms, min(_whole(usage.rate.throttle_ms(usage.allowed, now_ms)), longest))
        return delay_ms

    def of_fetch(self, request: Request) -> FetchQuota | None:
        """The quota for the answer of this Fetch; None if there is none."""
        if not self._limits[CONSUMER_BYTE_RATE]:
            return None
        usage = self._usage(CONSUMER_BYTE_RATE, request)
        return None if usage is None else FetchQuota(self, usage)

    def of_mutations(self, request: Request, strict_since: int) -> MutationQuota:
        """The quota for the partitions that this request creates or deletes. From this version on, it is refused."""
        limits = self._limits[CONTROLLER_MUTATION_RATE]
        found = _most_specific(limits, request.principal.name, request.client_id or "") if limits else None
        if found is None:
            return MutationQuota()
        allowed, counted_by = found
        key = (CONTROLLER_MUTATION_RATE, *counted_by)
        config = self._runtime.config
        burst_seconds = config.controller_quota_window_num * config.controller_quota_window_size_seconds
        bucket = self._bucket(key)
        return MutationQuota(bucket, allowed, burst_seconds, self.now_ms, is_strict=request.version >= strict_since)

    def _bucket(self, key: RateKey) -> TokenBucket:
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucket()
            if len(self._buckets) >= _MANY:
                self._remove_buckets()
        # The last one that was used is the last.
        self._buckets[key] = bucket
        return bucket

    def _remove_buckets(self) -> None:
        """Those that are full, once in a second; of too many, the half that was not used for the longest time."""
        now_ms = self.now_ms()
        kept = self._buckets
        if now_ms >= self._next_bucket_removal_ms:
            self._next_bucket_removal_ms = now_ms + _BUCKET_REMOVAL_MS
            kept = {key: bucket for key, bucket in kept.items() if not bucket.is_idle(now_ms)}
        if len(kept) >= _MOST_RATES:
            kept = dict(list(kept.items())[-_MOST_RATES // 2 :])
        self._buckets = kept

    def _usage(self, key: str, request: Request) -> Usage | None:
        limits = self._limits[key]
        if not limits:
            return None
        user, client_id = request.principal.name, request.client_id or ""
        wanted = (key, user, client_id)
        if wanted not in self._usages:
            if len(self._usages) >= _MANY:
                self._usages.clear()
            found = _most_specific(limits, user, client_id)
            self._usages[wanted] = None if found is None else Usage(found[0], self._rate((key, *found[1])))
        return self._usages[wanted]

    def _rate(self, key: RateKey) -> WindowedRate:
        rate = self._rates.get(key)
        if rate is None:
            config = self._runtime.config
            window_ms = config.quota_window_size_seconds * 1000
            if len(self._rates) >= _MANY:
                self._remove_rates(window_ms)
            rate = self._rates[key] = WindowedRate(config.quota_window_num, window_ms)
        return rate

    def _remove_rates(self, window_ms: int) -> None:
        """Those that no longer count, once in a window; of too many, half. So a new client costs little on average."""
        now_ms = self.now_ms()
        if now_ms >= self._next_removal_ms:
            self._next_removal_ms = now_ms + window_ms
            kept = [(key, rate) for key, rate in self._rates.items() if not rate.is_idle(now_ms)]
        elif len(self._rates) >= _MOST_RATES:
            kept = list(self._rates.items())
        else:
            return
        if len(kept) >= _MOST_RATES:
            kept.sort(key=lambda pair: pair[1].last_window_ms)
            kept = kept[-_MOST_RATES // 2 :]
        self._rates = dict(kept)
        # They hold rates, and all clients of a quota must share one.
        self._usages.clear()

    # Connections

    def _follow_addresses(self, limits: Mapping[str | None, float]) -> None:
        self._by_address = {}
        self._default_of_addresses = limits.get(None)
        names = []
        for name, limit in limits.items():
            if name is not None and (_is_literal(name) or name in self._names):
                for address in self._names.get(name, (name,)):
                    self._by_address[address] = limit
            elif name is not None:
                names.append(name)
        self._server.throttle_connection = self._connection_delay_ms if limits else None
        if names:
            self._runtime.background.run(lambda: {name: _resolved(name) for name in names}, self._end_lookup)

    def _end_lookup(self, found: dict[str, frozenset[str]], error: Exception | None) -> None:
        if error is not None:
            raise error
        self._names |= found
        self.follow()

    def _connection_delay_ms(self, address: str) -> float:
        limit = self._by_address.get(address, self._default_of_addresses)
        if limit is None:
            return 0
        now_ms = self.now_ms()
        rate = self._rate((CONNECTION_CREATION_RATE, address, ""))
        rate.record(1, now_ms)
        delay_ms = min(rate.throttle_ms(limit, now_ms), self._runtime.config.quota_window_size_seconds * 1000)
        if delay_ms > 0:
            rate.record(-1, now_ms)
        return delay_ms


def _most_specific(
    limits: Mapping[QuotaEntity, float], user: str, client_id: str
) -> tuple[float, tuple[str, str]] | None:
    """The limit that applies, and the user and client id that it is counted by."""
    one_user, any_user = (USER, user), (USER, None)
    one_client, any_client = (CLIENT_ID, client_id), (CLIENT_ID, None)
    for entity, counted_by in (
        ({one_user, one_client}, (user, client_id)),
        ({one_user, any_client}, (user, client_id)),
        ({one_user}, (user, "")),
        ({any_user, one_client}, (user, client_id)),
        ({any_user, any_client}, (user, client_id)),
        ({any_user}, (user, "")),
        ({one_client}, ("", client_id)),
        ({any_client}, ("", client_id)),
    ):
        limit = limits.get(frozenset(entity))
        if limit is not None:
            return limit, counted_by
    return None


def _whole(milliseconds: float) -> int:
    return round(min(milliseconds, LONGEST_MS))


def _is_literal(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _resolved(name: str) -> frozenset[str]:
    """Its addresses, as connections have them; none if it cannot be resolved now. Once for each name, as in Kafka."""
    try:
        return frozenset(str(address[0]) for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))
    except (OSError, ValueError):
        return frozenset()
