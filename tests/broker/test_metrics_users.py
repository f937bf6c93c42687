"""`/metrics` for users only, and with TLS."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from duralog.broker import metrics_server
from duralog.broker.broker import Broker
from duralog.broker.net.listening import Address, MetricsAddress
from duralog.broker.security.web_tls import WebTls
from duralog.broker.security.web_users import Role, WebUsers, password_entry, token_entry
from tests.support.broker.certificates import Authority

LINE, TOKEN = token_entry("prometheus", Role.LOOK)
PASSWORD = "pass:word"


class Guarded:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        self.pem = folder / "metrics.pem"
        self.authority.sign().written(self.pem)
        self.now = 0.0
        users = folder / "users"
        users.write_text(f"{LINE}\n{password_entry('ana', Role.LOOK, PASSWORD)}\n")
        tls = WebTls(str(self.pem), None, lambda: self.now)
        self.address = MetricsAddress(Address("127.0.0.1", 0), tls=tls, users=WebUsers(str(users)))
        self.port = 0

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.authority.pem)
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 60), server_hostname="localhost")

    def status(self, authorization: str | None) -> tuple[int, str]:
        context = ssl.create_default_context(cadata=self.authority.pem)
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": authorization} if authorization else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("metrics"))
    with pytest.MonkeyPatch.context() as patched, Broker(None, metrics=guarded.address) as broker:
        # A test on a busy machine may be slow, too.
        patched.setattr(metrics_server, "_SLOWEST_CLIENT_SECONDS", 60.0)
        broker.start()
        assert broker.metrics is not None
        guarded.port = broker.metrics.address.port
        yield guarded


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", basic("ana", PASSWORD)], ids=["token", "password"])
def test_users_get_the_metrics(guarded: Guarded, given: str) -> None:
    status, text = guarded.status(given)
    assert status == 200
    assert "duralog_connections" in text


WRONG = (
    None,
    "Bearer",
    "Bearer x",
    f"bearer {TOKEN}x",
    "Basic",
    "Basic ?",
    "Basic /w==",
    "Digest a",
    basic("ana", "pass"),
)


@pytest.mark.parametrize("given", WRONG, ids=range(len(WRONG)))
def test_others_get_nothing(guarded: Guarded, given: str | None) -> None:
    status, text = guarded.status(given)
    assert status == 401
    assert "duralog_" not in text


def test_a_client_without_tls_holds_up_no_other(guarded: Guarded) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), 60):
        with socket.create_connection(("127.0.0.1", guarded.port), 60) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"duralog" not in plain.recv(1 << 16)
        assert guarded.status(f"Bearer {TOKEN}")[0] == 200


def test_a_new_certificate_is_used_and_a_broken_one_is_not(guarded: Guarded) -> None:
    served = []
    for text in (None, "broken", guarded.authority.sign().pem()):
        if text is not None:
            guarded.pem.write_text(text)
            guarded.now += 10
        with guarded.connect() as connection:
            served.append(connection.getpeercert(binary_form=True))
    assert served[0] == served[1]
    assert served[1] != served[2]
    assert guarded.status(f"Bearer {TOKEN}")[0] == 200


def test_wrong_passwords_are_bounded(guarded: Guarded) -> None:
    """The last test: this address is not asked for passwords for a minute."""
    found = [guarded.status(basic("zed", "x" * 2000))[0] for _ in range(11)]
    assert set(found) == {401, 429}
    assert guarded.status(basic("ana", PASSWORD))[0] == 429
    assert guarded.status(f"Bearer {TOKEN}")[0] == 200
