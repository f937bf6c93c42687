"""A few threads for work that may block: creating and deleting topics, changing configs, recompressing batches.

The first is started with the broker, the others when they are needed. The result or error of a task goes to its
callback on the loop's thread. A task that has started is always finished; `close` waits for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from duralog.broker.net.log_lines import error_text

Then = Callable[[Any, Exception | None], None]
"""Called with the result and None, or with None and the error."""

_MOST_THREADS = 4


class Workers:
    """Only the loop's thread submits work."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], most_threads: int = _MOST_THREADS) -> None:
        self._most_threads = most_threads
        self._call_soon = call_soon
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Then] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        """Tasks whose callback has not run yet."""

    def start(self) -> None:
        """Start one thread. From then on, `submit` cannot fail for want of one."""
        self._start_another()

    def submit(self, work: Callable[[], Any], then: Then) -> None:
        if len(self._threads) < min(self._waiting + 1, self._most_threads):
            self._start_another()
        self._waiting += 1
        self._queue.put((work, then))

    def _start_another(self) -> None:
        """If the system cannot start another thread, the existing ones do the work."""
        thread = threading.Thread(target=self._serve, name=f"duralog-worker-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def close(self) -> None:
        """Finish what was submitted. Callbacks do not run any more."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        while (task := self._queue.get()) is not None:
            work, then = task
            result, error = None, None
            try:
                result = work()
            except (
                BaseException
            ) as caught:  # A panic of a native library is not an `Exception`, and the client must get an answer.
                error = caught if isinstance(caught, Exception) else RuntimeError(error_text(caught))
            self._call_soon(partial(self._finish, then, result, error))
            # An idle thread must not keep alive what the last task held.
            del task, work, then, result, error

    def _finish(self, then: Then, result: Any, error: Exception | None) -> None:
        self._waiting -= 1
        then(result, error)
