"""Producer ids, allocated in blocks as in Kafka.

The cluster metadata on disk assigns a block to this node before the first id of it is used. So an id is used once, even
after a crash or under another broker; the rest of a block is lost when the broker ends. The next block is requested
before this one ends, so that only the first producer waits.
"""

from __future__ import annotations

from collections.abc import Callable

from duralog.broker.net.log_lines import error_text
from duralog.broker.runtime import Runtime
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import UNKNOWN_SERVER_ERROR
from duralog.broker.wire.request import DelayedAnswer
from duralog.storage.metadata.changes import PRODUCER_ID_BLOCK

_FEW = PRODUCER_ID_BLOCK // 10


class ProducerIds:
    def __init__(self, runtime: Runtime, topics: Topics) -> None:
        self._runtime = runtime
        self._topics = topics
        self._block = range(0)
        """The ids that are left of it."""
        self._next = range(0)
        self._is_requested = False
        self._waiting: list[tuple[Callable[[], None], DelayedAnswer]] = []

    def take(self) -> int | None:
        """An unused id; None while there is none: `when_there` calls back when there is."""
        if not self._block:
            self._block, self._next = self._next, range(0)
        if len(self._block) <= _FEW and not self._next:
            self._request_block()
        if not self._block:
            return None
        taken, self._block = self._block[0], self._block[1:]
        return taken

    def when_there(self, then: Callable[[], None], answers: DelayedAnswer) -> None:
        """Call `then` when there are ids, at once or soon. It is also called if no block could be allocated."""
        if self._block or self._next:
            then()
        else:
            self._waiting.append((then, answers))
            self._request_block()

    def _request_block(self) -> None:
        if not self._is_requested:
            self._is_requested = True
            self._topics.change(self._runtime.store.take_producer_ids, self._received)

    def _received(self, block: range | None, error: BaseException | None) -> None:
        self._is_requested = False
        if block is None:
            self._runtime.log_lines.fail("no producer ids", f"no producer ids could be allocated: {error}")
        else:
            self._next = block
        waiting, self._waiting = self._waiting, []
        for then, answers in waiting:
            try:
                then()
            except Exception as failure:  # The others still get their answers.
                text = f"a producer could not get an id: {error_text(failure)}"
                self._runtime.log_lines.fail("producer without id", text)
                if not answers.is_answered:
                    answers.refuse(UNKNOWN_SERVER_ERROR)
