"""Values that would lock out all clients. No client could connect to change them again, so they are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from duralog.config.connection_overrides import connection_overrides
from duralog.config.server_settings import ServerSettings

PER_ADDRESS = "max.connections.per.ip"
OVERRIDES = "max.connections.per.ip.overrides"
SMALLEST_REQUEST_LIMIT = 512
"""Bytes. With less, a change of a config does not fit into a request."""
SHORTEST_IDLE_MS = 101
"""With less, a client is closed before its next request arrives. By default, Kafka refuses the same values."""


def lock_outs(config: ServerSettings, reached_from: Collection[str]) -> Mapping[str, str]:
    """The configs that would lock out all clients, and why. `reached_from`: where clients can come from; empty for
    anywhere.
    """
    found: dict[str, str] = {}
    if config.max_connections < 1:
        found["max.connections"] = (
            f"max.connections is {config.max_connections}, so every connection would be refused: set 1 or more"
        )
    fault = _address_fault(config, reached_from)
    if fault is not None:
        found[PER_ADDRESS if config.max_connections_per_ip < 1 else OVERRIDES] = fault
    if config.socket_request_max_bytes < SMALLEST_REQUEST_LIMIT:
        found["socket.request.max.bytes"] = (
            f"socket.request.max.bytes is {config.socket_request_max_bytes}, too small for any request: set"
            f" {SMALLEST_REQUEST_LIMIT} or more"
        )
    if 0 <= config.connections_max_idle_ms < SHORTEST_IDLE_MS:
        found["connections.max.idle.ms"] = (
            f"connections.max.idle.ms is {config.connections_max_idle_ms}, so connections would be closed before a"
            f" request arrives: set {SHORTEST_IDLE_MS} or more, or -1 for no limit"
        )
    return found


def _address_fault(config: ServerSettings, reached_from: Collection[str]) -> str | None:
    default = config.max_connections_per_ip
    allowed = {
        address: override.most
        for override in connection_overrides(config.max_connections_per_ip_overrides)
        for address in override.addresses
    }
    if reached_from:
        if any(allowed.get(address, default) > 0 for address in reached_from):
            return None
        return (
            f"{PER_ADDRESS} and {OVERRIDES} allow no connection from {' or '.join(sorted(reached_from))}, and the"
            f" broker can only be reached from there: add {min(reached_from)}:10 to {OVERRIDES}"
        )
    if default > 0 or any(count > 0 for count in allowed.values()):
        return None
    return (
        f"{PER_ADDRESS} is {default} and {OVERRIDES} allows no address a connection, so every connection would be"
        f" refused: add an address such as 127.0.0.1:10 to {OVERRIDES}; a name does not count, it may not be resolved"
    )
