"""Decoding large requests and encoding their answers, on a worker thread, for one request at a time.

Several would compete with the event loop for Python's interpreter lock, so that all clients would wait, and keep the
worker threads from appends and changes of topics. Answers are encoded first: a decoded request and its answer hold many
times the memory of its bytes, so there is only one of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from duralog.broker.wire.request import DelayedAnswer

Work = Callable[[], Any]
Then = Callable[[Any, Exception | None], None]


class Background(Protocol):
    """Worker threads."""

    def run(self, work: Work, then: Then, answers: DelayedAnswer | None = None) -> None:
        """Run `work` on a worker thread, then `then` on the loop."""


class LargeRequests:
    """Only the loop's thread uses it."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._requests: deque[tuple[Work, Then, DelayedAnswer]] = deque()
        self._answers: deque[tuple[Work, Then, DelayedAnswer]] = deque()
        self._is_busy = False

    def decode(self, work: Work, then: Then, answers: DelayedAnswer) -> None:
        """Run `work` on a worker thread when it is its turn, then `then` on the loop. It is for this answer.

        If the client is gone by then, both are left out.
        """
        self._requests.append((work, then, answers))
        self._run_next()

    def encode(self, work: Work, then: Then, answers: DelayedAnswer) -> None:
        """The same, before all that is to be decoded."""
        self._answers.append((work, then, answers))
        self._run_next()

    def stop(self) -> None:
        """Begin no other request. Those that were handled still get their answers."""
        self._requests = deque(maxlen=0)

    def _run_next(self) -> None:
        while (queue := self._answers or self._requests) and not self._is_busy:
            work, then, answers = queue.popleft()
            if not answers.is_gone:
                self._background.run(work, partial(self._end, then), answers)
                self._is_busy = True

    def _end(self, then: Then, result: Any, error: Exception | None) -> None:
        self._is_busy = False
        try:
            then(result, error)
        finally:
            self._run_next()
