"""Log lines of the store and the broker while a command runs, on standard error."""

from __future__ import annotations

import logging
import sys
import time

from duralog.cli.voice.failures import say
from duralog.config.error_text import printable

_OFFLINE_LOG = "duralog.storage.opening.offline"
"""The logger of `duralog.storage.opening` for partitions that are offline."""


class _Sayer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {printable(record.getMessage())}")


def say_warnings(*, wanted: bool = True, reports_offline: bool = False) -> None:
    """From now on, show the store's warnings, or only its errors.

    With `reports_offline`, the command reports the partitions that are offline: the store's lines are not shown.
    """
    logger = logging.getLogger("duralog")
    sayer = _Sayer(logging.WARNING if wanted else logging.ERROR)
    if reports_offline:
        sayer.addFilter(lambda record: record.name != _OFFLINE_LOG)
    logger.handlers = [sayer]
    logger.propagate = False


def say_nothing() -> None:
    """For a command that reports the same in its own words."""
    logger = logging.getLogger("duralog")
    logger.handlers = [logging.NullHandler()]
    logger.propagate = False


class _LineFormatter(logging.Formatter):
    """`2026-01-31T23:59:59.999Z WARNING text`, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{moment}.{int(record.msecs):03d}Z {record.levelname} {printable(record.getMessage())}"


def log_to_standard_error(*, quiet: bool) -> None:
    """Log to standard error with timestamps. With `quiet`, only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter())
    logger = logging.getLogger("duralog")
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False
