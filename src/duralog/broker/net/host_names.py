"""The addresses of host names, looked up on a few threads: the event loop never waits for a name service.

`follow` says which names are wanted. A name has no addresses until it is resolved. One that cannot be resolved is
logged once and tried again, less and less often. One that is resolved keeps its addresses as long as it is wanted, as
in Kafka.

A lookup cannot be cancelled. A name service that hangs keeps at most `_MOST_THREADS` threads, which do not hold up the
end of the process.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from duralog.broker.net.log_lines import one_line
from duralog.broker.net.timers import Timers

_MOST_THREADS = 4
_PATIENCE_MS = 10_000
"""A name that takes longer is logged as one that cannot be resolved. Its answer counts whenever it comes."""
_FIRST_RETRY_MS, _LONGEST_RETRY_MS = 30_000, 600_000


class HostNames:
    """Only the loop's thread uses it."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], timers: Timers, logger: logging.Logger) -> None:
        self._call_soon = call_soon
        self._timers = timers
        self._logger = logger
        self._wanted: frozenset[str] = frozenset()
        self._when_found: Callable[[], None] = lambda: None
        self._found: dict[str, frozenset[str]] = {}
        self._failures: dict[str, int] = {}
        self._logged: set[str] = set()
        self._threads = 0
        self._lock = threading.Lock()
        """Guards what the threads use, too: the queue and what they are asking for."""
        self._queue: deque[str] = deque()
        self._asking: set[str] = set()

    def follow(self, names: frozenset[str], when_found: Callable[[], None]) -> None:
        """Look up these names and no others. `when_found` is called whenever one of them is resolved."""
        self._wanted, self._when_found = names, when_found
        self._found = {name: found for name, found in self._found.items() if name in names}
        self._failures = {name: count for name, count in self._failures.items() if name in names}
        self._logged &= names
        with self._lock:
            self._queue = deque(name for name in self._queue if name in names)
        self._ask(names)

    def close(self) -> None:
        """Look up no more names. Threads that are asking for one end when they are answered."""
        self.follow(frozenset(), lambda: None)

    def addresses(self, name: str) -> frozenset[str]:
        """As connections have them. Empty while the name is not resolved."""
        return self._found.get(name, frozenset())

    def _ask(self, names: frozenset[str]) -> None:
        with self._lock:
            new = sorted(names & self._wanted - self._found.keys() - self._asking - set(self._queue))
            self._queue.extend(new)
        if not new:
            return
        self._timers.after(_PATIENCE_MS, partial(self._log_slow, new))
        for _ in range(min(len(new), _MOST_THREADS - self._threads)):
            self._start_thread()

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._look_up, name="duralog-host-names", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no room for one more. What no other thread looks up is tried again with the next retry.
            self._timers.after(_FIRST_RETRY_MS, self._start_if_needed)
        else:
            self._threads += 1

    def _start_if_needed(self) -> None:
        if self._queue and self._threads < _MOST_THREADS:
            self._start_thread()

    def _look_up(self) -> None:
        """On a thread: until the queue is empty."""
        while True:
            with self._lock:
                if not self._queue:
                    break
                name = self._queue.popleft()
                self._asking.add(name)
            found, reason = _resolved(name)
            with self._lock:
                self._asking.discard(name)
            self._call_soon(partial(self._end_lookup, name, found, reason))
        self._call_soon(self._end_thread)

    def _end_thread(self) -> None:
        self._threads -= 1
        # A name may have come after the thread had seen that there was none.
        self._start_if_needed()

    def _end_lookup(self, name: str, found: frozenset[str], reason: str) -> None:
        if name not in self._wanted or name in self._found:
            return
        if found:
            self._found[name] = found
            self._when_found()
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        self._log(name, reason)
        delay_ms = min(_FIRST_RETRY_MS << min(failures - 1, 10), _LONGEST_RETRY_MS)
        self._timers.after(delay_ms, lambda: self._ask(frozenset({name})))

    def _log_slow(self, names: list[str]) -> None:
        for name in names:
            if name in self._wanted and name not in self._found:
                self._log(name, f"no answer in {_PATIENCE_MS // 1000} s")

    def _log(self, name: str, reason: str) -> None:
        if name not in self._logged:
            self._logged.add(name)
            text = (
                f"max.connections.per.ip.overrides: {name} cannot be resolved ({reason}): max.connections.per.ip"
                " applies to it until it can; it is tried again"
            )
            self._logger.warning("%s", one_line(text))


def _resolved(name: str) -> tuple[frozenset[str], str]:
    """Its addresses, or none and the reason."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return frozenset(), error.strerror or str(error)
    except ValueError as error:  # It cannot be a name: too long, or with characters that no name has.
        return frozenset(), str(error)
    return frozenset(str(address[0]) for *_, address in answers), "it has no addresses"
