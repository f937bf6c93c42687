"""The topics that clients see, and the one queue through which they change.

The loop has its own view of the topics: values that never change, replaced one by one on the loop. A topic comes into
the view when its logs are there, and leaves it before they are closed, so that no handler meets half a topic. Only if
the disk failed while the logs were made is it shown without them: its partitions are offline until they can be made.
A topic that somebody with the store at hand has made, as a test may, is found when it is asked for.

Changes run beside the loop, one at a time and in the order of the requests, as Kafka's controller runs them: of two
clients that create a topic at once, one makes it and the other is told that it exists. What is checked inside a change
is true until it is done. A change that fails leaves the view as it was.

Everything here but the work inside of `change` is for the loop thread.
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
from duralog.format.uuids import uuid_bytes
from duralog.storage.disk.log_directory import TopicPartition
from duralog.storage.metadata.changes import MOST_PARTITIONS
from duralog.storage.metadata.topics import Topic

NO_ID = uuid.UUID(int=0)
_DEFAULT_REPLICAS = "default.replication.factor"


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as clients see it."""

    topic: Topic
    topic_id: uuid.UUID
    """Zero for a topic that has none, as one that only has folders."""
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


Told = Callable[[TopicView | Exception], None]
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
        """The topics that are being made because a client asked for them."""
        self._leaving: set[str] = set()
        """The topics whose deletion is under way or waits: whatever is done before it, nobody finds them any more."""
        self._when_deleted: list[Callable[[TopicView], None]] = []
        self._when_changed: list[Callable[[TopicView], None]] = []
        for name in runtime.store.topics():
            self._show(name)

    # What there is

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

    def on_deleted(self, tell: Callable[[TopicView], None]) -> None:
        """`tell` is called on the loop for each topic that was deleted, before its client is told."""
        self._when_deleted.append(tell)

    def on_changed(self, tell: Callable[[TopicView], None]) -> None:
        """`tell` is called on the loop for each topic that is new or has other partitions or configs."""
        self._when_changed.append(tell)

    # Changes

    def change(
        self,
        work: Callable[[], Any],
        then: Callable[[Any, Exception | None], None],
        answers: DelayedAnswer | None = None,
    ) -> None:
        """Run `work` beside the loop when all changes before it are done; `then` gets its result, or its error.

        `answers` is refused if `then` fails.
        """
        self._waiting.append(_Change(work, then, answers))
        self._run_next()

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, object],
        then: Told,
        answers: DelayedAnswer | None = None,
    ) -> None:
        """Make a topic. `then` gets `TopicExists` if there is one of the name, also if it was made meanwhile."""
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
        then: Told,
        answers: DelayedAnswer | None = None,
    ) -> None:
        """The topic of this name, which is made if it is not there."""
        known = self._by_name.get(name)
        if known is not None:
            then(known)
            return

        def told(result: TopicView | Exception) -> None:
            is_there = isinstance(result, TopicExists) and self._runtime.store.find_topic(name) is not None
            then(self.refresh(name) if is_there else result)

        self.create(name, partitions, configs, told, answers)

    def ensure_internal(self, name: str, then: Told, answers: DelayedAnswer | None = None) -> None:
        """One of Kafka's own topics, made as Kafka makes it if it is not there."""
        partitions, configs = internal_topic(name, self._runtime.config)
        self.ensure(name, partitions, configs, then, answers)

    def create_missing(self, names: Iterable[str]) -> None:
        """Make topics that a client has asked for, with the broker's defaults; nobody waits for them.

        REQUIRES: their names are allowed. If that would be more partitions than one request may make, or more replicas
        than one node has, nothing is made, as in Kafka.
        """
        wanted: dict[str, tuple[int, Mapping[str, object]]] = {}
        for name in names:
            if name in NOT_FOR_CLIENTS or name in self._coming:
                continue
            if name in KEPT_TOPICS:
                wanted[name] = internal_topic(name, self._runtime.config)
            elif self._runtime.config.default_replication_factor > REPLICAS:
                reason = (
                    f"topic {name} is not made for a client: of one node, {_DEFAULT_REPLICAS} can only be {REPLICAS}"
                )
                self._runtime.log_lines.warn("topic not made", reason)
            else:
                wanted[name] = self._runtime.config.num_partitions, {}
        count = sum(partitions for partitions, _ in wanted.values())
        if max(count, len(self._coming)) > MOST_PARTITIONS:
            reason = f"{len(wanted)} topics are not made for a client that asked for them: they are too many at once"
            self._runtime.log_lines.warn("too many topics", reason)
            return
        for name, (partitions, configs) in wanted.items():
            self._coming.add(name)
            self.ensure(name, partitions, configs, partial(self._has_come, name))

    def _has_come(self, name: str, result: TopicView | Exception) -> None:
        self._coming.discard(name)
        if isinstance(result, Exception):
            reason = f"topic {name} could not be made for a client that asked for it: {result}"
            self._runtime.log_lines.warn("topic not made", reason)

    def delete(self, name: str, then: Told, answers: DelayedAnswer | None = None) -> None:
        """Take a topic away; `then` gets what it was. Nobody finds it from now on, unless that fails."""
        gone = self._by_name.get(name)
        if gone is None:
            then(UnknownTopic(f"there is no topic {name}"))
            return
        self._hide(gone)
        self._leaving.add(name)

        def told(_: Any, error: Exception | None) -> None:
            self._leaving.discard(name)
            is_there = self._runtime.store.find_topic(name) is not None
            if error is not None and (is_there or isinstance(error, UnknownTopic)):
                if is_there:
                    self._show(name)
                then(error)
                return
            if error is not None:
                # It is gone all the same: the next start removes what is left of its files.
                self._runtime.log_lines.warn("topic deleted", f"topic {name} is deleted, but not all of it: {error}")
            self._tell(self._when_deleted, gone)
            then(gone)

        self.change(lambda: self._runtime.store.delete_topic(name), told, answers)

    def refresh(self, name: str) -> TopicView:
        """Show a topic as the store has it now, after a change of it."""
        view = self._show(name)
        self._tell(self._when_changed, view)
        return view

    def refresh_all(self) -> None:
        """After a change that all topics follow, as one of the broker's configs."""
        for name in self.names():
            if self._runtime.store.find_topic(name) is not None:
                self.refresh(name)

    def _tell(self, listeners: Iterable[Callable[[TopicView], None]], view: TopicView) -> None:
        """The change is made, whatever becomes of those who want to know."""
        for tell in listeners:
            try:
                tell(view)
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
        """A topic that the store has and no change of a client has shown yet, shown now; None if there is none.

        One without all of its logs is in the making, by whomever.
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
        self._runtime.call_soon(partial(self._tell, self._when_changed, view))
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
