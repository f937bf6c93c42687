"""What the console refuses: other sites, names that do not exist, anything outside of its own files."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from websockets.sync.client import connect

import duralog
from bench.workers.console_process import RunningConsole
from tests.console.conftest import Visit, complaints

Consoles = Callable[[str], RunningConsole]

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
PAGE_ID = "11111111-2222-3333-4444-555555555555"
NONSENSE = (
    "",
    "9",
    "x",
    "4",
    "4x",
    "42",
    "42[",
    "42[]",
    "42{}",
    "42" + "[" * 20_000,
    "44",
    "45",
    "47",
    '451-["event", {"_placeholder": true, "num": 0}]',
    "40/other,",
    '42["connect"]',
    '42["event"]',
    '42["event", null]',
    '42["event", {"client_id": []}]',
    '42["handshake", {}]',
    '42["ack", {}]',
    "42"
    + json.dumps(["handshake", {"client_id": PAGE_ID, "tab_id": "t", "document_id": "d", "next_message_id": "soon"}]),
    "42" + json.dumps(["event", {"client_id": PAGE_ID, "id": 4, "listener_id": "l", "args": ["{"]}]),
    "42" + json.dumps(["log", {"client_id": PAGE_ID, "level": "error", "message": "two\nlines"}]),
    b"\x00\x01",
    "2" * 1_000_001,
)
"""What no script of the console's pages sends on their sockets."""
MISSING = {
    "a page": "/nothing/here",
    "a topic": "/topic/nothing",
    "a topic with a strange name": "/topic/%3Cscript%3Ewindow.harmed%20%3D%201%3C%2Fscript%3E",
    "a topic above the directory": "/topic/..%2f..%2fetc",
    "a partition": "/topic/orders/7",
    "a partition that is no number": "/topic/orders/first",
    "a negative partition": "/topic/orders/-1",
    "a very large partition": "/topic/orders/99999999999999999999",
    "records of all partitions of a missing topic": "/topic/nothing/records",
    "records of a missing topic": "/topic/nothing/0/records",
    "records of a missing partition": "/topic/orders/7/records",
    "compaction of a missing topic": "/topic/nothing/0/compaction",
    "a group": "/groups/nobody",
    "a group with a strange name": "/groups/%3Cimg%20src%3Dx%20onerror%3Dwindow.harmed%3D1%3E",
}


def ask(
    console: RunningConsole, path: str, *, method: str = "GET", body: str = "", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(console.address).netloc, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode("latin-1") or None)
        response = connection.getresponse()
        response.read()
        return response
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path", ["/", "/topic/orders", "/download/orders?as=csv", "/health", SOCKET, "/_nicegui/anything"]
)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "169.254.169.254"])
def test_another_host_is_refused(consoles: Consoles, path: str, host: str) -> None:
    assert ask(consoles("shop"), path, Host=host).status == 421


@pytest.mark.parametrize("path", ["/", SOCKET])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example"])
def test_a_page_of_another_site_is_refused(consoles: Consoles, path: str, origin: str) -> None:
    assert ask(consoles("shop"), path, Origin=origin).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("kind", ["image", "script", "iframe", "empty"])
def test_nothing_of_another_site_may_load_a_page(consoles: Consoles, site: str, kind: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": kind, "Sec-Fetch-Mode": "no-cors"}
    assert ask(consoles("shop"), "/", **headers).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
def test_a_link_may_lead_here(consoles: Consoles, site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}
    assert ask(consoles("shop"), "/", **headers).status == 200


def test_a_socket_of_another_site_is_refused(consoles: Consoles) -> None:
    address = urlsplit(consoles("shop").address)
    request = (
        f"GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {address.netloc}\r\n"
        "Origin: http://evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(request.encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 403")


def test_what_no_page_says_is_not_listened_to(consoles: Consoles) -> None:
    console = consoles("shop")
    address = console.address.replace("http", "ws") + SOCKET.replace("polling", "websocket")
    with connect(address, open_timeout=60) as connection:
        assert str(connection.recv(60)).startswith("0{")
        for message in NONSENSE:
            connection.send(message)
        connection.send("40")
        assert str(connection.recv(60)).startswith("40{"), "what makes sense is still answered"
        assert "no page of this console" in console.log
    assert complaints(console) == []


@pytest.mark.parametrize("body", ["9", "42[", '2\x1e42["event"]', "\xff"])
def test_what_no_page_says_is_refused_without_a_socket_too(consoles: Consoles, body: str) -> None:
    assert ask(consoles("shop"), SOCKET, method="POST", body=body).status == 400


def test_a_socket_for_an_unknown_page_is_refused(consoles: Consoles) -> None:
    assert ask(consoles("shop"), f"{SOCKET}&implicit_handshake=true").status == 400


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_the_names_of_loopback_are_its_own(consoles: Consoles, name: str) -> None:
    port = urlsplit(consoles("shop").address).port
    assert ask(consoles("shop"), "/", Host=f"{name}:{port}").status == 200


def test_it_listens_on_loopback_only(consoles: Consoles) -> None:
    assert urlsplit(consoles("shop").address).hostname == "127.0.0.1"


@pytest.mark.parametrize(("listen", "is_warned"), [(":0", True), ("localhost:0", False)])
def test_an_address_that_others_reach_is_warned_of(tmp_path: Path, listen: str, is_warned: bool) -> None:
    duralog.open(tmp_path).close()
    options = ["--listen", listen, "--no-browser", "--insecure"]
    command = [sys.executable, "-m", "duralog", "console", str(tmp_path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        assert "ready on" in console.stdout.readline()
        console.terminate()
        _, log = console.communicate(timeout=60)
    assert console.returncode == 0
    assert ("there are no passwords" in log) is is_warned


def test_answers_may_not_be_framed_or_load_from_elsewhere(consoles: Consoles) -> None:
    headers = ask(consoles("shop"), "/").headers
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/..%2f..%2f..%2fetc/passwd", "/assets/..%2f..%2fcommand.py", "//etc/passwd"])
def test_no_file_of_the_machine_is_served(consoles: Consoles, path: str) -> None:
    assert ask(consoles("shop"), path).status == 404


@pytest.mark.parametrize("path", MISSING.values(), ids=MISSING.keys())
def test_what_is_missing_is_said_in_a_page(visit: Visit, path: str) -> None:
    tab = visit("shop", path, status=404)
    expect(tab.part("page-missing")).to_be_visible()
    expect(tab.part("problem-sentence")).not_to_be_empty()
    tab.part("nav-overview").click()
    expect(tab.part("title")).to_have_text("Overview")
    assert tab.page.evaluate("() => window.harmed") is None


@pytest.mark.parametrize(
    "query", ["offset=x", "offset=-5", "offset=99999999999999999999999", "time=soon", "key=%ff%00"]
)
def test_a_query_that_makes_no_sense_is_no_error(visit: Visit, query: str) -> None:
    tab = visit("shop", f"/topic/orders/0/records?{query}")
    expect(tab.part("page-records")).to_be_visible()
