"""What the store has to say while a command runs: its warnings as lines on standard error."""

from __future__ import annotations

import logging

from duralog.cli.failures import printable, say


class _Sayer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {printable(record.getMessage())}")


def say_warnings(*, wanted: bool = True) -> None:
    """Show the store's warnings from now on, or none, where the command tells the same in its own words."""
    logger = logging.getLogger("duralog")
    logger.handlers = [_Sayer(logging.WARNING) if wanted else logging.NullHandler()]
    logger.propagate = False
