"""TLS listeners: certificates from PEM, PKCS12 and configs, client certificates, reloading, and bad handshakes."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from duralog.broker.broker import Broker
from duralog.broker.net.event_loop import EventLoop
from duralog.broker.net.handshake import Handshake
from duralog.broker.net.listening import Listening
from duralog.broker.security.listener_security import ListenerSecurity
from duralog.broker.security.principal_mapping import PrincipalMapping, subject_of
from duralog.broker.security.tls import ListenerTls
from duralog.broker.wire.messages import encode_request
from duralog.broker.wire.principal import ANONYMOUS
from duralog.config import BrokerConfig
from duralog.config.listener_config import ListenerConfig
from duralog.errors import DuralogError, InvalidConfig
from tests.support.broker.certificates import Authority, Signed
from tests.support.broker.logins import API_VERSIONS, secured
from tests.support.broker.raw_client import RawClient, request_frame
from tests.support.broker.record_desk import batch as batch_of
from tests.support.forked_child import in_child
from tests.support.waiting import wait_until

METADATA, PRODUCE, FETCH = 3, 0, 1
FROM_THE_START = {
    "replica_id": -1,
    "max_wait_ms": 0,
    "min_bytes": 1,
    "max_bytes": 50 << 20,
    "topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}]}],
}
CLIENT = ((NameOID.COMMON_NAME, "carol"), (NameOID.ORGANIZATION_NAME, "Acme, Inc."))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Signed:
    return authority.sign()


@contextmanager
def serving(configs: dict[str, object], listener: str = "SSL") -> Iterator[tuple[Broker, Callable[..., RawClient]]]:
    config = BrokerConfig.of({"listeners": f"{listener}://127.0.0.1:0", **configs})
    clients: list[RawClient] = []
    with Broker(None, config=config, listening=Listening.of(config)) as broker:

        def connect() -> RawClient:
            clients.append(RawClient("127.0.0.1", broker.address.port))
            return clients[-1]

        try:
            yield broker.start(), connect
        finally:
            for client in clients:
                client.close()


def inline(server: Signed) -> dict[str, object]:
    return {"ssl.keystore.certificate.chain": server.certificate_pem, "ssl.keystore.key": server.key_pem()}


def stores(kind: str, server: Signed, folder: Path) -> dict[str, object]:
    if kind == "in configs":
        return inline(server)
    path = folder / kind.split(" ")[0]
    if "PKCS12" in kind:
        path.write_bytes(server.pkcs12("pw"))
        typed = {} if kind == "PKCS12 as JKS" else {"ssl.keystore.type": "PKCS12"}
        return {"ssl.keystore.location": str(path), "ssl.keystore.password": "pw", **typed}
    password = "pw" if "encrypted" in kind else None
    path.write_text(server.pem(password))
    configs: dict[str, object] = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    return configs if password is None else {**configs, "ssl.key.password": password}


KINDS = ["in configs", "PEM", "PEM encrypted", "PKCS12", "PKCS12 as JKS"]


@pytest.mark.parametrize("kind", KINDS)
def test_stores(kind: str, server: Signed, authority: Authority, tmp_path: Path) -> None:
    with serving(stores(kind, server, tmp_path)) as (broker, connect):
        client = secured(connect(), authority.pem)
        assert client.ask(API_VERSIONS, 0).error_code == 0
        assert [connection.principal for connection in broker.server.connections] == [ANONYMOUS]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(version: ssl.TLSVersion, server: Signed, authority: Authority) -> None:
    name = "TLSv1.2" if version is ssl.TLSVersion.TLSv1_2 else "TLSv1.3"
    with serving({**inline(server), "ssl.enabled.protocols": name}) as (_, connect):
        client = secured(connect(), authority.pem)
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.version() == name


def test_a_cipher_suite_by_its_name_in_java(server: Signed, authority: Authority) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    configs = {**inline(server), "ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": suite}
    with serving(configs) as (_, connect):
        client = secured(connect(), authority.pem)
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


ALL_OF_TLS_1_3 = "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"
OF_TLS_1_2 = "ECDHE-ECDSA-AES128-GCM-SHA256"


@pytest.mark.parametrize(
    ("suites", "least", "warns"),
    [
        (ALL_OF_TLS_1_3, ssl.TLSVersion.TLSv1_3, False),
        (ALL_OF_TLS_1_3[1:2], ssl.TLSVersion.TLSv1_3, True),
        ((*ALL_OF_TLS_1_3, OF_TLS_1_2), ssl.TLSVersion.TLSv1_2, False),
        ((ALL_OF_TLS_1_3[0], OF_TLS_1_2), ssl.TLSVersion.TLSv1_2, True),
        ((OF_TLS_1_2,), ssl.TLSVersion.TLSv1_2, False),
    ],
)
def test_suites_of_tls_1_3(
    server: Signed,
    caplog: pytest.LogCaptureFixture,
    suites: tuple[str, ...],
    least: ssl.TLSVersion,
    warns: bool,
) -> None:
    configs = {**inline(server), "ssl.cipher.suites": ",".join(suites)}
    context = ListenerTls("SSL", ListenerConfig(BrokerConfig.of(configs), "SSL")).settings.context
    assert context.minimum_version == least
    assert ("cannot be chosen" in caplog.text) == warns


def test_suites_of_tls_1_3_without_it(server: Signed) -> None:
    configs = {**inline(server), "ssl.cipher.suites": ALL_OF_TLS_1_3[0], "ssl.enabled.protocols": "TLSv1.2"}
    with pytest.raises(InvalidConfig, match="no client could connect"):
        ListenerTls("SSL", ListenerConfig(BrokerConfig.of(configs), "SSL"))


@pytest.mark.parametrize(("prefix", "mode"), [("", ssl.CERT_NONE), ("listener.name.own.", ssl.CERT_REQUIRED)])
def test_client_certificates_with_sasl_need_the_prefix(
    server: Signed, authority: Authority, caplog: pytest.LogCaptureFixture, prefix: str, mode: ssl.VerifyMode
) -> None:
    configs = {**inline(server), "ssl.truststore.certificates": authority.pem, f"{prefix}ssl.client.auth": "required"}
    security = ListenerSecurity(
        "OWN",
        "SASL_SSL",
        BrokerConfig.of({**configs, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}),
        is_loopback=True,
        credentials=dict,
        salt_key=bytes,
    )
    assert security.tls is not None
    assert security.tls.context.verify_mode == mode
    assert ("counts for SSL listeners only" in caplog.text) == (not prefix)


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({}, "needs listener.name.ssl.ssl.keystore.location"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{}/none"}, "none cannot be read: No such file"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{}/empty"}, "expected one private key in PEM, found 0"),
        ({"ssl.keystore.location": "{}/jks"}, "is a JKS file, which only Java reads. Convert it: keytool"),
        ({"ssl.keystore.location": "{}/pem"}, "is PEM: set ssl.keystore.type=PEM"),
        ({"ssl.keystore.location": "{}/p12", "ssl.keystore.password": "wrong"}, "check ssl.keystore.password"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{}/other"}, "the key belongs to the first certificate"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{}/pem", "ssl.client.auth": "required"}, "truststore"),
        ({"ssl.keystore.key": "x"}, "go together"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3 or both"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{}/pem", "ssl.principal.mapping.rules": "RULE:("},
            "expected RULE:pattern/replacement",
        ),
    ],
)
def test_what_is_refused(
    configs: dict[str, str], reason: str, server: Signed, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (tmp_path / "pem").write_text(server.pem())
    (tmp_path / "p12").write_bytes(server.pkcs12("right"))
    (tmp_path / "other").write_text(authority.sign().key_pem() + server.certificate_pem)
    given: dict[str, object] = {name: value.replace("{}", str(tmp_path)) for name, value in configs.items()}
    with pytest.raises(InvalidConfig, match=re.escape(reason)), serving(given):
        pass


@pytest.fixture(scope="module")
def guarded(server: Signed, authority: Authority) -> Iterator[tuple[Broker, Callable[..., RawClient]]]:
    configs = {**inline(server), "ssl.client.auth": "required", "ssl.truststore.certificates": authority.pem}
    with serving(configs) as served:
        yield served


class TestClientCertificates:
    def test_a_trusted_one(
        self, guarded: tuple[Broker, Callable[..., RawClient]], authority: Authority, tmp_path: Path
    ) -> None:
        broker, connect = guarded
        chain = authority.sign(*CLIENT).written(tmp_path / "client.pem")
        client = secured(connect(), authority.pem, certfile=chain)
        assert client.ask(API_VERSIONS, 0).error_code == 0
        principals = [str(connection.principal) for connection in broker.server.connections]
        assert principals == ["User:O=Acme\\, Inc.,CN=carol"]
        client.close()
        wait_until(lambda: not broker.server.connections)

    @pytest.mark.parametrize("case", ["none", "expired", "foreign"])
    def test_others(
        self,
        guarded: tuple[Broker, Callable[..., RawClient]],
        authority: Authority,
        tmp_path: Path,
        case: str,
    ) -> None:
        broker, connect = guarded
        chain: dict[str, Any] = {}
        if case == "expired":
            chain = {"certfile": authority.sign(*CLIENT, days=-1).written(tmp_path / "client.pem")}
        elif case == "foreign":
            chain = {"certfile": Authority("other").sign(*CLIENT).written(tmp_path / "client.pem")}
        before = broker.server.closed["TLS handshake"]
        with pytest.raises((ssl.SSLError, ConnectionError)):  # noqa: PT012 In TLS 1.3, the client hears of it later.
            client = secured(connect(), authority.pem, **chain)
            client.ask(API_VERSIONS, 0)
        wait_until(lambda: broker.server.closed["TLS handshake"] == before + 1)
        assert broker.limits.connections == 0
        assert not broker.server.connections

    def test_requested_and_none(self, server: Signed, authority: Authority) -> None:
        configs = {**inline(server), "ssl.client.auth": "requested", "ssl.truststore.certificates": authority.pem}
        with serving(configs) as (broker, connect):
            assert secured(connect(), authority.pem).ask(API_VERSIONS, 0).error_code == 0
            assert [connection.principal for connection in broker.server.connections] == [ANONYMOUS]


class TestHandshakes:
    def test_bytes_that_are_no_tls(self, server: Signed, authority: Authority) -> None:
        with serving(inline(server)) as (broker, connect):
            plain = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
            for data in (b"GET / HTTP/1.1\r\n\r\n", plain, b"\x16\x03\x01\xff\xff" + b"\1" * 70_000):
                client = connect()
                client.send_bytes(data)
                with suppress(ConnectionError):
                    while client.socket.recv(100):
                        pass
            assert secured(connect(), authority.pem).ask(API_VERSIONS, 0).error_code == 0
            assert broker.server.closed["TLS handshake"] == 3
            assert broker.server.closed["unexpected"] == 0

    def test_a_failed_one_is_audited(self, server: Signed, tmp_path: Path) -> None:
        path = tmp_path / "audit.log"
        with serving({**inline(server), "duralog.audit.log.file": str(path)}) as (_, connect):
            client = connect()
            client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            assert b"HTTP" not in client.socket.recv(100)
        entry = json.loads((tmp_path / "audit-refusals.log").read_text())
        assert (entry["event"], entry["listener"]) == ("login failure", "SSL")
        assert entry["result"] == "SSL_HANDSHAKE_FAILED"
        assert "does not speak TLS" in entry["detail"]

    def test_a_slow_one_is_closed(self, server: Signed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("duralog.broker.net.handshake.HANDSHAKE_MS", 20)
        with serving(inline(server)) as (broker, connect):
            client = connect()
            client.send_bytes(b"\x16\x03\x01")
            assert client.is_closed_by_peer()
            wait_until(lambda: broker.limits.connections == 0)

    def test_many_that_do_not_finish_hold_up_no_one(self, server: Signed, authority: Authority) -> None:
        with serving(inline(server)) as (broker, connect):
            for _ in range(50):
                connect().send_bytes(b"\x16")
            assert secured(connect(), authority.pem).ask(API_VERSIONS, 0).error_code == 0
            assert broker.limits.connections == 51

    def test_gone_during_it(self, server: Signed) -> None:
        with serving(inline(server)) as (broker, connect):
            for _ in range(20):
                client = connect()
                client.send_bytes(b"\x16\x03\x01\0\xff")
                client.break_off()
            wait_until(lambda: broker.limits.connections == 0)

    def test_broken_off_while_a_worker_has_it(self, server: Signed, tmp_path: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.written(tmp_path / "broker.pem"))
        loop = EventLoop(logging.getLogger("duralog.broker"))
        steps: list[tuple[Callable[[], object], Callable[..., None]]] = []
        failed: list[str] = []
        owner: Any = SimpleNamespace(
            loop=loop,
            login_workers=SimpleNamespace(submit=lambda *step: steps.append(step)),
            handshake_failed=lambda _, reason: failed.append(reason),
            handshake_closed=lambda _: None,
        )
        settings: Any = SimpleNamespace(context=context, mapping=None)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = RawClient(*listener.getsockname())
            connected, _ = listener.accept()
            connected.setblocking(False)
            handshake = Handshake(owner, connected, "host", settings, None)
            client.send_bytes(b"\x16\x03\x01\0\xff")
            loop.run_turn(10)
            client.break_off()
            for _ in range(5):
                loop.run_turn(0)
            assert len(steps) == 1
            step, then = steps.pop()
            with suppress(OSError):
                then(step(), None)
                loop.run_turn(10)
                step, then = steps.pop()
                step()
            then(None, ConnectionResetError())
            assert failed == ["its TLS handshake failed: ConnectionResetError"]
            handshake.close()
        loop.close()


def test_a_forked_child_says_nothing_to_clients(server: Signed, authority: Authority) -> None:
    with serving(inline(server)) as (_, connect):
        client = secured(connect(), authority.pem)
        assert client.ask(API_VERSIONS, 0).error_code == 0
        assert in_child(lambda: "done") == "done"
        assert client.ask(API_VERSIONS, 0).error_code == 0


class TestData:
    def test_large_requests_and_answers_from_files(self, server: Signed, authority: Authority) -> None:
        with serving(inline(server)) as (broker, connect):
            broker.store.create_topic("t", 1)
            client = secured(connect(), authority.pem)
            value = os.urandom(900_000)
            batch = batch_of(value)
            for _ in range(5):
                topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
                fields = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
                answer = client.ask(PRODUCE, 9, fields)
                assert answer.responses[0].partition_responses[0].error_code == 0
            for _ in range(3):
                answer = client.ask(FETCH, 11, FROM_THE_START)
                records = answer.responses[0].partitions[0].records
                assert bytes(records).count(value) == 5
            assert broker.server.memory.used_bytes == 0

    def test_many_small_requests_in_one_record(self, server: Signed, authority: Authority) -> None:

        with serving(inline(server)) as (_, connect):
            client = secured(connect(), authority.pem)
            client.send_bytes(b"".join(request_frame(API_VERSIONS, 0, number, b"") for number in range(2000)))
            for number in range(2000):
                assert int.from_bytes(client.receive_frame()[:4], "big") == number

    def test_a_client_that_reads_slowly(self, server: Signed, authority: Authority) -> None:
        with serving({**inline(server), "socket.send.buffer.bytes": 65536}) as (broker, connect):
            broker.store.create_topic("t", 1)
            log = broker.store.partition("t", 0)
            log.append_batches(batch_of(os.urandom(900_000)))
            client = connect()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client = secured(client, authority.pem)
            for _ in range(4):
                client.send(FETCH, 11, FROM_THE_START)
            wait_until(lambda: any(connection.is_owed for connection in broker.server.connections))
            for _ in range(4):
                answer = client.receive(FETCH, 11)
                assert len(answer.responses[0].partitions[0].records) > 900_000

    def test_many_requests_at_once_with_large_answers(self, server: Signed, authority: Authority) -> None:
        """The client sends and reads by turns: what OpenSSL holds already and a full socket come together."""
        count = 120
        body = encode_request(METADATA, 1, {"topics": [{"name": letter * 30_000} for letter in "abcd"]})
        requests = memoryview(b"".join(request_frame(METADATA, 1, number, body) for number in range(count)))
        with serving(inline(server)) as (_, connect):
            client = secured(connect(), authority.pem)
            received, sent = bytearray(), 0
            while not received or len(received) < count * (4 + int.from_bytes(received[:4], "big")):
                client.socket.settimeout(0)
                with suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    while sent < len(requests):
                        sent += client.socket.send(requests[sent : sent + 16384])
                client.socket.settimeout(10)
                received += client.socket.recv(16384)
                time.sleep(0.005)
                client.socket.settimeout(0)
                with suppress(ssl.SSLWantReadError):
                    for _ in range(30):
                        received += client.socket.recv(16384)


class TestReloading:
    def test_a_changed_file(
        self, server: Signed, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("duralog.broker.net.server._RELOAD_MS", 10)
        path = server.written(tmp_path / "broker.pem")
        with serving({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}) as (_, connect):
            first = secured(connect(), authority.pem)
            other = Authority("other")
            path.write_text("half a cert")
            other.sign().written(tmp_path / "new.pem").rename(path)

            def is_new() -> bool:
                try:
                    return bool(secured(connect(), other.pem).ask(API_VERSIONS, 0).error_code == 0)
                except OSError:
                    return False

            wait_until(is_new)
            assert first.ask(API_VERSIONS, 0).error_code == 0

    def test_a_changed_config(self, server: Signed, tmp_path: Path) -> None:
        path = server.written(tmp_path / "broker.pem")
        other = Authority("other")
        new = other.sign().written(tmp_path / "new.pem")
        with serving({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}) as (broker, connect):
            broker.store.alter_configs_of(4, "1", {"listener.name.ssl.ssl.keystore.location": str(new)})

            def is_new() -> bool:
                try:
                    return bool(secured(connect(), other.pem).ask(API_VERSIONS, 0).error_code == 0)
                except OSError:
                    return False

            wait_until(is_new)


class TestMapping:
    @pytest.mark.parametrize(
        ("rules", "name", "user"),
        [
            ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
            ("", "CN=a,O=b", "CN=a,O=b"),
            ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=kafka,OU=ServiceUsers,O=x", "kafka"),
            ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=.*$/$1@$2/L, DEFAULT", "CN=Ab,OU=Cd,O=e,L=f", "ab@cd"),
            ("RULE:^CN=(.*?)$/$1/U,DEFAULT", "CN=ab", "AB"),
            ("RULE:^CN=nothing$/x/,DEFAULT", "CN=ab", "CN=ab"),
            ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT", "O=x,CN=Hi.there,C=y", "hi.there"),
            ("RULE:^CN=(\\w+)$/$1/,DEFAULT", "CN=jürgen", "CN=jürgen"),
        ],
    )
    def test_rules(self, rules: str, name: str, user: str) -> None:
        assert PrincipalMapping(rules).user(name) == user

    def test_none_fits(self) -> None:
        with pytest.raises(DuralogError, match="No rules apply to CN=a"):
            PrincipalMapping("RULE:^CN=b$/x/").user("CN=a")

    @pytest.mark.parametrize("rules", ["RULE:(/x/", "RULE:a/$1/", "NONE", "RULE:a", "DEFAULT;x"])
    def test_rules_that_are_none(self, rules: str) -> None:
        with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
            PrincipalMapping(rules)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ([(NameOID.COMMON_NAME, "carol"), (NameOID.ORGANIZATION_NAME, "Acme, Inc.")], "O=Acme\\, Inc.,CN=carol"),
            ([(NameOID.COMMON_NAME, 'a+b"c\\d<e>f;g=h')], 'CN=a\\+b\\"c\\\\d\\<e\\>f\\;g\\=h'),
            ([(NameOID.COMMON_NAME, "#x")], "CN=\\#x"),
            ([(NameOID.COMMON_NAME, " lead and trail ")], "CN=\\ lead and trail\\ "),
            ([(NameOID.COMMON_NAME, "  ")], "CN=\\ \\ "),
            ([(NameOID.COMMON_NAME, "Jürgen 中")], "CN=Jürgen 中"),
            (
                [(NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "m")],
                "CN=m,1.2.840.113549.1.9.1=#16056140622e63",
            ),
            (
                [(NameOID.DOMAIN_COMPONENT, "example"), (NameOID.DOMAIN_COMPONENT, "com"), (NameOID.USER_ID, "u1")],
                "UID=u1,DC=com,DC=example",
            ),
            ([(NameOID.STREET_ADDRESS, "s 1"), (NameOID.SERIAL_NUMBER, "12")], "2.5.4.5=#13023132,STREET=s 1"),
        ],
    )
    def test_names_are_written_as_by_java(self, authority: Authority, name: list[Any], text: str) -> None:
        """The texts are those of `X500Principal.getName`, of OpenJDK 17."""
        assert subject_of(authority.sign(*name).certificate.public_bytes(Encoding.DER)) == text

    def test_certificates_cut_short(self, server: Signed) -> None:

        data = server.certificate.public_bytes(Encoding.DER)
        assert subject_of(data) == "CN=localhost"
        for end in range(len(data)):
            with pytest.raises(DuralogError):
                subject_of(data[:end])
