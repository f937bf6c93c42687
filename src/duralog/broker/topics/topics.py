"""The topics that clients see, and the one queue through which they change.

The loop has its own view of the topics: immutable values, replaced one by one on the loop. A topic enters the view when
its logs exist, and leaves it before they are closed, so that no handler meets half a topic. Only if the disk failed
while the logs were created is it shown without them: its partitions are offline until they can be created. A topic that
was created in the store directly, as tests do, is found when it is asked for.

Changes run on a worker thread, one at a time and in the order of the requests, as in Kafka's controller: of two clients
that create a topic at once, one creates it and the other gets TOPIC_ALREADY_EXISTS. What a change has checked stays
true until it is done. A change that fails leaves the view as it was.

Everything here but the work inside of `change` is for the loop's thread.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from duralog.broker.net.log_lines import error_text
from duralog.broker.runtime import Runtime
from duralog.broker.topics.internal_topics import INTERNAL_TOPICS, KEPT_TOPICS, NOT_FOR_CLIENTS, internal_topic
from duralog.broker.topics.topic_faults import REPLICAS
from duralog.broker.wire.request import DelayedAnswer
from duralog.errors import TopicExists, UnknownTopic
from duralog.format.topic_partition import TopicPartition
from duralog.format.uuids import uuid_bytes
from duralog.storage.metadata.changes import MOST_PARTITIONS
from duralog.storage.metadata.topics import Topic

NO_ID = uuid.UUID(int=0)
_DEFAULT_REPLICAS = "default.replication.factor"


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as clients see it."""

    topic: Topic
    topic_id: uuid.UUID
    """Zero for a topic without an id, which only has directories."""
    is_internal: bool

    @classmethod
    def of(cls, topic: Topic) -> TopicView:
        topic_id = NO_ID if topic.topic_id is None else uuid.UUID(bytes=uuid_bytes(topic.topic_id))
        return cls(topic, topic_id, topic.name in INTERNAL_TOPICS)

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of its partitions, in order."""
        return self.topic.partitions


TopicCallback = Callable[[TopicView | Exception], None]
"""Called on the loop with the topic, or with what went wrong."""


class _Change(NamedTuple):
    work: Callable[[], Any]
    then: Callable[[Any, Exception | None], None]
    answers: DelayedAnswer | None


class Topics:
    """The topics of the broker, by name and by id."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_name: dict[str, TopicView] = {}
        self._by_id: dict[uuid.UUID, TopicView] = {}
        self._waiting: deque[_Change] = deque()
        self._is_changing = False
        self._coming: set[str] = set()
        """Topics that are being created because a client asked for them."""
        self._leaving: set[str] = set()
        """Topics whose deletion is queued or in progress: they are not found any more."""
        self._when_deleted: list[Callable[[TopicView], None]] = []
        self._when_changed: list[Callable[[TopicView], None]] = []
        for name in runtime.store.topics():
            self._show(name)

    # Lookup

    def by_name(self, name: str) -> TopicView | None:
        found = self._by_name.get(name)
        return self._made_by_others(name) if found is None else found

    def by_id(self, topic_id: uuid.UUID) -> TopicView | None:
        return self._by_id.get(topic_id)

    def names(self) -> list[str]:
        return sorted(topic.name for topic in self.all())

    def all(self) -> Iterable[TopicView]:
        for name in self._runtime.store.topics():
            if name not in self._by_name:
                self._made_by_others(name)
        return self._by_name.values()

    def on_deleted(self, listener: Callable[[TopicView], None]) -> None:
        """`listener` is called on the loop for each deleted topic, before the client gets its answer."""
        self._when_deleted.append(listener)

    def on_changed(self, listener: Callable[[TopicView], None]) -> None:
        """`listener` is called on the loop for each topic that is new or has other partitions or configs."""
        self._when_changed.append(listener)

    # Changes

    def change(
        self,
        work: Callable[[], Any],
        then: Callable[[Any, Exception | None], None],
        answers: DelayedAnswer | None = None,
    ) -> None:
        """Run `work` on a worker thread when all changes before it are done; `then` gets its result or its error.

        `answers` is refused if `then` fails.
        """
        self._waiting.append(_Change(work, then, answers))
        self._run_next()

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, object],
        then: TopicCallback,
        answers: DelayedAnswer | None = None,
    ) -> None:
        """Create a topic. `then` gets `TopicExists` if there is one of the name, also if it was created meanwhile."""
        self.change(
            lambda: self._runtime.store.create_topic(name, partitions, configs),
            lambda _, error: then(self.refresh(name) if error is None else error),
            answers,
        )

    def ensure(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, object],
        then: TopicCallback,
        answers: DelayedAnswer | None = None,
        on_created: TopicCallback | None = None,
    ) -> None:
        """The topic of this name, which is created if it does not exist.

        `on_created` is called before `then` with the new topic, or why it could not be created; not if it exists.
        """
        known = self._by_name.get(name)
        if known is not None:
            then(known)
            return

        def finish(result: TopicView | Exception) -> None:
            is_there = isinstance(result, TopicExists) and self._runtime.store.find_topic(name) is not None
            if not is_there and on_created is not None:
                on_created(result)
            then(self.refresh(name) if is_there else result)

        self.create(name, partitions, configs, finish, answers)

    def ensure_internal(
        self,
        name: str,
        then: TopicCallback,
        answers: DelayedAnswer | None = None,
        on_created: TopicCallback | None = None,
    ) -> None:
        """One of Kafka's internal topics, created as Kafka does if it does not exist."""
        partitions, configs = internal_topic(name, self._runtime.config)
        self.ensure(name, partitions, configs, then, answers, on_created)

    def create_missing(
        self, names: Iterable[str], on_created: Callable[[str, TopicView | Exception], None] | None = None
    ) -> None:
        """Create topics that a client has asked for, with the broker's defaults. The client does not wait for them.

        `on_created` is called with the name of each, and the topic or why it could not be created.

        REQUIRES: their names are valid. If that would be more partitions than one request may create, or more replicas
        than one node has, nothing is created, as in Kafka.
        """
        wanted: dict[str, tuple[int, Mapping[str, object]]] = {}
        for name in names:
            if name in NOT_FOR_CLIENTS or name in self._coming:
                continue
            if name in KEPT_TOPICS:
                wanted[name] = internal_topic(name, self._runtime.config)
            elif self._runtime.config.default_replication_factor > REPLICAS:
                limit = f"with one node, {_DEFAULT_REPLICAS} can only be {REPLICAS}"
                reason = f"topic {name} is not created for a client: {limit}"
                self._runtime.log_lines.warn("topic not made", reason)
            else:
                wanted[name] = self._runtime.config.num_partitions, {}
        count = sum(partitions for partitions, _ in wanted.values())
        if max(count, len(self._coming)) > MOST_PARTITIONS:
            reason = f"{len(wanted)} topics are not created for a client that asked for them: too many at once"
            self._runtime.log_lines.warn("too many topics", reason)
            return
        for name, (partitions, configs) in wanted.items():
            self._coming.add(name)
            of_one = None if on_created is None else partial(on_created, name)
            self.ensure(name, partitions, configs, partial(self._has_come, name), on_created=of_one)

    def _has_come(self, name: str, result: TopicView | Exception) -> None:
        self._coming.discard(name)
        if isinstance(result, Exception):
            reason = f"topic {name} could not be created for a client that asked for it: {result}"
            self._runtime.log_lines.warn("topic not made", reason)

    def delete(self, name: str, then: TopicCallback, answers: DelayedAnswer | None = None) -> None:
        """Delete a topic; `then` gets what it was. It is not found from now on, unless the deletion fails."""
        gone = self._by_name.get(name)
        if gone is None:
            then(UnknownTopic(f"there is no topic {name}"))
            return
        self._hide(gone)
        self._leaving.add(name)

        def finish(_: Any, error: Exception | None) -> None:
            self._leaving.discard(name)
            is_there = self._runtime.store.find_topic(name) is not None
            if error is not None and (is_there or isinstance(error, UnknownTopic)):
                if is_there:
                    self._show(name)
                then(error)
                return
            if error is not None:
                # The topic is gone: the next start removes what is left of its files.
                self._runtime.log_lines.warn("topic deleted", f"topic {name} is deleted, but not all of it: {error}")
            self._notify(self._when_deleted, gone)
            then(gone)

        self.change(lambda: self._runtime.store.delete_topic(name), finish, answers)

    def refresh(self, name: str) -> TopicView:
        """Show a topic as the store has it now, after a change of it."""
        view = self._show(name)
        self._notify(self._when_changed, view)
        return view

    def refresh_all(self) -> None:
        """After a change that affects all topics, such as one of the broker's configs."""
        for name in self.names():
            if self._runtime.store.find_topic(name) is not None:
                self.refresh(name)

    def _notify(self, listeners: Iterable[Callable[[TopicView], None]], view: TopicView) -> None:
        """A listener that fails does not undo the change."""
        for listener in listeners:
            try:
                listener(view)
            except Exception as error:
                text = f"after a change of topic {view.name}: {error_text(error)}"
                self._runtime.log_lines.fail("after a change of topic", text)

    def _show(self, name: str) -> TopicView:
        topic = self._runtime.store.find_topic(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        view = TopicView.of(topic)
        if name in self._leaving:
            return view
        self._by_name[name] = view
        if view.topic_id != NO_ID:
            self._by_id[view.topic_id] = view
        return view

    def _made_by_others(self, name: str) -> TopicView | None:
        """A topic that was created in the store directly, added to the view; None if there is none.

        One without all of its logs is still being created.
        """
        store = self._runtime.store
        topic = None if name in self._leaving else store.find_topic(name)
        if topic is None:
            return None
        logs, offline = store.logs, store.offline
        partitions = (TopicPartition(name, number) for number in topic.partitions)
        if any(each not in logs and each not in offline for each in partitions):
            return None
        view = self._show(name)
        self._runtime.call_soon(partial(self._notify, self._when_changed, view))
        return view

    def _hide(self, view: TopicView) -> None:
        self._by_name.pop(view.name, None)
        self._by_id.pop(view.topic_id, None)

    def _run_next(self) -> None:
        if self._is_changing or not self._waiting:
            return
        change = self._waiting.popleft()
        self._is_changing = True

        def done(result: Any, error: Exception | None) -> None:
            self._is_changing = False
            try:
                change.then(result, error)
            finally:
                self._run_next()

        self._runtime.background.run(change.work, done, change.answers)
