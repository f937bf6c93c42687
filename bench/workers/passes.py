"""The timing inside a measured process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable


def timed(work: Callable[[], int], passes: int) -> None:
    """Do the work, which returns its amount, once to warm up and then `passes` times; one line for each time."""
    for _ in range(1 + passes):
        cpu = time.process_time()
        start = time.perf_counter()
        amount = work()
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "amount": amount}), flush=True)


WARM_UP = 1
"""How many of the printed passes are not to be counted."""
