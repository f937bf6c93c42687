"""Limits for clients: connections in total, per listener and per address, size of a request, requests in progress."""

from __future__ import annotations

from collections import Counter

from duralog.broker.net.host_names import HostNames
from duralog.broker.net.request_memory import request_memory_limit
from duralog.config import BrokerConfig
from duralog.config.broker import LISTENER_PREFIX
from duralog.config.connection_overrides import connection_overrides
from duralog.config.listener_config import ListenerConfig

_MAX_CONNECTIONS = "max.connections"
_MOST_NAMES = 1000
"""Names in the overrides that are resolved. To those beyond it, max.connections.per.ip applies."""


class ConnectionLimits:
    """The limits, and the connections counted against them. Only the loop's thread uses it."""

    def __init__(self, config: BrokerConfig, names: HostNames) -> None:
        self.largest_request_bytes = config.socket_request_max_bytes
        self.most_request_bytes = request_memory_limit(config)
        """The memory that requests and answers of all connections may hold together."""
        self.most_requests = config.queued_max_requests
        """Requests in progress on worker threads."""
        self.idle_ms = config.connections_max_idle_ms
        """Negative: a silent client is never closed."""
        self.connections = 0
        self.by_host: Counter[str] = Counter()
        self.by_listener: Counter[str] = Counter()
        self._names = names
        self._followed = ""
        self._config: BrokerConfig | None = None
        self._most_by_listener: dict[str, int] = {}
        """For those that have been asked about."""
        self._by_address: dict[str, int] = {}
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """Adopt what can be changed while the broker runs."""
        if config is self._config:
            return
        self._config = config
        self._most_by_listener = {}
        self._most_connections = config.max_connections
        self._most_per_host = config.max_connections_per_ip
        if config.max_connections_per_ip_overrides != self._followed:
            self._followed = config.max_connections_per_ip_overrides
            unresolved = [each.host for each in connection_overrides(self._followed) if not each.addresses]
            self._names.follow(frozenset(unresolved[:_MOST_NAMES]), self._apply_overrides)
            self._apply_overrides()

    def _apply_overrides(self) -> None:
        """With the names that are resolved by now."""
        self._by_address = {
            address: override.most
            for override in connection_overrides(self._followed)
            for address in override.addresses or self._names.addresses(override.host)
        }

    def allowed(self, host: str) -> int:
        """How many connections an address may have."""
        return self._by_address.get(host, self._most_per_host)

    def _most_on(self, listener: str) -> int:
        """By the listener's own `max.connections`; without one, by that of the broker."""
        most = self._most_by_listener.get(listener)
        if most is None:
            assert self._config is not None
            most = ListenerConfig(self._config, listener).get(_MAX_CONNECTIONS)
            self._most_by_listener[listener] = most
        return most

    def refusal(self, host: str, listener: str = "") -> str | None:
        """Why a new connection from there is not allowed; None if it is."""
        if self.connections >= self._most_connections:
            return f"there are {self.connections} connections, max.connections allows no more"
        most = self._most_on(listener)
        if self.by_listener[listener] >= most:
            return f"{LISTENER_PREFIX}{listener.lower()}.{_MAX_CONNECTIONS} allows {most}"
        allowed = self.allowed(host)
        if self.by_host[host] >= allowed:
            return f"max.connections.per.ip allows {allowed} from one address"
        return None

    def add(self, host: str, listener: str = "") -> None:
        self.connections += 1
        self.by_listener[listener] += 1
        self.by_host[host] += 1

    def remove(self, host: str, listener: str = "") -> None:
        self.connections -= 1
        self.by_listener[listener] -= 1
        self.by_host[host] -= 1
        if self.by_host[host] <= 0:
            del self.by_host[host]
