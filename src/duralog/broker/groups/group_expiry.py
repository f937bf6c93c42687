"""Expired offsets, and the groups that are left without any.

Every `offsets.retention.check.interval.ms`, all groups are checked, some in each turn of the loop, so that no client
waits for all of them.

An offset expires `offsets.retention.minutes` after the group became empty, or after it was committed if the group never
had members, or if the group has members but none that reads the topic. An empty group without offsets is removed, too.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from duralog.broker.groups.group import Group
from duralog.broker.groups.logged_groups import LoggedGroups
from duralog.broker.groups.offsets.commits import OffsetCommits
from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.net.log_lines import error_text, logger
from duralog.broker.net.timers import Timer

_GROUPS_PER_TURN: Final = 100
_MINUTE_MS: Final = 60_000


class GroupExpiry:
    def __init__(self, groups: LoggedGroups, commits: OffsetCommits) -> None:
        self._groups = groups
        self._commits = commits
        self._runtime = groups.runtime
        self._timer: Timer | None = None

    def start(self) -> None:
        interval_ms = self._runtime.config.offsets_retention_check_interval_ms
        self._timer = self._runtime.timers.after(interval_ms, self._expire_all)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire_all(self) -> None:
        self._expire_some(deque(self._groups.by_id))

    def _expire_some(self, group_ids: deque[str]) -> None:
        for _ in range(min(_GROUPS_PER_TURN, len(group_ids))):
            group = self._groups.by_id.get(group_ids.popleft())
            if group is None or not group.may_expire:
                continue
            try:
                self.expire(group)
            except GroupRefusal as refusal:
                self._log_kept(group, str(refusal))
            except Exception as error:  # The others still expire, and this one is tried again.
                self._log_kept(group, error_text(error))
        if group_ids:
            self._timer = self._runtime.timers.after(0, lambda: self._expire_some(group_ids))
        else:
            self.start()

    def _log_kept(self, group: Group, reason: str) -> None:
        """If the log refuses one, it refuses all of them."""
        self._runtime.log_lines.warn("expired offsets", f"expired offsets of group {group.group_id} stay: {reason}")

    def expire(self, group: Group) -> None:
        """Remove what has expired, and the group if nothing is left. Raises GroupRefusal if the log refuses."""
        table = self._groups.offsets
        group_id = group.group_id
        now_ms = self._runtime.clock()
        expired: list[OffsetKey] = []
        has_others = table.has_pending(group_id)
        for topic, partitions in table.of_group(group_id).items():
            is_read = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                key = OffsetKey(group_id, topic, partition)
                if not is_read and not table.is_pending(key) and self._is_expired(group, committed, now_ms):
                    expired.append(key)
                else:
                    has_others = True
        if expired:
            self._commits.remove(group_id, expired)
            logger.info("group %s: %d offsets have expired", group_id, len(expired))
        if not has_others and group.is_empty:
            self._commits.remove_group(group)
            logger.info("group %s has neither members nor offsets and is removed", group_id)

    def _is_expired(self, group: Group, committed: CommittedOffset, now_ms: int) -> bool:
        base_ms = group.expiry_base(committed.commit_timestamp_ms)
        if base_ms is None:
            return False
        if committed.expire_timestamp_ms is not None:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - base_ms >= self._runtime.config.offsets_retention_minutes * _MINUTE_MS
