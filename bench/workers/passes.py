"""The timing inside a measured process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable


def timed(
    work: Callable[[], int], passes: int, *, before: Callable[[], None] | None = None, each: bool = False
) -> None:
    """Do the work, which returns its amount, once to warm up and then `passes` times; one line for each time.

    `before` is called before every pass and not timed. With `each`, the time for one of the amount is told.
    """
    for _ in range(1 + passes):
        if before is not None:
            before()
        cpu = time.process_time()
        start = time.perf_counter()
        amount = work()
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu
        if each:
            seconds, cpu_seconds, amount = seconds / amount, cpu_seconds / amount, 1
        tell(seconds, cpu_seconds, amount)


def tell(seconds: float, cpu_seconds: float, amount: float, *, peak_bytes: int | None = None) -> None:
    """The line of one pass. `peak_bytes` is for who has more processes than this one."""
    line = {"seconds": seconds, "cpu_seconds": cpu_seconds, "amount": amount}
    print(json.dumps(line if peak_bytes is None else {**line, "peak_bytes": peak_bytes}), flush=True)


WARM_UP = 1
"""How many of the printed passes are not to be counted."""
