"""Which clients the console accepts, and what its pages may load.

A console without users (`duralog.console.login`) trusts every client that reaches its address, which is the loopback
interface by default. A page of another site, open in the same browser, must not reach it:

| attack | answer |
|---|---|
| a name of the attacker that resolves to this address (DNS rebinding) | the Host header must be the address of the
listener |
| a socket or a request from a page of another site | an Origin header, if there is one, must match the Host |
| an image, a script or a frame of another site, which have no Origin | the browser's Sec-Fetch headers: only links are
allowed |
| the console in a frame of another site | `frame-ancestors 'none'` |
| anything that makes a page load or send something elsewhere | a content security policy that allows only this address
|

Every request is checked here, those of pages and those of their sockets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from duralog.broker.net.http_hosts import HttpHosts, is_of_another_site

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_FORBIDDEN = 403
_MISDIRECTED = 421
_POLICY = "; ".join(
    (
        "default-src 'self'",
        # The toolkit compiles its templates in the browser and starts itself with a script in the page.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not "no-referrer": the form of the log-in would have an Origin of null.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class GuardedApplication:
    """An ASGI application behind the rules above."""

    def __init__(self, application: Application, *, host: str, more_hosts: Iterable[str] = ()) -> None:
        """`more_hosts` are other names under which the console is reached, by a proxy or a certificate."""
        self._application = application
        self._hosts = HttpHosts(host, more_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        refusal = self.refusal(scope["headers"])
        if refusal is not None:
            await refuse(scope, receive, send, *refusal)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._application(scope, receive, send_with_headers)

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """The status and reason with which a request with these headers is refused; None if it is accepted."""
        given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        hosts = [value for name, value in given if name == "host"]
        if not self._hosts.allow(hosts):
            return _MISDIRECTED, "this console answers to its own address only: see duralog console --host"
        if is_of_another_site(hosts[0], given):
            return _FORBIDDEN, "a page of another site may not use this console"
        return None


async def refuse(
    scope: Scope, receive: Receive, send: Send, status: int, why: str, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer a request, or the opening of a socket, with a status and a sentence. `more` are headers."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    body = f"{why}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        *_HEADERS,
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def plain_address(address: str) -> str:
    """An IPv4 address as such, also on a socket of IPv6."""
    return address.removeprefix("::ffff:")


def network_of(address: str) -> str:
    """The network that failed log-ins and connections are counted for: one IPv6 user has 2^64 addresses."""
    try:
        found = ipaddress.ip_address(plain_address(address))
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((int(found), 64), strict=False))
