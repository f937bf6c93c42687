"""The log-in of the console: if it has users, every request and socket needs one.

| a request with | belongs to |
|---|---|
| the cookie of a session | the user that logged in at `/login` |
| `Authorization: Bearer TOKEN` | the user of the token |
| the header of `--trust-header`, from a trusted proxy | the user that the proxy names |

Others get the log-in page, or 401 if they do not ask for a page. The header is ignored if it comes from elsewhere.

A socket is checked when it opens and again with each of its messages, which come every few seconds: so it ends soon
after its session. Requests that change something (`/login`, `/logout`, the socket) are refused from other sites by
`duralog.console.access`, and the cookie is `SameSite=Lax`. Names, passwords, tokens and cookies are never logged.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote

from duralog.broker.net.listening import is_loopback
from duralog.broker.security.web_users import TooManyFailures, WebUser, WebUsers
from duralog.console.access import Application, Message, Receive, Scope, Send, network_of, plain_address, refuse
from duralog.console.sessions import LONGEST_SECONDS, Sessions
from duralog.console.ui import theme
from duralog.console.viewers import SCOPE_KEY, Viewer

_logger = logging.getLogger(__name__)

LOGIN, LOGOUT = "/login", "/logout"
_LARGEST_FORM_BYTES = 8192
_FAILED_SECONDS = 1.0
"""The delay of the answer to a failed log-in, for every cause."""
_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY = 401, 403, 429
_CLOSED = 1008
_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:20rem;margin:15vh auto;padding:0 1rem}h1{font-size:1.25rem}"
    "label{display:block;margin-top:1rem}input,button{box-sizing:border-box;width:100%;min-height:2.5rem;font:inherit}"
    "button{margin-top:1.5rem}"
)


@dataclass(frozen=True, slots=True)
class TrustedHeader:
    """The header in which a proxy names the user, and the proxies that may."""

    name: str
    proxies: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()
    """Only this machine, if there are none."""

    def user_name(self, scope: Scope) -> str | None:
        client = scope.get("client")
        if client is None or not self._is_trusted(client[0]):
            return None
        named = [value for name, value in scope["headers"] if name == self.name.lower().encode()]
        if len(named) != 1:
            return None
        try:
            return named[0].decode().strip() or None
        except UnicodeDecodeError:
            return None

    def _is_trusted(self, address: str) -> bool:
        if not self.proxies:
            return is_loopback(plain_address(address))
        try:
            found = ipaddress.ip_address(plain_address(address))
        except ValueError:
            return False
        return any(found in network for network in self.proxies)


class LoggedIn:
    """An ASGI application that only users reach."""

    def __init__(
        self, application: Application, users: WebUsers, *, header: TrustedHeader | None, is_secure: bool
    ) -> None:
        """`is_secure`: the console is served with TLS."""
        self._application = application
        self._users = users
        self._header = header
        self._is_secure = is_secure
        # With this prefix, browsers take the cookie only from this host, with TLS.
        self._cookie = "__Host-duralog" if is_secure else "duralog"
        self._sessions = Sessions()
        self._checks = ThreadPoolExecutor(2, thread_name_prefix="duralog-password")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] == LOGIN:
            await self._log_in(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"] == LOGOUT and scope["method"] == "POST":
            await self._log_out(scope, send)
            return
        viewer = self._viewer(scope)
        if viewer is None:
            await self._refuse(scope, receive, send)
            return
        scope[SCOPE_KEY] = viewer
        if scope["type"] == "websocket":
            receive = _while_valid(viewer, receive)
        await self._application(scope, receive, send)

    def _viewer(self, scope: Scope) -> Viewer | None:
        users = self._users
        token = self._session_token(scope)
        if token and (user := self._sessions.user(token)) is not None and users.has_still(user):
            return Viewer(user, True, lambda: self._sessions.user(token) is user and users.has_still(user))
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        found: WebUser | None = None
        if len(given) == 1 and given[0][:7].lower() == b"bearer ":
            found = users.with_token(given[0][7:].decode("latin-1").strip())
        elif self._header is not None and (name := self._header.user_name(scope)) is not None:
            found = users.with_header(name)
        if found is None:
            return None
        proved = found
        return Viewer(proved, False, lambda: users.has_still(proved))

    def _session_token(self, scope: Scope) -> str:
        cookies: SimpleCookie = SimpleCookie()
        try:
            for name, value in scope["headers"]:
                if name == b"cookie":
                    cookies.load(value.decode("latin-1"))
        except CookieError:
            return ""
        found = cookies.get(self._cookie)
        return "" if found is None else found.value

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        wants_page = scope["type"] == "http" and any(
            name == b"accept" and b"text/html" in value for name, value in scope["headers"]
        )
        if wants_page and scope["method"] == "GET" and self._users.has_passwords:
            query = scope["query_string"].decode("latin-1")
            path = quote(scope["path"]) + (f"?{query}" if query else "")
            await _redirect(send, f"{LOGIN}?next={quote(_own_path(path), safe='/')}")
            return
        headers = [(b"www-authenticate", b'Bearer realm="duralog"')]
        await refuse(scope, receive, send, _UNAUTHORIZED, "log in first: this console has users", headers)

    async def _log_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            query = _fields(scope["query_string"]) or {}
            await self._show_form(send, 200, query.get("next", "/"))
            return
        form = await _form(receive)
        if form is None:
            await refuse(scope, receive, send, 400, "expected the form of the log-in page")
            return
        way_back = form.get("next", "/")
        client = scope.get("client")
        loop = asyncio.get_running_loop()
        answer_at = loop.time() + _FAILED_SECONDS
        try:
            user = await loop.run_in_executor(
                self._checks,
                self._users.with_password,
                form.get("user", ""),
                form.get("password", ""),
                network_of(client[0] if client else ""),
            )
        except TooManyFailures:
            await self._show_form(
                send, _TOO_MANY, way_back, "There were too many failed log-ins. Try again in a minute."
            )
            return
        if user is None:
            _logger.warning("a log-in failed, from %s", client[0] if client else "an unknown address")
            await asyncio.sleep(answer_at - loop.time())
            await self._show_form(send, _UNAUTHORIZED, way_back, "The user or the password is wrong.")
            return
        self._sessions.close(self._session_token(scope))
        cookie = f"{self._cookie}={self._sessions.open(user)}; Max-Age={LONGEST_SECONDS}{self._cookie_attributes()}"
        await _redirect(send, _own_path(way_back), (b"set-cookie", cookie.encode()))

    async def _log_out(self, scope: Scope, send: Send) -> None:
        self._sessions.close(self._session_token(scope))
        cookie = f"{self._cookie}=; Max-Age=0{self._cookie_attributes()}"
        await _redirect(send, LOGIN, (b"set-cookie", cookie.encode()))

    def _cookie_attributes(self) -> str:
        return "; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if self._is_secure else "")

    async def _show_form(self, send: Send, status: int, way_back: str, problem: str = "") -> None:
        shown = f'<p role="alert" data-testid="login-problem">{escape(problem)}</p>' if problem else ""
        body = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="robots" content="noindex">'
            "<title>Log in · duralog</title>"
            f'<link rel="icon" href="data:image/svg+xml,{quote(theme.ICON)}">'
            f"<style>{_STYLE}</style></head><body><main><h1>duralog</h1>{shown}"
            f'<form method="post" action="{LOGIN}">'
            f'<input type="hidden" name="next" value="{escape(_own_path(way_back))}">'
            '<label for="user">User</label>'
            '<input id="user" name="user" autocomplete="username" required autofocus data-testid="login-user">'
            '<label for="password">Password</label><input id="password" name="password" type="password"'
            ' autocomplete="current-password" required data-testid="login-password">'
            '<button data-testid="login">Log in</button></form></main></body></html>'
        ).encode()
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _while_valid(viewer: Viewer, receive: Receive) -> Receive:
    async def receive_of_viewer() -> Message:
        message = await receive()
        if message["type"] == "websocket.receive" and not viewer.is_valid():
            return {"type": "websocket.disconnect", "code": _CLOSED}
        return message

    return receive_of_viewer


async def _redirect(send: Send, path: str, *headers: tuple[bytes, bytes]) -> None:
    start = [(b"location", path.encode("latin-1")), (b"content-length", b"0"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 303, "headers": [*start, *headers]})
    await send({"type": "http.response.body", "body": b""})


async def _form(receive: Receive) -> dict[str, str] | None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > _LARGEST_FORM_BYTES:
            return None
        if not message.get("more_body"):
            break
    return _fields(body)


def _fields(data: bytes) -> dict[str, str] | None:
    try:
        parsed = parse_qs(data.decode("ascii"), keep_blank_values=True, max_num_fields=10, errors="strict")
    except ValueError:
        return None
    return {name: values[0] for name, values in parsed.items()}


def _own_path(path: str) -> str:
    """A path of this console: after the log-in, no link may lead to another site."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isascii() and path.isprintable()
    return path if is_own else "/"
