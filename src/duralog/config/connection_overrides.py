"""The value of `max.connections.per.ip.overrides`: `127.0.0.1:100,10.0.0.1:5,build.example:20`."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

LOOPBACK = ("127.0.0.1", "::1")
_LONGEST_TEXT = 1 << 16
_ONE = re.compile(r".*:\s*[+-]?[0-9]{1,9}\s*")


class ConnectionOverride(NamedTuple):
    """How many connections a host may have."""

    host: str
    most: int
    addresses: tuple[str, ...]
    """As connections have them. Empty for a name that has to be resolved."""


def is_connection_overrides(text: str) -> bool:
    return len(text) <= _LONGEST_TEXT and all(_ONE.fullmatch(part) for part in text.split(",") if part)


def connection_overrides(text: str) -> list[ConnectionOverride]:
    """The overrides in their order: where a host has two, the last one counts. REQUIRES: `is_connection_overrides`."""
    found = []
    for part in text.split(","):
        if part:
            host, _, count = part.rpartition(":")
            host = host.strip().strip("[]")
            found.append(ConnectionOverride(host, int(count), _addresses(host)))
    return found


def _addresses(host: str) -> tuple[str, ...]:
    if host.lower() == "localhost":
        return LOOPBACK
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return (str(address.ipv4_mapped),)
    return (str(address),)
