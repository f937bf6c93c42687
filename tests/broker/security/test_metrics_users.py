"""`/metrics` for users only, and with TLS."""

from __future__ import annotations

import base64
import http.client
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from duralog.broker.broker import Broker
from duralog.broker.net import http_server
from duralog.broker.net.http_server import HttpHandler, HttpServer
from duralog.broker.net.listening import Address, WebAddress
from duralog.broker.net.log_lines import LogLines
from duralog.broker.security.web_tls import WebTls
from duralog.broker.security.web_users import Role, WebUsers, password_entry, token_entry
from duralog.console.sources import cleaner_metrics
from duralog.console.sources.cleaner_metrics import CleanerMetrics
from duralog.console.sources.metrics_access import MetricsAccess, read_metrics_access
from duralog.errors import InvalidConfig
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
        self.address = WebAddress(Address("127.0.0.1", 0), tls=tls, users=WebUsers(str(users)))
        self.port = 0

    def connect(self, port: int = 0) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=self.authority.pem)
        address = ("127.0.0.1", port or self.port)
        return context.wrap_socket(socket.create_connection(address, 60), server_hostname="localhost")

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
        patched.setattr(http_server, "SLOWEST_CLIENT_SECONDS", 60.0)
        patched.setattr(cleaner_metrics, "_PATIENCE_SECONDS", 60.0)
        broker.start()
        assert broker.metrics is not None
        guarded.port = broker.metrics.address.port
        yield guarded


@pytest.mark.parametrize("proof", [f"token={TOKEN}", f"username=ana\npassword={PASSWORD}"], ids=["token", "password"])
def test_the_console_reads_them(guarded: Guarded, tmp_path: Path, proof: str) -> None:
    authority, file = tmp_path / "ca.pem", tmp_path / "metrics.properties"
    authority.write_text(guarded.authority.pem)
    file.write_text(f"{proof}\nsecurity.protocol=SSL\nssl.ca.location={authority}\n")
    metrics = CleanerMetrics(f"localhost:{guarded.port}", read_metrics_access(str(file)))
    metrics.step()
    assert metrics.note is None
    assert "cleanings" in metrics.figures


def test_the_console_says_what_it_lacks(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(guarded.authority.pem)
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
    for given, reason in (
        (settings, "give the token or password of a user in --metrics-config-file"),
        ({**settings, "token": "hunter2"}, "give the token or password of a user"),
        ({"security.protocol": "SSL"}, "certificate verify failed"),
    ):
        metrics = CleanerMetrics(f"localhost:{guarded.port}", MetricsAccess(given))
        metrics.step()
        assert reason in str(metrics.note)
        assert "hunter2" not in str(metrics.note)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tokn=hunter2", "tokn is not known"),
        ("token=hunter2\nusername=a\npassword=b", "give token, or username and password"),
        ("token=", "token: expected printable ASCII"),
        ("token=hunter2\\u000a", "token: expected printable ASCII"),
        ("username=a", "username and password go together"),
        ("security.protocol=SASL_SSL", "expected PLAINTEXT or SSL"),
        ("ssl.ca.location=x", "needs security.protocol=SSL"),
        ("security.protocol=SSL\nssl.ca.location=/none", "/none cannot be loaded"),
    ],
)
def test_settings_of_the_console_that_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "metrics.properties"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=r"metrics\.properties") as caught:
        read_metrics_access(str(file))
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_token_does_not_follow_a_redirect() -> None:
    heard: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        metrics = CleanerMetrics(f"127.0.0.1:{server.server_port}", MetricsAccess({"token": TOKEN}))
        metrics.step()
        server.shutdown()
        thread.join()
    assert heard == ["/metrics"]
    assert "cannot be read: Found" in str(metrics.note)


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


def test_a_client_that_reads_slowly_is_closed(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of TLS, each piece that is sent has a timeout of its own: it reads enough of each."""
    size = 32 << 20

    class Large(HttpHandler):
        def respond(self) -> None:
            monkeypatch.setattr(http_server, "SLOWEST_CLIENT_SECONDS", 0.2)
            self.answer(200, "text/plain", bytes(size))

    place = WebAddress(Address("127.0.0.1", 0), tls=guarded.address.tls)
    server = HttpServer(place, Large, "large", LogLines(logging.getLogger("large"), lambda: 0.0))
    try:
        with guarded.connect(server.address.port) as slow:
            slow.sendall(b"GET / HTTP/1.0\r\n\r\n")
            received = 0
            with suppress(ConnectionError, ssl.SSLError):
                while part := slow.recv(1 << 14):
                    received += len(part)
                    time.sleep(0.001)
        assert received < size
    finally:
        server.close()


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
