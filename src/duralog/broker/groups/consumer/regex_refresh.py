"""Subscriptions by regular expression: when they are resolved, and how the result is applied.

A pattern stands for the topics whose whole name it matches. Its syntax and its limits are in `topics.patterns`.

Matching all topics runs on a worker thread, for all patterns of a group at once: for a new pattern, for new topics, or
after `group.consumer.regex.refresh.interval.ms`; never twice at a time for a group, and not sooner than ten seconds
after the last time. Only a heartbeat starts it. A pattern that is not resolved yet matches no topics. When the result
is there, the group's epoch is raised, and the next heartbeat assigns the new topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from duralog.broker.groups.consumer.group import ConsumerGroup, subscribed_names
from duralog.broker.groups.consumer.member import ConsumerMember
from duralog.broker.groups.consumer.records import (
    ResolvedRegex,
    group_epoch_record,
    regex_record,
    regex_tombstone,
)
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.log_lines import logger
from duralog.broker.topics.patterns import compile_pattern
from duralog.broker.topics.topics import TopicView
from duralog.broker.wire.error_codes import INVALID_REGULAR_EXPRESSION
from duralog.errors import UnknownTopic
from duralog.format.internal.coordinator_records import CoordinatorRecord
from duralog.storage.metadata.folder import METADATA_PARTITION

_LEAST_INTERVAL_MS: Final = 10_000


@dataclass(slots=True)
class RegexChange:
    """The effect of a member's heartbeat on the patterns of its group."""

    is_changed: bool = False
    is_resolved: bool = False
    """Changed to one whose topics are known, or to none: the group needs a new assignment at once."""
    must_resolve: bool = False
    records: list[CoordinatorRecord] = field(default_factory=list)


class RegexRefresh:
    def __init__(self, groups: LoggedGroups, metadata_hash: Callable[[Iterable[str]], int]) -> None:
        """`metadata_hash` is the hash of those named topics that exist."""
        self._groups = groups
        self._metadata_hash = metadata_hash
        self._topics = groups.topics
        self._runtime = groups.runtime
        self._under_way: set[str] = set()
        """Ids of groups whose patterns are being resolved."""
        self._known_topics: set[UUID] = set()
        self._version_with_new_topics = 0
        self._sees: Callable[[str], bool] | None = None

    @contextmanager
    def for_sender(self, sees: Callable[[str], bool] | None) -> Iterator[None]:
        """While a request is handled: patterns match the topics that its sender may see, as in Kafka. None: all."""
        self._sees = sees
        try:
            yield
        finally:
            self._sees = None

    def loaded(self) -> None:
        topics = self._topics
        self._known_topics = {topic.topic_id for topic in topics.all()}
        self._version_with_new_topics = self._metadata_version()
        topics.on_changed(self._topic_changed)
        topics.on_deleted(lambda topic: self._known_topics.discard(topic.topic_id))

    def _topic_changed(self, topic: TopicView) -> None:
        if topic.topic_id not in self._known_topics:
            self._known_topics.add(topic.topic_id)
            self._version_with_new_topics = self._metadata_version()

    def _metadata_version(self) -> int:
        """The offset of the last record of the cluster's metadata; -1 as long as there is none."""
        try:
            end_offset: int = self._runtime.store.partition(*METADATA_PARTITION).end_offset
        except UnknownTopic:
            return -1
        return end_offset - 1

    def change(self, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, now_ms: int) -> RegexChange:
        """What follows from the member's pattern, which may be new. Raises `GroupRefusal` for an invalid one."""
        change = RegexChange()
        old, new = before.topic_regex or "", member.topic_regex or ""
        used = group.regexes
        if before.topic_regex != member.topic_regex:
            change.is_changed = True
            if old and group.regex_subscribers(old) == 1:
                change.records.append(regex_tombstone(group.group_id, old))
                used.discard(old)
            if new and group.regex_subscribers(new) == 0:
                check_regex(new)
                change.must_resolve = True
            else:
                change.is_resolved = new in group.resolved_regexes if new else bool(old)
        if new:
            used.add(new)
        if used and not self._is_too_soon(group, now_ms):
            change.must_resolve = change.must_resolve or self._is_due(group, used, now_ms)
        else:
            change.must_resolve = False
        return change

    def _is_too_soon(self, group: ConsumerGroup, now_ms: int) -> bool:
        last = next(iter(group.resolved_regexes.values()), None)
        # One from the future is not recent: the clock was set back.
        is_recent = last is not None and 0 <= now_ms - last.timestamp_ms <= _LEAST_INTERVAL_MS
        return group.group_id in self._under_way or is_recent

    def _is_due(self, group: ConsumerGroup, used: set[str], now_ms: int) -> bool:
        last = next(iter(group.resolved_regexes.values()), None)
        if last is None or len(used) != len(group.resolved_regexes):
            return True
        interval_ms = self._runtime.config.group_consumer_regex_refresh_interval_ms
        return last.version < self._version_with_new_topics or now_ms > last.timestamp_ms + interval_ms

    def resolve(self, group: ConsumerGroup, now_ms: int) -> None:
        """Resolve all patterns of the group on a worker thread."""
        group_id, patterns = group.group_id, group.regexes
        sees = self._sees
        names = [topic.name for topic in self._topics.all() if sees is None or sees(topic.name)]
        version = self._metadata_version()
        self._under_way.add(group_id)

        def done(found: dict[str, frozenset[str]] | None, error: BaseException | None) -> None:
            self._under_way.discard(group_id)
            if found is None or error is not None:
                logger.error("group %s: its patterns could not be resolved: %r", group_id, error)
                return
            resolved = {regex: ResolvedRegex(topics, version, now_ms) for regex, topics in found.items()}
            try:
                self._take_in(group_id, resolved)
            except GroupRefusal as refusal:
                logger.warning("group %s: its resolved patterns could not be written: %s", group_id, refusal)

        self._runtime.background.run(lambda: matching_topics(patterns, names), done)

    def _take_in(self, group_id: str, resolved: dict[str, ResolvedRegex]) -> None:
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        news = {regex: found for regex, found in resolved.items() if group.regex_subscribers(regex)}
        if not news:
            return
        records = [regex_record(group_id, regex, found) for regex, found in news.items()]
        after = {**group.resolved_regexes, **news}
        new_hash = self._metadata_hash(subscribed_names(group.members.values(), after))
        if new_hash != group.metadata_hash or any(_topics(group, regex) != after[regex].topics for regex in news):
            records.append(group_epoch_record(group_id, group.epoch + 1, new_hash))
        self._groups.append(group_id, records)


def _topics(group: ConsumerGroup, regex: str) -> frozenset[str]:
    found = group.resolved_regexes.get(regex)
    return frozenset() if found is None else found.topics


def check_regex(pattern: str) -> None:
    """Raise `GroupRefusal` for an invalid pattern."""
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise GroupRefusal(
            INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None


def matching_topics(patterns: Iterable[str], topics: Iterable[str]) -> dict[str, frozenset[str]]:
    """The topics of each pattern. One that cannot be read, as from a log of another broker, has none."""
    names = list(topics)
    found: dict[str, frozenset[str]] = {}
    for pattern in patterns:
        try:
            compiled = compile_pattern(pattern)
        except ValueError:
            found[pattern] = frozenset()
        else:
            found[pattern] = frozenset(name for name in names if compiled.fullmatch(name))
    return found
