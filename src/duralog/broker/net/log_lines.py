"""Log lines that clients or a failing disk can cause: one for each cause, not one for each occurrence.

The first line of a kind is logged at once. Repetitions within the interval are counted, and the next line gives their
number. The number of kinds is bounded: they are words of this package, never of a client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from duralog.errors import CorruptRecord, StorageError

logger = logging.getLogger("duralog.broker")

_INTERVAL_MS = 10_000
_LONGEST_TEXT = 500


class LogLines:
    """Logs what clients cause without letting them fill the disk."""

    def __init__(self, logger: logging.Logger, clock_ms: Callable[[], float]) -> None:
        self._logger = logger
        self._clock_ms = clock_ms
        self._logged: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, text: str) -> None:
        """Log one line, unless there was one of this kind within the interval."""
        self._log(logging.WARNING, kind, text)

    def fail(self, kind: str, text: str) -> None:
        """The same for unexpected errors: a client may be able to cause one again and again."""
        self._log(logging.ERROR, kind, text)

    def _log(self, level: int, kind: str, text: str) -> None:
        now = self._clock_ms()
        logged_ms, silent = self._logged.get(kind, (float("-inf"), 0))
        if now - logged_ms < _INTERVAL_MS:
            self._logged[kind] = (logged_ms, silent + 1)
            return
        self._logged[kind] = (now, 0)
        more = f" (and {silent} more like it before)" if silent else ""
        self._logger.log(level, "%s%s", one_line(text), more)

    def log_disk_error(self, error: Exception) -> None:
        """Log an error of the disk, or damaged data on it, for the operator. Clients get an error code."""
        if isinstance(error, StorageError | CorruptRecord):
            self.warn("disk", f"a request could not be served: {error}")


def one_line(text: str) -> str:
    """A text that may contain client input, as one line that cannot imitate another one."""
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def error_text(error: BaseException) -> str:
    """An unexpected exception: its type, its text and where it was raised."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f" at {trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
