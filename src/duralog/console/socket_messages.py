"""Checks the messages that browsers send on the sockets of their pages, before the toolkit reads them.

The toolkit expects only messages of its own script, and fails with a traceback on others. So only valid messages are
passed on; others are dropped, and logged once for each connection:

    packet    2 | 2probe | 3 | 3probe | 5 | 6 (keeping alive, upgrading) | 1 (the end) | 4 message
    message   0 [object] (hello) | 1 (goodbye) | 2 [number] ["handshake" | "event" | "ack" | ..., object]

A packet is a frame of a web socket or, where there is none, a part of the body of a request. It may name only pages of
the user that the socket belongs to.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from nicegui import Client, json

from duralog.console.access import Application, Message, Receive, Scope, Send, refuse
from duralog.console.viewers import Viewer, viewer_of, viewer_of_page

SOCKET_PATH = "/_nicegui_ws/"
LARGEST_BYTES = 1_000_000
"""Of a frame or a body, as the toolkit announces it to browsers."""

_logger = logging.getLogger(__name__)

_BETWEEN_PACKETS = "\x1e"
_KEEPING = frozenset({"1", "2", "3", "5", "6", "2probe", "3probe"})
_EVENT = re.compile(r"42[0-9]{0,9}(?=\[)")
_LEVELS = frozenset({"debug", "info", "warning", "error"})
_BAD_REQUEST = 400


class CheckedSockets:
    """An ASGI application whose sockets receive only valid messages."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope["path"].startswith(SOCKET_PATH):
            if not _is_greeting(scope):
                await refuse(scope, receive, send, _BAD_REQUEST, "this is not a page of the console")
                return
            if scope["type"] == "websocket":
                receive = _only_understood(receive, viewer_of(scope))
            elif scope["method"] == "POST":
                body = await _understood_body(receive, viewer_of(scope))
                if body is None:
                    await refuse(scope, receive, send, _BAD_REQUEST, "no page of the console sends this")
                    return
                receive = _once(body)
        await self._application(scope, receive, send)


def _is_greeting(scope: Scope) -> bool:
    """Whether the address of a socket names a page as the toolkit's script does. Later requests name their session."""
    query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
    if query.get("implicit_handshake") != "true" or "sid" in query:
        return True
    return _is_handshake(query) and _is_own_page(query["client_id"], viewer_of(scope))


def _only_understood(receive: Receive, viewer: Viewer | None) -> Receive:
    is_logged = False

    async def understood() -> Message:
        nonlocal is_logged
        while True:
            message = await receive()
            if message["type"] != "websocket.receive" or is_understood(message.get("text"), viewer):
                return message
            if not is_logged:
                is_logged = True
                _logger.warning("ignored a message that no page of this console sends")

    return understood


async def _understood_body(receive: Receive, viewer: Viewer | None) -> bytes | None:
    body = b""
    is_over = False
    while not is_over:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > LARGEST_BYTES:
            return None
        is_over = not message.get("more_body")
    try:
        packets = body.decode().split(_BETWEEN_PACKETS)
    except UnicodeDecodeError:
        return None
    return body if all(is_understood(packet, viewer) for packet in packets) else None


def _once(body: bytes) -> Receive:
    left = [body]

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return {"type": "http.disconnect"}

    return receive


def is_understood(packet: str | None, viewer: Viewer | None = None) -> bool:
    """`None` is a frame of bytes, which no page sends."""
    if packet is None or len(packet) > LARGEST_BYTES:
        return False
    if packet in _KEEPING or packet in ("40", "41"):
        return True
    if packet.startswith("40{"):
        return isinstance(_parsed(packet[2:]), dict)
    if (head := _EVENT.match(packet)) is None:
        return False
    match _parsed(packet[head.end() :]):
        case [str(name), {"client_id": str()} as about] if name in _EVENTS:
            return _is_own_page(about["client_id"], viewer) and _EVENTS[name](about)
    return False


def _is_own_page(page: str, viewer: Viewer | None) -> bool:
    """Whether the page, if it exists, was created for the user of the socket."""
    if viewer is None or (client := Client.instances.get(page)) is None:
        return True
    owner = viewer_of_page(client)
    return owner is not None and owner.user == viewer.user


def _is_handshake(about: Mapping[str, Any]) -> bool:
    number = about.get("next_message_id")
    return (
        all(isinstance(about.get(name), str) for name in ("client_id", "tab_id", "document_id"))
        and isinstance(about.get("old_tab_id"), str | None)
        and (number is None or _is_number(number))
    )


def _is_event(about: Mapping[str, Any]) -> bool:
    """Whether it is an event of a listener that the element has. A missing element is not an error: the page may have
    changed since.
    """
    number, listener, given = about.get("id"), about.get("listener_id"), about.get("args", [])
    if not isinstance(number, int) or not isinstance(listener, str) or not isinstance(given, list):
        return False
    if not all(value is None or (isinstance(value, str) and _parsed(value) is not _NOTHING) for value in given):
        return False
    client = Client.instances.get(about["client_id"])
    element = None if client is None else client.elements.get(number)
    return element is None or listener in element._event_listeners


def _is_log(about: Mapping[str, Any]) -> bool:
    message = about.get("message")
    return about.get("level") in _LEVELS and isinstance(message, str) and message.isprintable()


_EVENTS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "handshake": _is_handshake,
    "event": _is_event,
    "ack": lambda about: isinstance(about.get("next_message_id"), int),
    "javascript_response": lambda about: isinstance(about.get("request_id"), str),
    "log": _is_log,
}
_NOTHING = object()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _NOTHING


def _is_number(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.isascii() and value.isdecimal())
