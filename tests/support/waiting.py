"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""Far more than anything takes on an idle machine: machines that run tests are busy."""


def wait_until(is_true: Callable[[], bool], seconds: float = PATIENCE_SECONDS, *, pause_seconds: float = 0.005) -> None:
    """Ask again and again until it is true. The test fails if that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"not true after {seconds:.0f} seconds"
        time.sleep(pause_seconds)
