"""Clients that connect and say nothing: they cannot lock out others, and are gone soon."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from websockets.sync.client import ClientConnection, connect

import duralog
from tests.support.broker.certificates import Authority

OPEN_FILES = 256
"""Of the console's process: it accepts half as many connections, and a quarter from one address."""
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


class Served(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    tls: ssl.SSLContext | None

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def status(self, path: str) -> int:
        if self.tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def silent(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


@contextmanager
def served(folder: Path, *, tls: bool) -> Iterator[Served]:
    duralog.open(folder / "data").close()
    options = ["--listen", "127.0.0.1:0", "--no-browser"]
    context = None
    if tls:
        signed = Authority().sign()
        (folder / "console.pem").write_text(signed.certificate_pem + signed.key_pem())
        options += ["--certificate", str(folder / "console.pem")]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    command = [sys.executable, "-m", "duralog", "console", str(folder / "data"), *options]
    limited = ["sh", "-c", f'ulimit -n {OPEN_FILES}; exec "$@"', "sh", *command]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        found = re.search(r":(\d+)/", ready)
        assert found is not None, ready
        try:
            yield Served(process, int(found[1]), context)
        finally:
            process.terminate()


def kept_alive(page: ClientConnection) -> str:
    """Answer pings until the console answers a greeting. Returns that."""
    while not (message := str(page.recv())).startswith("40{"):
        if message == "2":
            page.send("3")
    return message


@pytest.mark.parametrize("tls", [False, True])
def test_silent_connections_lock_nobody_out(tmp_path: Path, tls: bool) -> None:
    with served(tmp_path, tls=tls) as console, ExitStack() as opened:
        address = f"{'wss' if tls else 'ws'}://127.0.0.1:{console.port}{SOCKET}"
        page = opened.enter_context(connect(address, ssl=console.tls, open_timeout=60, proxy=None))
        answer = opened.enter_context(ThreadPoolExecutor(1)).submit(kept_alive, page)
        silent = [opened.enter_context(console.silent()) for _ in range(OPEN_FILES)]
        assert [console.status("/") for _ in range(3)] == [200] * 3
        assert console.descriptors < OPEN_FILES * 3 // 4
        for one in silent:
            with suppress(ConnectionResetError):
                assert one.recv(1) == b"", "each is closed by the console"
        page.send("40")
        assert answer.result(60), "the socket of a page stays"
        console.process.terminate()
        _, log = console.process.communicate(timeout=60)
    warnings = log.splitlines()
    assert len(warnings) == 1
    assert "64 connections are open, 64 of them from 127.0.0.1: the most are 128" in warnings[0]
    assert console.process.returncode == 0


def test_a_body_that_never_comes_ends_the_connection(tmp_path: Path) -> None:
    with served(tmp_path, tls=False) as console, console.silent() as client:
        head = f"POST {SOCKET.replace('websocket', 'polling')} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n"
        client.sendall(f"{head}Content-Length: 10\r\n\r\n".encode())
        while client.recv(1 << 16):
            pass
