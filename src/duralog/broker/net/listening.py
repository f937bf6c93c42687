"""The addresses that the broker listens on, and those it advertises: from Kafka's configs or the command line.

There may be several listeners, as clients inside and outside of containers need different addresses: each client gets
the advertised address of the listener that it connected to. Each has a security protocol
(`duralog.broker.security.listener_security`). Kafka's example configuration has another listener for controllers, which
this broker does not have: those in `controller.listener.names` are ignored.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from duralog.broker.security.listener_security import PLAINTEXT, PROTOCOLS, SASL_PLAINTEXT, SASL_SSL, SSL
from duralog.broker.security.web_tls import WebTls
from duralog.broker.security.web_users import WebUsers
from duralog.config import BrokerConfig
from duralog.config.listener_config import ListenerConfig
from duralog.errors import InvalidConfig

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What a system without IPv6 says to it."""
_LISTENER = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%a-z]*\]|[^\[\]:]*):(-?[0-9]{1,6})")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]*\]|[^\[\]:]*):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    """Empty for all interfaces."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WebAddress:
    """Where a small HTTP server listens: `/metrics`, for instance."""

    bound: Address
    hosts: tuple[str, ...] = ()
    """Other names under which it may be asked for."""
    tls: WebTls | None = None
    users: WebUsers | None = None
    """Who may ask. None: everyone who reaches it."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen, and the address that its clients get. A port of 0 stands for the one that is bound."""

    name: str
    bound: Address
    advertised: Address
    protocol: str = PLAINTEXT


@dataclass(frozen=True, slots=True)
class Listening:
    """All listeners. The first one is this broker's address where one has to do."""

    listeners: tuple[Listener, ...]

    @classmethod
    def at(cls, bound: Address, advertised: Address | None = None) -> Listening:
        return cls((Listener(PLAINTEXT, bound, advertised or _reachable(bound)),))

    @property
    def reached_from(self) -> frozenset[str]:
        """The addresses that clients come from if all listeners are on the loopback interface; empty otherwise."""
        sources = [_loopback_source(listener.bound.host) for listener in self.listeners]
        return frozenset(source for source in sources if source is not None) if all(sources) else frozenset()

    def advertised_as(self, advertised: Address | None) -> Listening:
        """The same with another address for clients, if one is given."""
        if advertised is None:
            return self
        if len(self.listeners) > 1:
            raise InvalidConfig(
                f"one address for clients is not enough for {len(self.listeners)} listeners: set advertised.listeners"
            )
        return Listening((replace(self.listeners[0], advertised=advertised),))

    @classmethod
    def of(cls, config: BrokerConfig) -> Listening:
        """By `listeners` and `advertised.listeners`."""
        protocols = _protocols(config)
        bound = _for_clients(config, "listeners", config.listeners, protocols)
        advertised = _for_clients(config, "advertised.listeners", config.advertised_listeners or (), protocols)
        if not bound:
            raise InvalidConfig("listeners: there is none for clients, only those of controllers")
        ports = [address.port for address in bound.values() if address.port]
        if len(set(ports)) < len(ports):
            raise InvalidConfig("listeners: each needs its own port")
        if strange := advertised.keys() - bound.keys():
            raise InvalidConfig(f"advertised.listeners: {min(strange)} is not among the listeners")
        if any(is_anywhere(address.host) for address in advertised.values()):
            raise InvalidConfig("advertised.listeners: clients cannot connect to a wildcard address")
        return cls(
            tuple(
                Listener(name, where, advertised.get(name) or _reachable(where), protocols[name])
                for name, where in bound.items()
            )
        )


def check_guarded(listening: Listening, config: BrokerConfig) -> None:
    """Refuse a listener that others than this machine reach, and that lets everyone in."""
    for listener in listening.listeners:
        if is_loopback(listener.bound.host) or _authenticates(listener, config):
            continue
        raise InvalidConfig(
            f"the listener {listener.name}://{listener.bound} lets in everyone who reaches it: guard it with SASL_SSL"
            " or client certificates (docs/security.md), listen on loopback (127.0.0.1), or say --insecure"
        )


def check_web_guarded(option: str, place: WebAddress) -> None:
    """Refuse a small server that others than this machine reach, and that everyone may ask."""
    if place.users is None and not is_loopback(place.bound.host):
        raise InvalidConfig(
            f"{option}: everyone who reaches {place.bound} could ask it, for the names of topics at least: give"
            f" {option}-users FILE (docs/security.md), listen on loopback (127.0.0.1), or say --insecure"
        )


def check_registry_guarded(place: WebAddress | None, config: BrokerConfig) -> None:
    """Refuse a schema registry without authentication if access control lists say who may write."""
    if place is not None and place.users is None and config.authorizer_class_name:
        raise InvalidConfig(
            "--schema-registry: with authorizer.class.name, a registry that everyone on this machine may change would"
            " bypass the access control lists: give --schema-registry-users FILE (docs/security.md), or say --insecure"
        )


def _authenticates(listener: Listener, config: BrokerConfig) -> bool:
    """Whether every client has to prove who it is."""
    if listener.protocol in (SASL_PLAINTEXT, SASL_SSL):
        return True
    return listener.protocol == SSL and ListenerConfig(config, listener.name).get("ssl.client.auth") == "required"


def is_anywhere(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def parse_address(text: str) -> Address:
    """HOST:PORT, with brackets around an IPv6 address. Raises ValueError for anything else."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match[2]) > 65535:
        raise ValueError(f"{text!r} is not of the form HOST:PORT")
    return Address(match[1].strip("[]"), int(match[2]))


def bind(address: Address) -> socket.socket:
    """A socket that is bound, but does not listen yet. Raises OSError with the address in it."""
    host = address.host or "::"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        try:
            return _bound(family, host, address.port)
        except OSError as error:
            if address.host or error.errno not in _NO_IPV6:
                raise
            return _bound(socket.AF_INET, "0.0.0.0", address.port)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _loopback_source(host: str) -> str | None:
    """Where clients of this address come from, if it is one of the loopback interface."""
    if not is_loopback(host):
        return None
    return "::1" if ":" in host else "127.0.0.1"


def _reachable(bound: Address) -> Address:
    return Address(socket.gethostname(), bound.port) if is_anywhere(bound.host) else bound


def _for_clients(
    config: BrokerConfig, config_name: str, listeners: tuple[str, ...], protocols: Mapping[str, str]
) -> dict[str, Address]:
    """By their names, in order, without those of controllers."""
    found: dict[str, Address] = {}
    for listener in listeners:
        match = _LISTENER.fullmatch(listener)
        if match is None or not 0 <= int(match[3]) <= 65535:
            raise InvalidConfig(f"{config_name}: {listener!r} is not of the form NAME://HOST:PORT")
        name = match[1].upper()
        if name in (each.upper() for each in config.controller_listener_names or ()):
            continue
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidConfig(f"{config_name}: listener.security.protocol.map does not say what {name} is")
        if protocol not in PROTOCOLS:
            raise InvalidConfig(
                f"{config_name}: {name} wants {protocol}; a security protocol is one of {', '.join(PROTOCOLS)}"
            )
        if name in found:
            raise InvalidConfig(f"{config_name}: {name} is given twice, each listener needs its own name")
        found[name] = Address(match[2].strip("[]"), int(match[3]))
    return found


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """The security protocols by the names of listeners."""
    return dict(_protocol(part) for part in config.listener_security_protocol_map.split(",") if part.strip())


def _protocol(part: str) -> tuple[str, str]:
    name, separator, protocol = part.partition(":")
    if not separator:
        raise InvalidConfig(f"listener.security.protocol.map: {part.strip()!r} is not of the form NAME:PROTOCOL")
    return name.strip().upper(), protocol.strip().upper()
