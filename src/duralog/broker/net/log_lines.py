"""Log lines that clients can cause, or a disk that fails them: one for each cause and not one for each time.

The first line of a kind is told at once. What follows within the interval is counted, and the next line tells how many
there were. The number of kinds is bounded: they are words of this package, never of a client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from duralog.errors import CorruptRecord, StorageError

logger = logging.getLogger("duralog.broker")

_INTERVAL_MS = 10_000
_LONGEST_TEXT = 500


class LogLines:
    """Tells of misbehaving clients without letting them fill the disk."""

    def __init__(self, logger: logging.Logger, clock_ms: Callable[[], float]) -> None:
        self._logger = logger
        self._clock_ms = clock_ms
        self._told: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, text: str) -> None:
        """One line, unless there was one of this kind a short while ago."""
        self._tell(logging.WARNING, kind, text)

    def fail(self, kind: str, text: str) -> None:
        """The same for what nobody expected: a client may know how to bring it about again and again."""
        self._tell(logging.ERROR, kind, text)

    def _tell(self, level: int, kind: str, text: str) -> None:
        now = self._clock_ms()
        told_ms, silent = self._told.get(kind, (float("-inf"), 0))
        if now - told_ms < _INTERVAL_MS:
            self._told[kind] = (told_ms, silent + 1)
            return
        self._told[kind] = (now, 0)
        more = f" (and {silent} more like it before)" if silent else ""
        self._logger.log(level, "%s%s", one_line(text), more)

    def tell_disk(self, error: Exception) -> None:
        """What a disk fails with, or wrong bytes on it, concern who runs the broker, whatever clients are told."""
        if isinstance(error, StorageError | CorruptRecord):
            self.warn("disk", f"a request could not be served: {error}")


def one_line(text: str) -> str:
    """A text with what a client sent in it, as one line that cannot pass for another one."""
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def error_text(error: BaseException) -> str:
    """An exception that nobody expected: what it is, and where it came from."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        place = f" at {trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
