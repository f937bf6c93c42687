"""The thread that refreshes a source every few seconds. It only calls `step`, which can be called directly instead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_logger = logging.getLogger(__name__)

_STOP_SECONDS = 10.0


class Refresher:
    """Calls `step` again and again until it is stopped. An error ends that step only."""

    def __init__(self, step: Callable[[], None], seconds: float, *, at_once: bool = False) -> None:
        """With `at_once`, the first step does not wait."""
        self._step = step
        self._seconds = seconds
        self._first_seconds = 0.0 if at_once else seconds
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duralog-console-refresh", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait for the running step, with a timeout: a broker may not answer."""
        self._is_stopping.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        seconds = self._first_seconds
        logged = ""
        while not self._is_stopping.wait(seconds):
            seconds = self._seconds
            try:
                self._step()
                logged = ""
            except Exception as error:
                # A step reports expected errors itself. An unexpected one must not end the refreshes. It may persist
                # for weeks, so it is logged once.
                if repr(error) != logged:
                    logged = repr(error)
                    _logger.exception("the refresh of the source failed: %s", logged)
