"""How much clients may take: connections in all and from one address, bytes of a request, requests at a time."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from duralog.broker.request_memory import request_memory_limit
from duralog.config import BrokerConfig


@dataclass(slots=True)
class Limits:
    """What is allowed, and how much of it is taken."""

    most_connections: int
    most_connections_per_host: int
    host_overrides: dict[str, int]
    largest_request_bytes: int
    most_request_bytes: int
    """What requests and answers of all connections may hold together."""
    most_requests: int
    """Requests whose work goes on beside the loop."""
    idle_ms: int
    """Negative: a silent client is never closed."""
    connections: int = 0
    by_host: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, config: BrokerConfig) -> Limits:
        return cls(
            most_connections=config.max_connections,
            most_connections_per_host=config.max_connections_per_ip,
            host_overrides=_overrides(config.max_connections_per_ip_overrides),
            largest_request_bytes=config.socket_request_max_bytes,
            most_request_bytes=request_memory_limit(config),
            most_requests=config.queued_max_requests,
            idle_ms=config.connections_max_idle_ms,
        )

    def follow(self, config: BrokerConfig) -> None:
        """Take over what can be changed while the broker runs."""
        self.most_connections = config.max_connections
        self.most_connections_per_host = config.max_connections_per_ip
        self.host_overrides = _overrides(config.max_connections_per_ip_overrides)

    def refusal(self, host: str) -> str | None:
        """Why a new connection from there is not allowed; None if it is."""
        if self.connections >= self.most_connections:
            return f"there are {self.connections} connections, max.connections allows no more"
        allowed = self.host_overrides.get(host, self.most_connections_per_host)
        if self.by_host[host] >= allowed:
            return f"max.connections.per.ip allows {allowed} from one address"
        return None

    def add(self, host: str) -> None:
        self.connections += 1
        self.by_host[host] += 1

    def remove(self, host: str) -> None:
        self.connections -= 1
        self.by_host[host] -= 1
        if self.by_host[host] <= 0:
            del self.by_host[host]


@lru_cache(maxsize=1)
def _overrides(text: str) -> dict[str, int]:
    """By address. Names are looked up once, when the config is first followed. REQUIRES: it has been checked."""
    pairs = (part.rpartition(":") for part in text.split(",") if part)
    return {address: int(count) for host, _, count in pairs for address in _addresses(host.strip().strip("[]"))}


def _addresses(host: str) -> set[str]:
    """As connections have them. A name that nobody knows stands for itself, and so for none of them."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return {host}
    return {str(address[0]) for *_, address in found}
