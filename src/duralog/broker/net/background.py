"""The work of requests on worker threads: counted, with its memory, and answered even if its callback fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from duralog.broker.net.log_lines import LogLines, error_text
from duralog.broker.net.workers import Workers
from duralog.broker.wire.error_codes import code_of
from duralog.broker.wire.request import CLOSE, DelayedAnswer, Fields, RawAnswer

if TYPE_CHECKING:
    # Its messages need kio, which a command on a directory does not have.
    from duralog.broker.net.server import Server


class Background:
    """Only the loop's thread uses it."""

    def __init__(self, workers: Workers, server: Server, log_lines: LogLines) -> None:
        self._workers = workers
        self._server = server
        self._log_lines = log_lines

    def reserve(self, memory_bytes: int) -> None:
        """Count a request as in progress although its work is still queued: it holds this memory already."""
        self._server.background_began()
        self._server.memory.change(memory_bytes)

    def run(
        self,
        work: Callable[[], Any],
        then: Callable[[Any, Exception | None], None],
        answers: DelayedAnswer | None = None,
        *,
        reserved_bytes: int | None = None,
    ) -> None:
        """Run `work` on a worker thread, then `then` on the loop, with the result and None or with None and the error.

        `reserved_bytes` is what `reserve` was called with, if it was. If `then` itself fails, that is logged, and the
        request that `answers` belongs to is refused, or its connection closed if that fails, too.
        """

        def finish(result: Any, error: Exception | None) -> None:
            if reserved_bytes:
                self._server.memory.change(-reserved_bytes)
            self._server.background_ended()
            try:
                then(result, error)
            except Exception as failure:
                self._log_lines.fail("after background work", f"after background work: {error_text(failure)}")
                if answers is not None:
                    self._refuse(answers, failure)

        if reserved_bytes is None:
            self._server.background_began()
        self._workers.submit(work, finish)

    def answer(self, work: Callable[[], Fields | RawAnswer]) -> DelayedAnswer:
        """An answer that a worker thread makes. If `work` fails, the request is refused."""
        delayed = DelayedAnswer()

        def then(answer: Fields | RawAnswer, error: Exception | None) -> None:
            if error is not None:
                raise error
            delayed.answer(answer)

        self.run(work, then, delayed)
        return delayed

    def _refuse(self, answers: DelayedAnswer, failure: Exception) -> None:
        if answers.is_answered:
            return
        try:
            answers.refuse(code_of(failure))
        except Exception as second:
            self._log_lines.fail("no error answer", f"no error answer: {error_text(second)}")
            if not answers.is_answered:
                answers.answer(CLOSE)
