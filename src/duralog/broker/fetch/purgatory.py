"""The purgatory of fetches: a fetch waits until there are `min_bytes` for it, or until `max_wait_ms` is over.

A fetch that cannot be answered at once is registered with each of its partitions. An append wakes the fetches of its
own partition and no others. A woken fetch is checked after the request that appended is done, so that one Produce to
many partitions counts as one. When the fetch is answered, times out or loses its client, it is removed everywhere. An
error in the check becomes the answer, so that no client waits forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from duralog.broker.fetch.reading import Failures, FetchLimits, Reading, read, readable_bytes, scan
from duralog.broker.fetch.response import FIRST_WITH_TOPIC_IDS, encode
from duralog.broker.fetch.sessions import NO_SESSION, FetchSession, FetchSessions, remember
from duralog.broker.fetch.wanted import Wanted
from duralog.broker.net.log_lines import error_text
from duralog.broker.net.timers import Timer, Timers
from duralog.broker.quotas.client_quotas import FetchQuota
from duralog.broker.runtime import Runtime
from duralog.broker.topics.partition import Partition
from duralog.broker.topics.partitions import Partitions
from duralog.broker.wire.error_codes import INVALID_FETCH_SESSION_EPOCH, code_of
from duralog.broker.wire.request import Answer, DelayedAnswer, RawAnswer


class Fetch:
    """One request: what it asks for, and the session that it belongs to or wants to begin."""

    __slots__ = (
        "limits",
        "max_wait_ms",
        "min_bytes",
        "quota",
        "session",
        "session_epoch",
        "version",
        "wanted",
        "wants_session",
    )

    # More than seven parameters: the fields of a request, which one handler passes by name.
    def __init__(
        self,
        version: int,
        wanted: Iterable[Wanted],
        limits: FetchLimits,
        *,
        min_bytes: int,
        max_wait_ms: int,
        session: FetchSession | None = None,
        wants_session: bool = False,
        quota: FetchQuota | None = None,
    ) -> None:
        self.version = version
        self.wanted = wanted
        self.limits = limits
        self.min_bytes = min_bytes
        self.max_wait_ms = max_wait_ms
        self.session = session
        self.session_epoch = 0 if session is None else session.epoch
        """The expected next epoch of the session, unless another request uses it meanwhile."""
        self.wants_session = wants_session
        self.quota = quota
        """The quota of the client; None if there is no limit."""


class Fetches:
    """All waiting fetches, and all sessions."""

    def __init__(self, runtime: Runtime, partitions: Partitions) -> None:
        self._runtime = runtime
        self._partitions = partitions
        # By the clock of the timers: if the time of day is set back, no session would be evicted.
        self.sessions = FetchSessions(
            lambda: runtime.config.max_incremental_fetch_session_cache_slots, runtime.timers.clock_ms
        )
        self.waiting = 0
        """The number of fetches that wait."""
        self.fetched_bytes: Counter[str] = Counter()
        """The bytes of records that were answered, by topic."""
        self._woken: list[_WaitingFetch] = []

    def fetch(self, fetch: Fetch) -> Answer:
        """The answer, or a delayed one."""
        reading = self.read(fetch)
        if reading.unscanned:
            later = DelayedAnswer()
            self.answer_to(later, fetch, reading)
            return later
        if fetch.max_wait_ms <= 0 or reading.is_hopeless or reading.size_bytes >= fetch.min_bytes or reading.has_error:
            return self.answer(fetch, reading)
        return _WaitingFetch(self, self._runtime.timers, fetch).later

    def read(self, fetch: Fetch, failures: Failures | None = None) -> Reading:
        return read(
            self._partitions,
            fetch.wanted,
            fetch.limits,
            only_changes=fetch.session is not None,
            failures=failures or {},
        )

    def answer_to(self, later: DelayedAnswer, fetch: Fetch, reading: Reading) -> None:
        """Answer with what was read. A scan that is needed first runs on a worker thread."""
        if not reading.unscanned:
            later.answer(self.answer(fetch, reading))
            return

        def then(failures: Failures, error: Exception | None) -> None:
            if error is not None:
                raise error
            if not later.is_gone:
                self.answer_to(later, fetch, self.read(fetch, failures))

        self._runtime.background.run(lambda: scan(reading.unscanned), then, later)

    def answer(self, fetch: Fetch, reading: Reading) -> RawAnswer:
        """The answer with what was read. The session, if any, is updated to what its client knows then."""
        throttle_ms = 0 if fetch.quota is None else fetch.quota.throttle_ms(reading.size_bytes)
        if throttle_ms > 0:
            return self._without_records(fetch, throttle_ms)
        results = reading.results
        if reading.size_bytes:
            for result in results:
                if result.size and result.wanted.topic is not None:
                    self.fetched_bytes[result.wanted.topic] += result.size
        session = fetch.session
        session_id = NO_SESSION
        error_code = 0
        if session is not None:
            session_id = session.session_id
            if session.epoch == fetch.session_epoch:
                session.sent(results)
            else:
                results, error_code = [], INVALID_FETCH_SESSION_EPOCH
        elif fetch.wants_session:
            wanted = {result.wanted.key: result.wanted for result in results}
            for result in results:
                remember(result)
            session_id = self.sessions.open(wanted, uses_topic_ids=fetch.version >= FIRST_WITH_TOPIC_IDS)
        node_id = self._runtime.node.node_id
        return encode(results, fetch.version, session_id=session_id, node_id=node_id, error_code=error_code)

    def _without_records(self, fetch: Fetch, throttle_ms: int) -> RawAnswer:
        """For a client above its quota. Its session stays as it is: the next Fetch gets what this one would have."""
        session_id = NO_SESSION if fetch.session is None else fetch.session.session_id
        answer = encode((), fetch.version, session_id=session_id, node_id=self._runtime.node.node_id)
        answer.throttle_ms = throttle_ms
        return answer

    def log_failure(self, error: Exception) -> None:
        self._runtime.log_lines.warn("failed waiting fetch", f"a fetch that waited failed: {error_text(error)}")

    def woken(self, waiting: _WaitingFetch) -> None:
        """Check a fetch after the request that is being handled."""
        if not self._woken:
            self._runtime.call_soon(self._check_woken)
        self._woken.append(waiting)

    def _check_woken(self) -> None:
        woken, self._woken = self._woken, []
        for waiting in woken:
            waiting.check()


class _WaitingFetch:
    """A fetch that waits for records of its partitions, or for its timeout."""

    __slots__ = ("_changed", "_fetch", "_fetches", "_found_bytes", "_is_over", "_timer", "_wanted", "later")

    def __init__(self, fetches: Fetches, timers: Timers, fetch: Fetch) -> None:
        self._fetches = fetches
        self._fetch = fetch
        self._is_over = False
        self._changed: dict[Partition, None] = {}
        self._found_bytes: dict[Partition, int] = {}
        """The bytes that each partition has for the fetch, of those that have any."""
        self._wanted: dict[Partition, Wanted] = {}
        for one in fetch.wanted:
            partition = one.partition
            if partition is not None:
                self._wanted[partition] = one
                partition.waiting[self] = None
                if fetch.min_bytes > 1 and one.offset != partition.log.view.end_offset:
                    self._found_bytes[partition] = readable_bytes(one, fetch.limits.isolation, fetch.min_bytes)
        self.later = DelayedAnswer(self._stop)
        self._timer: Timer = timers.after(fetch.max_wait_ms, self._answer)
        fetches.waiting += 1

    def wake(self, partition: Partition) -> None:
        if not self._changed:
            self._fetches.woken(self)
        self._changed[partition] = None

    def check(self) -> None:
        """Answer if there are enough bytes now, or a partition is gone."""
        if not self._is_over and self._has_enough():
            self._answer()

    def _has_enough(self) -> bool:
        isolation, enough = self._fetch.limits.isolation, self._fetch.min_bytes
        changed, self._changed = self._changed, {}
        for partition in changed:
            try:
                found = readable_bytes(self._wanted[partition], isolation, enough)
            except Exception:
                return True  # The answer contains the error.
            if found < 0:
                return True
            self._found_bytes[partition] = found
        return sum(self._found_bytes.values()) >= enough

    def _answer(self) -> None:
        if self._is_over:
            return
        self._stop()
        try:
            self._fetches.answer_to(self.later, self._fetch, self._fetches.read(self._fetch))
        except Exception as error:
            self._fetches.log_failure(error)
            self.later.refuse(code_of(error))

    def _stop(self) -> None:
        """Remove the fetch everywhere."""
        if self._is_over:
            return
        self._is_over = True
        self._fetches.waiting -= 1
        self._timer.cancel()
        for partition in self._wanted:
            partition.waiting.pop(self, None)
