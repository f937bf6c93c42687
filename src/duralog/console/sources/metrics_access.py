"""How to read a guarded `/metrics`: a properties file, since an argument could be seen by other users of the machine.

    token=...                           # or username and password
    security.protocol=SSL               # PLAINTEXT by default
    ssl.ca.location=/etc/ssl/our-ca.pem # the authorities of the system by default

Errors name the file and the setting, never a value. Redirects are not followed: the token is for this address.
"""

from __future__ import annotations

import base64
import ssl
import urllib.request
from collections.abc import Mapping
from typing import Any

from duralog.config.redirects import NoRedirects
from duralog.errors import CorruptRecord, DuralogError, InvalidConfig
from duralog.format.java_properties import decode_properties
from duralog.storage.disk.file_source import read_small

_PROTOCOL, _CA = "security.protocol", "ssl.ca.location"
_TOKEN, _USER, _PASSWORD = "token", "username", "password"
_KNOWN = frozenset({_PROTOCOL, _CA, _TOKEN, _USER, _PASSWORD})


class MetricsAccess:
    """Without settings: for everyone, and without TLS."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        given = settings or {}
        self.scheme = "https" if _protocol(given) == "SSL" else "http"
        self._authorization = _authorization(given)
        handlers: list[urllib.request.BaseHandler] = [NoRedirects()]
        if self.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=_context(given.get(_CA))))
        self._opener = urllib.request.build_opener(*handlers)

    def open(self, url: str, timeout: float) -> Any:
        """The response, as of `urlopen`."""
        headers = {} if self._authorization is None else {"Authorization": self._authorization}
        return self._opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)


def read_metrics_access(path: str) -> MetricsAccess:
    data = read_small(path)
    if data is None:
        raise DuralogError(f"{path}: there is no such file: check --metrics-config-file")
    try:
        return MetricsAccess(decode_properties(data).values)
    except CorruptRecord as error:
        raise error.in_file(path) from None
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from None


def _protocol(given: Mapping[str, str]) -> str:
    if unknown := sorted(given.keys() - _KNOWN):
        raise InvalidConfig(f"{unknown[0][:100]} is not known: give {', '.join(sorted(_KNOWN))}")
    protocol = given.get(_PROTOCOL, "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL"):
        raise InvalidConfig(f"{_PROTOCOL}: expected PLAINTEXT or SSL")
    if _CA in given and protocol != "SSL":
        raise InvalidConfig(f"{_CA} needs {_PROTOCOL}=SSL")
    return protocol


def _authorization(given: Mapping[str, str]) -> str | None:
    if _TOKEN in given:
        if _USER in given or _PASSWORD in given:
            raise InvalidConfig(f"give {_TOKEN}, or {_USER} and {_PASSWORD}")
        token = given[_TOKEN]
        if not token.isascii() or not token.isprintable() or not token:
            raise InvalidConfig(f"{_TOKEN}: expected printable ASCII")
        return f"Bearer {token}"
    if (_USER in given) != (_PASSWORD in given):
        raise InvalidConfig(f"{_USER} and {_PASSWORD} go together")
    if _USER not in given:
        return None
    return f"Basic {base64.b64encode(f'{given[_USER]}:{given[_PASSWORD]}'.encode()).decode()}"


def _context(authorities: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
        raise InvalidConfig(f"{_CA}: {authorities} cannot be loaded: {reason}") from None
