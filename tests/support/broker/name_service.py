"""A name service of the test's own in place of the system's: slow when the test says so, and it remembers who asked."""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Any

import pytest

_SECONDS = 60.0
_BY_NAME = ("gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo", "getfqdn")


class NameService:
    """Answers from `known`. While `is_up` is not set, a name waits for it; an address is answered at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.known: dict[str, list[str]] = {}
        self.is_up = threading.Event()
        self.is_up.set()
        self.asked: list[tuple[str, str]] = []
        """The names in the order of the questions, with the thread that asked."""
        self._look_up = socket.getaddrinfo
        patch.setattr(socket, "getaddrinfo", self._getaddrinfo)
        for name in _BY_NAME:
            patch.setattr(socket, name, self._refuse_others)

    def threads_that_asked(self) -> set[str]:
        return {thread for _, thread in self.asked}

    def names(self) -> list[str]:
        return [name for name, _ in self.asked]

    def _getaddrinfo(self, host: str, *arguments: Any, **options: Any) -> Any:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return self._look_up(host, *arguments, **options)
        self.asked.append((host, threading.current_thread().name))
        assert self.is_up.wait(_SECONDS)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = [self._look_up(address, *arguments, **options) for address in self.known[host]]
        return [each for answers in found for each in answers]

    def _refuse_others(self, *arguments: Any, **_: Any) -> Any:
        self.asked.append((str(arguments), threading.current_thread().name))
        raise AssertionError("there is another way to look up names")
