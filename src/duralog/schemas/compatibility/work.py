"""What one comparison of two schemas may cost. They come from clients: a few kilobytes can describe endless choices."""

from __future__ import annotations

from duralog.errors import SchemaError

MAX_PROBLEMS = 50
MAX_STEPS = 500_000
"""Some seconds at most. A schema of 1,000 fields takes a few thousand."""


class Work:
    """Counts the steps of one comparison."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def add(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise SchemaError(f"it takes more than {MAX_STEPS:,} steps to compare: split it into smaller schemas")
