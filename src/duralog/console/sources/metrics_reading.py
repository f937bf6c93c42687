"""What a duralog broker's /metrics tell of its cleaner, if the console was told the address."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException

_PATIENCE_SECONDS = 1.0
_MOST_BYTES = 4 << 20
_OF_CLEANER = re.compile(
    r"^duralog_(cleanings|failed_cleanings|cleaner_[a-z_]+|uncleanable_[a-z_]+)(?:_total)? ([0-9.eE+-]+)$", re.MULTILINE
)


class CleanerMetrics:
    """`step` asks; the rest tells what it was answered."""

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}/metrics"
        self.figures: Mapping[str, float] = {}
        self.note: str | None = None

    def step(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=_PATIENCE_SECONDS) as answer:
                text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            self.figures, self.note = {}, f"The broker's metrics at {self._url} cannot be read: {reason}"
            return
        figures: dict[str, float] = {}
        for name, value in _OF_CLEANER.findall(text):
            try:
                figures[name] = float(value)
            except ValueError:
                continue
        self.figures, self.note = figures, None
