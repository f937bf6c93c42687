"""The loggers of this process, as clients see and set their levels: the root and those of duralog.

Changed levels last until the process ends, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from duralog.broker.configs.changes import APPEND, DELETE, OPERATIONS, SET, SUBTRACT
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.wire import error_codes as codes
from duralog.config.entries import LOGGER_SOURCE, Entry

_ROOT = "root"
_OURS = "duralog"
_LEVELS: Mapping[str, int] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}
_NAMES = {number: name for name, number in _LEVELS.items() if name != "TRACE"}


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict
    ours = {name: logging.getLogger(name) for name in sorted(known) if name.split(".")[0] == _OURS}
    return {_ROOT: logging.root, **ours}


def logger_entries() -> Iterator[Entry]:
    for name, logger in _loggers().items():
        level = logger.getEffectiveLevel()
        text = _NAMES.get(level, logging.getLevelName(level))
        yield Entry(name, text, (), "unknown", "", source=LOGGER_SOURCE)


def loggers_fault(operations: Mapping[str, tuple[int, str | None]]) -> Fault | None:
    """Why these levels cannot be set."""
    known = _loggers()
    for name, (operation, level) in operations.items():
        if operation in (APPEND, SUBTRACT):
            return Fault(
                codes.INVALID_REQUEST,
                f"{OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource",
            )
        if name not in known:
            return Fault(codes.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == DELETE and name == _ROOT:
            return Fault(codes.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if operation == SET and level not in _LEVELS:
            return Fault(
                codes.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels"
                f" are {', '.join(sorted(_LEVELS))}",
            )
    return None


def set_levels(operations: Mapping[str, tuple[int, str | None]]) -> None:
    """REQUIRES: `loggers_fault` has found none. A level that is taken back is again that of the logger above."""
    known = _loggers()
    for name, (operation, level) in operations.items():
        known[name].setLevel(_LEVELS[level] if operation == SET and level is not None else logging.NOTSET)
