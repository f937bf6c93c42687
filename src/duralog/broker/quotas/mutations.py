"""The quota for creating and deleting partitions. In Kafka: `ControllerMutationQuota`.

A request of a newer version is refused topic by topic while the client has exceeded its quota. Older clients do not
know that error: their request is done, and the client waits. A topic is created if anything is left, however many
partitions it has: the client pays for it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from duralog.broker.quotas.rate import TokenBucket
from duralog.broker.topics.topic_faults import Fault
from duralog.broker.wire import error_codes as codes

LONGEST_MS = 2**31 - 1
"""What a throttle time can be in an answer."""
_EXCEEDED = Fault(codes.THROTTLING_QUOTA_EXCEEDED, None)


class MutationQuota:
    """The quota of one request; without a bucket there is none.

    Topics are created on a worker thread and deleted from the loop: at the same time, one of them may go uncounted.
    """

    def __init__(
        self,
        bucket: TokenBucket | None = None,
        allowed: float = 0.0,
        burst_seconds: float = 0.0,
        now_ms: Callable[[], float] = lambda: 0.0,
        *,
        is_strict: bool = False,
    ) -> None:
        self._bucket = bucket
        self._allowed = allowed
        self._burst_seconds = burst_seconds
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0

    def take(self, partitions: int) -> Fault | None:
        """Count partitions that are about to be created or deleted; or why they must not be."""
        if self._bucket is None:
            return None
        tokens = self._bucket.refill(self._allowed, self._burst_seconds, self._now_ms())
        if self._is_strict and tokens < 0:
            self._wait_for(tokens)
            return _EXCEEDED
        tokens = self._bucket.take(partitions)
        if not self._is_strict and tokens < 0:
            self._wait_for(tokens)
        return None

    def _wait_for(self, tokens: float) -> None:
        self.throttle_ms = max(self.throttle_ms, round(min(-tokens / self._allowed * 1000, LONGEST_MS)))
