"""The event loop: waits for sockets, timers and other threads, and runs their callbacks.

Bare epoll, level-triggered. In one turn every socket that is ready is served once, with a bounded amount of work, then
callbacks of `call_soon` run, then timers that are due. Nothing that runs here may block.

What must always be true: an exception ends the callback that raised it, never the loop. A descriptor is closed at the
end of a turn, so that an event of the same turn cannot reach a new connection with the same number.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from duralog.broker.net.log_lines import error_text, one_line
from duralog.broker.net.timers import Timers

Work = Callable[[], None]
READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
PEER_CLOSED = select.EPOLLRDHUP
"""The peer sends no more. It may still read."""
BROKEN = select.EPOLLHUP | select.EPOLLERR
"""Nothing gets through any more. It is always listened for."""
HANGUP = BROKEN | PEER_CLOSED

_LONGEST_WAIT_SECONDS = 60.0
_EVENTS_PER_TURN = 256


def steady_clock_ms() -> float:
    return time.monotonic() * 1000


class Closable(Protocol):
    """A socket, plain or with TLS."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class EventLoop:
    """Only `call_soon` and `stop` may be called from other threads."""

    def __init__(self, logger: logging.Logger, clock_ms: Callable[[], float] = steady_clock_ms) -> None:
        self.timers = Timers(clock_ms)
        self.now_ms = clock_ms()
        """The time when this turn began."""
        self._logger = logger
        self._clock_ms = clock_ms
        self._epoll = select.epoll()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup, READABLE)
        self._callbacks: dict[int, Callable[[int], None]] = {self._wakeup: self._woken}
        self._soon: deque[Work] = deque()
        self._to_close: list[Closable] = []
        self._is_woken = False
        self._is_stopping = False
        self._is_polling = False
        self._waking = threading.RLock()
        """Held while another thread writes to the descriptor that wakes the loop, so that it is not closed meanwhile.

        Not a plain lock: a signal handler may wake the loop while its own thread does.
        """
        self._is_closed = False

    # Sockets

    def watch(self, descriptor: int, events: int, callback: Callable[[int], None]) -> None:
        """Call back with the events that have come, once in a turn, as long as they last."""
        self._epoll.register(descriptor, events)
        self._callbacks[descriptor] = callback

    def change(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        if self._callbacks.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def forget(self, connected: Closable) -> None:
        """Stop watching and close, the latter when this turn is over."""
        self.unwatch(connected.fileno())
        self._to_close.append(connected)

    # Work

    def call_soon(self, work: Work) -> None:
        """Run it on the loop's thread, in the order of the calls. Any thread may ask for it, and a signal handler."""
        # In this order, and the loop the other way round: it either sees the work or is woken.
        self._soon.append(work)
        if self._is_polling and not self._is_woken:
            with self._waking:
                # The loop may have seen the work already, and have come to its end by it.
                if not self._is_closed:
                    self._is_woken = True
                    os.eventfd_write(self._wakeup, 1)

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._is_stopping:
            self.run_turn(_LONGEST_WAIT_SECONDS)

    def run_turn(self, longest_wait_seconds: float) -> None:
        """Wait until there is something to do, at most so long, and do it."""
        self._is_polling = True
        wait = 0.0 if self._soon else self.timers.seconds_to_next(longest_wait_seconds)
        # Rounded up, or the loop would turn in vain until a timer's millisecond is over.
        events = self._epoll.poll(wait and wait + 0.0005, _EVENTS_PER_TURN)
        self._is_polling = False
        self.now_ms = self._clock_ms()
        callbacks = self._callbacks
        for descriptor, event in events:
            callback = callbacks.get(descriptor)
            if callback is not None:
                try:
                    callback(event)
                except Exception as error:
                    self._log_error(error)
        for _ in range(len(self._soon)):
            self._run(self._soon.popleft())
        self.timers.run_due(self._run)
        if self._to_close:
            closing, self._to_close = self._to_close, []
            for connected in closing:
                self._run(connected.close)

    def stop(self) -> None:
        """Let `run` return after this turn."""
        self._is_stopping = True
        self.call_soon(lambda: None)

    def on_fork(self) -> None:
        """In a forked child: close its copies of the descriptors. What is watched is the parent's, and stays so."""
        self._waking = threading.RLock()
        for connected in self._to_close:
            connected.close()
        self._epoll.close()
        if not self._is_closed:
            self._is_closed = True
            os.close(self._wakeup)

    def close(self) -> None:
        """Close the loop's own descriptors. It cannot be used any more."""
        for connected in self._to_close:
            connected.close()
        self._to_close.clear()
        self._epoll.close()
        with self._waking:
            self._is_closed = True
            os.close(self._wakeup)

    def _woken(self, _: int) -> None:
        os.eventfd_read(self._wakeup)
        # After that, or a wake-up in between would be lost. What comes in between is run in this turn.
        self._is_woken = False

    def _run(self, work: Work) -> None:
        try:
            work()
        except Exception as error:
            self._log_error(error)

    def _log_error(self, error: Exception) -> None:
        self._logger.error("%s", one_line(f"unexpected: {error_text(error)}"))
