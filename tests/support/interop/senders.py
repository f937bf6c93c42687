"""Clients with a name, of Kafka and of duralog, for tests of who may do what.

Kafka learns the name by SASL PLAIN on its client listener. For duralog's broker in this process the test sets the
principal of the connection.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from duralog.broker.broker import Broker
from duralog.broker.wire.principal import Principal
from duralog.config.server_settings import STANDARD_AUTHORIZER
from oracle.kafka_server import KafkaServer
from tests.support.broker.raw_client import RawClient
from tests.support.interop.served_directory import ServedDirectory

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
USERS = ("admin", "alice", "bob", "carol")
_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_START_SECONDS = 60.0

AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin;User:ANONYMOUS"}
"""In Kafka, the broker itself is ANONYMOUS to the controller."""


def sasl_settings() -> dict[str, object]:
    """The client listener of a `KafkaServer` with SASL PLAIN: every user's password is the name."""
    known = " ".join(f'user_{name}="{name}"' for name in USERS)
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{_LOGIN_MODULE} required username="admin" password="admin" {known};'
        ),
    }


def kafka_client(server: KafkaServer | ServedDirectory, name: str) -> RawClient:
    """A client that has logged in to a server with `sasl_settings`. Waits until it listens."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            host, port = server.address
            client = RawClient(host, port, seconds=15)
            break
        except ConnectionError:
            if time.monotonic() > deadline or not server.is_running:
                raise
            time.sleep(0.05)
    assert client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
    login = client.ask(SASL_AUTHENTICATE, 2, {"auth_bytes": f"\0{name}\0{name}".encode()})
    assert login.error_code == 0, login
    return client


def duralog_client(broker: Broker, name: str) -> RawClient:
    """A client of a broker that runs in this process, under this name."""
    client = RawClient("127.0.0.1", broker.address.port, seconds=15)
    client.ask(API_VERSIONS, 0)
    # The newest: the request above was answered, so it has been accepted.
    broker.server.connections[-1].principal = Principal(name)
    return client


def plain(value: Any) -> Any:
    """An answer as dictionaries and lists."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def asked(client: RawClient, api_key: int, version: int, request: Mapping[str, Any]) -> Any:
    """The answer as dictionaries and lists; "closed" if there is none."""
    try:
        return plain(client.ask(api_key, version, request))
    except ConnectionError:
        return "closed"
