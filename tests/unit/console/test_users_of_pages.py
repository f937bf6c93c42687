"""Whose page a message may be about, and which proxies may name a user."""

from __future__ import annotations

import ipaddress
import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nicegui")

from nicegui import Client

from duralog.broker.security.web_users import HEADER, Role, UserEntry, WebUser
from duralog.console.login import TrustedHeader
from duralog.console.socket_messages import is_understood
from duralog.console.viewers import SCOPE_KEY, Viewer


def viewer(name: str, role: Role = Role.LOOK) -> Viewer:
    return Viewer(WebUser(name, UserEntry(name, role, HEADER, "")), False, lambda: True)


def packet(page: str, **more: Any) -> str:
    about = {"client_id": page, "tab_id": "t", "document_id": "d", "old_tab_id": None, **more}
    return "42" + json.dumps(["handshake", about])


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> str:
    """A page that was made for ana."""
    request = SimpleNamespace(scope={SCOPE_KEY: viewer("ana")})
    monkeypatch.setitem(Client.instances, "of-ana", SimpleNamespace(_request=request, request=request, elements={}))
    return "of-ana"


def test_a_page_hears_its_own_user_only(page: str) -> None:
    assert is_understood(packet(page), viewer("ana"))
    assert not is_understood(packet(page), viewer("eve"))
    assert not is_understood(packet(page), viewer("ana", Role.ADMINISTER)), "the line of the user is another by now"
    event = "42" + json.dumps(["event", {"client_id": page, "id": 1, "listener_id": "l", "args": []}])
    assert is_understood(event, viewer("ana"))
    assert not is_understood(event, viewer("eve"))


def test_a_page_that_is_gone_concerns_no_one(page: str) -> None:
    assert is_understood(packet("gone"), viewer("eve"))


def test_without_users_every_page_is_for_everyone(page: str) -> None:
    assert is_understood(packet(page), None)


def test_a_page_without_a_user_is_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Client.instances, "of-none", SimpleNamespace(_request=None, elements={}))
    assert not is_understood(packet("of-none"), viewer("ana"))


@pytest.mark.parametrize(
    ("proxies", "address", "is_trusted"),
    [
        ((), "127.0.0.1", True),
        ((), "::1", True),
        ((), "::ffff:127.0.0.1", True),
        ((), "10.0.0.1", False),
        (("10.0.0.0/8",), "10.1.2.3", True),
        (("10.0.0.0/8",), "::ffff:10.1.2.3", True),
        (("10.0.0.0/8",), "11.0.0.1", False),
        (("10.0.0.0/8",), "127.0.0.1", False),
        (("192.168.0.7",), "192.168.0.7", True),
        (("192.168.0.7",), "192.168.0.8", False),
        (("fd00::/8", "10.0.0.1"), "fd12::1", True),
        (("fd00::/8",), "10.0.0.1", False),
        (("10.0.0.0/8",), "a socket", False),
    ],
)
def test_only_trusted_proxies_name_users(proxies: tuple[str, ...], address: str, is_trusted: bool) -> None:
    header = TrustedHeader("X-User", tuple(map(ipaddress.ip_network, proxies)))
    scope = {"client": (address, 1), "headers": [(b"x-user", b" ana ")]}
    assert header.user_name(scope) == ("ana" if is_trusted else None)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-user", b"ana"), (b"x-user", b"eve")],
        [(b"x-user", b"\xff")],
        [(b"x-user", b" ")],
        [(b"x-users", b"ana")],
    ],
    ids=["none", "two", "no text", "empty", "another"],
)
def test_headers_that_name_no_user(headers: list[tuple[bytes, bytes]]) -> None:
    assert TrustedHeader("X-User").user_name({"client": ("127.0.0.1", 1), "headers": headers}) is None
    assert TrustedHeader("X-User").user_name({"client": None, "headers": [(b"x-user", b"ana")]}) is None
