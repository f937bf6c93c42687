"""The names under which an HTTP server may be asked for.

A page of another site can let its own name mean our address (DNS rebinding) and then read what we answer. Its requests
have its name in the `Host` header, so a server answers to its own names only. A number cannot be made to mean another
machine: a server that listens on every address may be asked for by any.

A page of another site can also send requests to our own name, without reading what we answer. Browsers say so.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

from duralog.broker.net.listening import is_anywhere, is_loopback

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_OTHER_SITES = frozenset({"cross-site", "same-site"})
"""A site has all ports of its name: what is served on another port of this machine is not part of ours."""


class HttpHosts:
    """The names of one server. Any thread may ask."""

    def __init__(self, bound: str, more: Iterable[str] = ()) -> None:
        """`bound` is the host that it listens on, empty for every address."""
        self._is_anywhere = is_anywhere(bound)
        self._names = frozenset(name.lower() for name in more)
        if self._is_anywhere:
            self._names |= LOOPBACK_NAMES | {socket.gethostname().lower()}
            # Its full name is with the name service, which may take long to answer.
            threading.Thread(target=self._add_full_name, name="duralog-host-name", daemon=True).start()
        else:
            self._names |= LOOPBACK_NAMES | {bound.lower()} if is_loopback(bound) else {bound.lower()}

    def _add_full_name(self) -> None:
        self._names |= {socket.getfqdn().lower()}

    def allow(self, headers: list[str]) -> bool:
        """Whether a request with these `Host` headers may be answered. It must have one."""
        if len(headers) != 1:
            return False
        try:
            host = urlsplit(f"//{headers[0]}").hostname or ""
        except ValueError:
            return False
        return host in self._names or (self._is_anywhere and _is_address(host))


def is_of_another_site(host: str, headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a request for this `Host` comes from a page of another site. The names of its headers are in lower case.

    Only a link may lead here.
    """
    given = list(headers)
    ours = (f"http://{host.lower()}", f"https://{host.lower()}")
    is_elsewhere = any(name == "sec-fetch-site" and value in _OTHER_SITES for name, value in given)
    is_followed_link = ("sec-fetch-dest", "document") in given
    is_foreign = any(name == "origin" and value.lower() not in ours for name, value in given)
    return is_foreign or (is_elsewhere and not is_followed_link)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
