"""The ids that tell producers apart.

Ids are taken in blocks: the cluster metadata says that a block is this node's, on disk, before the first id of it is
given out. So an id is given once, whatever dies when, and whoever serves the directory next; what was left of a block
when the broker ended is lost. The next block is asked for before this one ends, so that nobody waits but the first.
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
        """What is left of it."""
        self._next = range(0)
        self._is_asking = False
        self._waiting: list[tuple[Callable[[], None], DelayedAnswer]] = []

    def take(self) -> int | None:
        """An id that nobody has; None while there is none: `when_there` tells when to ask again."""
        if not self._block:
            self._block, self._next = self._next, range(0)
        if len(self._block) <= _FEW and not self._next:
            self._ask()
        if not self._block:
            return None
        taken, self._block = self._block[0], self._block[1:]
        return taken

    def when_there(self, then: Callable[[], None], answers: DelayedAnswer) -> None:
        """`then` gives the answer when there are ids: at once, or soon. It is also called if none could be had."""
        if self._block or self._next:
            then()
        else:
            self._waiting.append((then, answers))
            self._ask()

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._topics.change(self._runtime.store.take_producer_ids, self._told)

    def _told(self, block: range | None, error: BaseException | None) -> None:
        self._is_asking = False
        if block is None:
            self._runtime.log_lines.fail("no producer ids", f"there are no producer ids: {error}")
        else:
            self._next = block
        waiting, self._waiting = self._waiting, []
        for then, answers in waiting:
            try:
                then()
            except Exception as failure:  # The others are to have their answers.
                text = f"a producer could not be given an id: {error_text(failure)}"
                self._runtime.log_lines.fail("producer without id", text)
                if not answers.is_answered:
                    answers.refuse(UNKNOWN_SERVER_ERROR)
