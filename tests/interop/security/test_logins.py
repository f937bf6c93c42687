"""Log-ins as Kafka has them: the same conversations with both, field by field; and each takes over the other's users.

Clients of other makers log in to a guarded `duralog serve` in `test_clients.py`.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import struct
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID

from duralog.broker.broker import Broker
from duralog.broker.net.listening import Listening
from duralog.config import BrokerConfig
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism
from duralog.storage.store import Store
from oracle.kafka_process import KafkaProcess
from oracle.kafka_server import CLUSTER_ID, KafkaServer, free_ports, server_settings, write_properties
from tests.support.broker.certificates import Authority
from tests.support.broker.logins import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SOFTWARE,
    ScramClient,
    authenticate,
    handshake,
    plain_token,
    scram_log_in,
    secured,
)
from tests.support.broker.raw_client import RawClient

pytestmark = pytest.mark.interop

METADATA, DESCRIBE_SCRAM, ALTER_SCRAM = 3, 50, 51
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
BEARER = "org.apache.kafka.common.security.oauthbearer"
UNSECURED = f"{BEARER}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
OAUTH = f'{BEARER}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def guarded(name: str) -> dict[str, object]:
    prefix = f"listener.name.{name.lower()}."
    return {
        f"{prefix}sasl.enabled.mechanisms": MECHANISMS,
        f"{prefix}plain.sasl.jaas.config": f'{PLAIN} user_alice="secret" user_bob="other";',
        f"{prefix}scram-sha-256.sasl.jaas.config": SCRAM,
        f"{prefix}scram-sha-512.sasl.jaas.config": SCRAM,
        f"{prefix}oauthbearer.sasl.jaas.config": OAUTH,
        f"{prefix}oauthbearer.sasl.server.callback.handler.class": UNSECURED,
        f"{prefix}connections.max.reauth.ms": 3_600_000 if name == "AGAIN" else 0,
        "connection.failed.authentication.delay.ms": 20,
    }


def encrypted(folder: Path) -> dict[str, object]:
    """`ssl.client.auth` for all listeners, and again for one of those with SASL, with a rule that fits no name."""
    own = "listener.name.own."
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
        "listener.name.all.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.all.scram-sha-256.sasl.jaas.config": SCRAM,
        f"{own}sasl.enabled.mechanisms": "SCRAM-SHA-256",
        f"{own}scram-sha-256.sasl.jaas.config": SCRAM,
        f"{own}ssl.client.auth": "required",
        f"{own}ssl.principal.mapping.rules": "RULE:^CN=never$/x/",
    }


class Side:
    """One of the two brokers."""

    def __init__(self, ports: dict[str, int], folder: Path) -> None:
        self.ports = ports
        self.folder = folder
        self._clients: list[RawClient] = []

    def connect(self, listener: str = "GUARDED") -> RawClient:
        self._clients.append(RawClient("127.0.0.1", self.ports[listener]))
        return self._clients[-1]

    def heard(self, conversation: Callable[[Side], list[Any]]) -> list[Any]:
        try:
            return conversation(self)
        finally:
            for client in self._clients:
                client.close()


PROTOCOLS = (
    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT,AGAIN:SASL_PLAINTEXT,"
    "MUTUAL:SSL,ALL:SASL_SSL,OWN:SASL_SSL"
)
LISTENERS = ("PLAINTEXT", "GUARDED", "AGAIN", "MUTUAL", "ALL", "OWN")


def kafka_configs(directory: Path) -> tuple[dict[str, object], dict[str, int]]:
    ports = dict(zip((*LISTENERS, "CONTROLLER"), free_ports(len(LISTENERS) + 1), strict=True))
    configs = server_settings(directory, 1, ports["PLAINTEXT"], ports["CONTROLLER"])
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    settings = {"listener.security.protocol.map": PROTOCOLS, **guarded("GUARDED"), **guarded("AGAIN")}
    settings |= encrypted(directory.parent)
    return {**configs, "listeners": listeners, **settings}, ports


@contextlib.contextmanager
def running_kafka(kafka: KafkaProcess, directory: Path) -> Iterator[Side]:
    configs, ports = kafka_configs(directory)
    with KafkaServer(kafka, directory, configs=configs) as server:
        server.address, server.bootstrap = ("127.0.0.1", ports["PLAINTEXT"]), f"127.0.0.1:{ports['PLAINTEXT']}"
        server.topics()
        yield Side(ports, directory.parent)


@contextlib.contextmanager
def running_duralog(directory: Path) -> Iterator[Side]:
    config = BrokerConfig.of(
        {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "listener.security.protocol.map": PROTOCOLS,
            **guarded("GUARDED"),
            **guarded("AGAIN"),
            **encrypted(directory.parent),
        }
    )
    with Broker(str(directory), config=config, listening=Listening.of(config)) as broker:
        broker.start()
        yield Side({name: address.port for name, address in broker.addresses.items()}, directory.parent)


@pytest.fixture(scope="module")
def sides(kafka: KafkaProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka on a directory with users of duralog's, and duralog on one with users of `kafka-storage format`."""
    folder = tmp_path_factory.mktemp("security")
    authority = Authority()
    (folder / "ca.pem").write_text(authority.pem)
    authority.sign().written(folder / "broker.pem")
    authority.sign((NameOID.COMMON_NAME, "carol")).written(folder / "carol.pem")
    authority.sign((NameOID.COMMON_NAME, "carol"), days=-1).written(folder / "expired.pem")
    Authority("other").sign((NameOID.COMMON_NAME, "carol")).written(folder / "foreign.pem")
    with Store(str(folder / "kafka")) as store:
        store.alter_scram_credentials(
            {
                (user, mechanism): ScramCredential.of_password(mechanism, "pencil")
                for user in ("carol", "gone")
                for mechanism in ScramMechanism
            }
        )
        store.alter_scram_credentials({("gone", mechanism): None for mechanism in ScramMechanism})
    properties = folder / "server.properties"
    (folder / "duralog").mkdir()
    write_properties(properties, server_settings(folder / "duralog", 1, *free_ports(2)))
    users = [f"SCRAM-SHA-{size}=[name=carol,password=pencil]" for size in (256, 512)]
    added = [word for user in users for word in ("--add-scram", user)]
    kafka.ask(command="format", arguments=["format", "-t", CLUSTER_ID, "-c", str(properties), *added])
    with running_kafka(kafka, folder / "kafka") as theirs, running_duralog(folder / "duralog") as ours:
        yield theirs, ours


def ended(client: RawClient) -> str:
    return "closed" if client.is_closed_by_peer() else "open"


def fields(answer: Any) -> dict[str, Any]:
    found = {name: getattr(answer, name) for name in type(answer).__dataclass_fields__}
    # In Kafka, they have no order.
    return {**found, "mechanisms": sorted(found["mechanisms"])} if "mechanisms" in found else found


def right_plain(side: Side) -> list[Any]:
    client = side.connect()
    asked = [handshake(client, "PLAIN"), authenticate(client, plain_token("alice", "secret"))]
    again = [handshake(client, "PLAIN"), authenticate(client, b"x")]
    return [fields(each) for each in (*asked, *again)]


def wrong_plain(side: Side) -> list[Any]:
    found: list[Any] = []
    for token in (
        plain_token("alice", "wrong"),
        plain_token("nobody", "secret"),
        plain_token("alice", "secret", "bob"),
        plain_token("", "x"),
        plain_token("alice", ""),
        b"a\0b",
        b"\0a\0b\0c",
        b"",
    ):
        for version in range(3) if token == b"" else [2]:
            client = side.connect()
            handshake(client, "PLAIN")
            found += [fields(authenticate(client, token, version)), ended(client)]
    return found


def scram(side: Side) -> list[Any]:
    found: list[Any] = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        answer = scram_log_in(side.connect(), mechanism, "carol", "pencil")
        found.append({**fields(answer), "auth_bytes": len(answer.auth_bytes)})
        for user in ("carol", "nobody", "gone"):
            client = side.connect()
            found += [fields(scram_log_in(client, mechanism, user, "wrong")), ended(client)]
        for first in (b"", b"n,,", b"y,,n=carol,r=x", b"n,,n=car=ol,r=x", b"n,,n=carol,r="):
            client = side.connect()
            handshake(client, mechanism)
            found += [fields(authenticate(client, first)), ended(client)]
        for change in ("nonce", "proof", "binding"):
            client = side.connect()
            handshake(client, mechanism)
            login = ScramClient(mechanism, "carol", "pencil")
            answer = authenticate(client, login.first())
            final = login.final(answer.auth_bytes, nonce_suffix="x" if change == "nonce" else "")
            if change == "proof":
                final = final.partition(b",p=")[0] + b",p=" + b64encode(b"x" * (32 if "256" in mechanism else 64))
            found += [fields(authenticate(client, final if change != "binding" else b"x" + final)), ended(client)]
    return found


def foreign_authorization_id(side: Side) -> list[Any]:
    """With the right password. Kafka refuses the first message, which shows that the user exists; duralog the proof."""
    found: list[Any] = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = side.connect()
        answer = scram_log_in(client, mechanism, "carol", "pencil", authorization_id="alice")
        found += [fields(answer), ended(client)]
    return found


def states(side: Side) -> list[Any]:
    found: list[Any] = []
    client = side.connect()
    found += [fields(handshake(client, "GSSAPI")), ended(client)]
    for before in ([], [API_VERSIONS]):
        client = side.connect()
        for key in before:
            assert client.ask(key, 3, SOFTWARE).error_code == 0
        client.send(METADATA, 1, {"topics": []})
        found.append(ended(client))
    client = side.connect()
    client.ask(API_VERSIONS, 0)
    client.send(API_VERSIONS, 0)
    found.append(ended(client))
    client = side.connect()
    client.send(SASL_AUTHENTICATE, 2, {"auth_bytes": b"x"})
    found.append(ended(client))
    client = side.connect()
    handshake(client, "PLAIN")
    found += [fields(client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})), ended(client)]
    client = side.connect()
    handshake(client, "PLAIN")
    found += [client.ask(API_VERSIONS, 0).error_code, ended(client)]
    client = side.connect()
    client.send_bytes(struct.pack(">i", (512 << 10) + 1))
    found.append(ended(client))
    client = side.connect("PLAINTEXT")
    found += [fields(handshake(client, "PLAIN")), fields(authenticate(client, b"x"))]
    return found


def bare_tokens(side: Side) -> list[Any]:
    def exchange(client: RawClient, token: bytes) -> bytes | str:
        client.send_bytes(struct.pack(">i", len(token)) + token)
        try:
            return client.receive_frame()
        except ConnectionError:
            return "closed"

    client = side.connect()
    found: list[Any] = [fields(handshake(client, "PLAIN", version=0))]
    found.append(exchange(client, plain_token("alice", "secret")))
    found.append(client.ask(METADATA, 1, {"topics": []}).controller_id)
    client = side.connect()
    handshake(client, "PLAIN", version=0)
    found.append(exchange(client, plain_token("alice", "wrong")))
    return found


def sessions(side: Side) -> list[Any]:
    def logged_in() -> tuple[RawClient, Any]:
        client = side.connect("AGAIN")
        handshake(client, "PLAIN")
        return client, authenticate(client, plain_token("alice", "secret"))

    client, answer = logged_in()
    found: list[Any] = [fields(answer), fields(handshake(client, "PLAIN"))]
    found.append(fields(authenticate(client, plain_token("alice", "secret"), 1)))
    found += [fields(handshake(client, "PLAIN")), client.ask(METADATA, 1, {"topics": []}).controller_id]
    for token in (plain_token("bob", "other"), plain_token("alice", "wrong"), b"x"):
        client, _ = logged_in()
        handshake(client, "PLAIN")
        found += [fields(authenticate(client, token)), ended(client)]
    client, _ = logged_in()
    found += [fields(handshake(client, "SCRAM-SHA-256")), ended_after(client, b"n,,n=carol,r=x")]
    return found


def ended_after(client: RawClient, token: bytes) -> Any:
    try:
        client.send(SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        return fields(client.receive(SASL_AUTHENTICATE, 2))
    except ConnectionError:
        return "closed"


def tokens(side: Side) -> list[Any]:
    """Unsigned ones: only these can both be asked about without a server for keys."""

    def encoded(part: dict[str, Any]) -> str:
        return urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    def token(**claims: Any) -> bytes:
        made = {"sub": "alice", "iat": 1, "exp": 4_000_000_000, **claims}
        given = {name: value for name, value in made.items() if value is not None}
        return f"{encoded({'alg': 'none'})}.{encoded(given)}.".encode()

    found: list[Any] = []
    for listener in ("GUARDED", "AGAIN"):
        client = side.connect(listener)
        handshake(client, "OAUTHBEARER")
        answer = fields(authenticate(client, b"n,,\1auth=Bearer " + token() + b"\1\1"))
        found.append({**answer, "session_lifetime": answer["session_lifetime"] // 10_000_000})
    for wrong in (
        b"n,,\1auth=Bearer " + token(exp=5) + b"\1\1",
        b"n,,\1auth=Bearer " + token(exp=None) + b"\1\1",
        b"n,,\1auth=Bearer " + token(sub=None) + b"\1\1",
        b"n,,\1auth=Bearer x\1\1",
    ):
        client = side.connect()
        handshake(client, "OAUTHBEARER")
        found += [ended_after(client, wrong), ended_after(client, b"\1"), ended(client)]
    for wrong in (b"n,a=bob,\1auth=Bearer " + token() + b"\1\1", b"n,,\1\1", b"", b"x"):
        client = side.connect()
        handshake(client, "OAUTHBEARER")
        found += [ended_after(client, wrong), ended(client)]
    return found


def certificates(side: Side) -> list[Any]:
    """Which listeners want the certificate of a client, whether they map its name, and which they refuse."""
    found: list[Any] = []
    for listener in ("MUTUAL", "ALL", "OWN"):
        for name in (None, "carol", "expired", "foreign"):
            chain = {} if name is None else {"certfile": side.folder / f"{name}.pem"}
            try:
                client = secured(side.connect(listener), (side.folder / "ca.pem").read_text(), **chain)
                if listener == "MUTUAL":
                    code = client.ask(API_VERSIONS, 0).error_code
                else:
                    code = scram_log_in(client, "SCRAM-SHA-256", "carol", "pencil").error_code
            except (ssl.SSLError, ConnectionError):
                code = None
            found.append((listener, name, code))
    refused = [("MUTUAL", None, None), ("MUTUAL", "expired", None), ("MUTUAL", "foreign", None)]
    assert [found[0], *found[2:4]] == refused
    assert found[1] == ("MUTUAL", "carol", 0)
    return found


def administration(side: Side) -> list[Any]:
    client = side.connect("PLAINTEXT")
    password = {"salt": b"salt", "salted_password": b"x" * 32}

    def alter(deleted: list[tuple[str, int]], set_: list[tuple[str, int, int]]) -> list[Any]:
        deletions = [{"name": name, "mechanism": mechanism} for name, mechanism in deleted]
        upsertions = [
            {"name": name, "mechanism": mechanism, "iterations": iterations, **password}
            for name, mechanism, iterations in set_
        ]
        answer = client.ask(ALTER_SCRAM, 0, {"deletions": deletions, "upsertions": upsertions})
        return sorted((fields(result) for result in answer.results), key=lambda result: str(result["user"]))

    def describe(*users: str) -> list[Any]:
        asked = [{"name": user} for user in users] if users else None
        answer = client.ask(DESCRIBE_SCRAM, 0, {"users": asked})
        results = sorted(answer.results, key=lambda result: str(result.user))
        infos = [sorted((info.mechanism, info.iterations) for info in result.credential_infos) for result in results]
        plain = [(result.user, result.error_code, result.error_message) for result in results]
        return [answer.error_code, answer.error_message, plain, infos]

    return [
        alter([], []),
        alter([], [("dan", 1, 4096), ("eve", 2, 16384)]),
        alter([], [("dan", 1, 5000), ("dan", 2, 5000)]),
        alter([], [("low", 1, 4095), ("high", 1, 16385), ("", 1, 4096), ("odd", 0, 4096), ("odd3", 3, 4096)]),
        alter([], [("fay", 1, 4096), ("fay", 1, 4096), ("gil", 1, 4096)]),
        alter([("eve", 2), ("none", 1), ("", 1), ("odd", 0)], []),
        alter([("dan", 1)], [("dan", 1, 6000)]),
        alter([("dan", 1)], [("dan", 2, 6000)]),
        describe(),
        describe("dan", "none", "carol"),
        describe("dan", "dan", "none", "none"),
        describe(""),
    ]


@pytest.mark.parametrize(
    "conversation",
    [
        right_plain,
        wrong_plain,
        scram,
        foreign_authorization_id,
        states,
        bare_tokens,
        sessions,
        tokens,
        certificates,
        administration,
    ],
)
def test_conversations(sides: tuple[Side, Side], conversation: Any) -> None:
    theirs, ours = sides
    both = zip(ours.heard(conversation), theirs.heard(conversation), strict=True)
    assert [(place, our, their) for place, (our, their) in enumerate(both) if our != their] == []
