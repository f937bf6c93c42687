"""What a comparison of schemas may cost. They come from clients: a few kilobytes can describe endless choices."""

from __future__ import annotations

from math import inf
from time import monotonic

from duralog.errors import SchemaError

MAX_PROBLEMS = 50
MAX_STEPS = 500_000
"""About a second. A schema of 1,000 fields takes a few thousand."""
_MOST_TIMES = 4
_CHARACTERS_PER_STEP = 8


class Work:
    """Counts the steps of one comparison, or of those with several versions."""

    def __init__(self, versions: int = 1, *, until: float = inf) -> None:
        """`until` is a time of `time.monotonic`, after which no other version is compared."""
        self._most = MAX_STEPS * min(versions, _MOST_TIMES)
        self._left = self._most
        self._until = until

    def add(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise SchemaError(f"it takes more than {self._most:,} steps to compare: split it into smaller schemas")

    def add_text(self, text: str) -> None:
        """A schema has to be parsed."""
        self.add(len(text) // _CHARACTERS_PER_STEP)

    def check_time(self) -> None:
        if monotonic() > self._until:
            raise SchemaError("it takes too long to compare: try again, or compare fewer versions")
