"""The figures of the cleaner and of held records in a duralog broker's /metrics, if the console has the address."""

from __future__ import annotations

import math
import re
import urllib.error
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException

from duralog.config.byte_sizes import size_text
from duralog.config.plurals import plural
from duralog.config.times import duration_text
from duralog.console.sources.metrics_access import MetricsAccess
from duralog.storage.log.retention import DEFAULT_RETENTION_MS

_PATIENCE_SECONDS = 1.0
_MOST_BYTES = 4 << 20
_FOR_USERS = (401, 429)
_OF_CLEANER = re.compile(
    r"^duralog_(cleanings|failed_cleanings|cleaner_[a-z_]+|uncleanable_[a-z_]+)(?:_total)? ([0-9.eE+-]+)$", re.MULTILINE
)
_OF_HELD = re.compile(r"^duralog_held_(records|bytes) ([0-9.eE+-]+)$", re.MULTILINE)
HOW_TO_CHOOSE = "To choose one: duralog topic alter --config retention.ms=MS; -1 keeps them for good."
"""A retention, for records that are held until one is chosen."""


class CleanerMetrics:
    """`step` fetches the metrics; the attributes have their values."""

    def __init__(self, address: str, access: MetricsAccess | None = None) -> None:
        self._access = access or MetricsAccess()
        self._url = f"{self._access.scheme}://{address}/metrics"
        self.figures: Mapping[str, float] = {}
        self.note: str | None = None
        """Why there are no figures."""
        self.held_note: str | None = None

    def step(self) -> None:
        try:
            with self._access.open(self._url, _PATIENCE_SECONDS) as answer:
                text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError, HTTPException) as error:
            self.figures, self.note = {}, f"The broker's metrics at {self._url} cannot be read: {_reason(error)}"
            self.held_note = None
            return
        self.figures, self.note = _figures(_OF_CLEANER, text), None
        held = _figures(_OF_HELD, text)
        self.held_note = _held_note(held.get("records", 0), held.get("bytes", 0))


def _reason(error: Exception) -> object:
    if isinstance(error, urllib.error.HTTPError) and error.code in _FOR_USERS:
        return f"{error.reason}: give the token or password of a user in --metrics-config-file"
    return error.reason if isinstance(error, urllib.error.URLError) else error


def _figures(pattern: re.Pattern[str], text: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, value in pattern.findall(text):
        with suppress(ValueError):
            figures[name] = float(value)
    return figures


def _held_note(records: float, size_bytes: float) -> str | None:
    """A note about records that are older than the default retention. The figures come from a broker and are
    untrusted.
    """
    if not (records > 0 and math.isfinite(records) and math.isfinite(size_bytes)):
        return None
    return (
        f"The broker holds {plural(int(records), 'record')}, {size_text(int(size_bytes))}, that were older than the"
        f" default retention of {duration_text(DEFAULT_RETENTION_MS)} when it started, until a retention is chosen."
        f" {HOW_TO_CHOOSE}"
    )
