"""All groups and the log that they come from. All parts of the group coordinator share it.

A lasting change of a group is written first and takes effect after that.
"""

from __future__ import annotations

from collections.abc import Sequence

from duralog.broker.groups.classic.group import ClassicGroup
from duralog.broker.groups.group import Group
from duralog.broker.groups.group_log import GroupLog
from duralog.broker.groups.known_groups import KnownGroups
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import Topics
from duralog.broker.wire.error_codes import GROUP_ID_NOT_FOUND
from duralog.format.internal.coordinator_records import CoordinatorRecord, encode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES


class LoggedGroups(KnownGroups):
    def __init__(self, runtime: Runtime, topics: Topics, partitions: Partitions) -> None:
        super().__init__(runtime.clock)
        self.runtime = runtime
        self.topics = topics
        self.log = GroupLog(runtime, topics, partitions)

    def group(self, group_id: str) -> Group:
        group = self.by_id.get(group_id)
        if group is None:
            raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def classic_group(self, group_id: str) -> ClassicGroup:
        group = self.group(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupRefusal(GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def append(self, group_id: str, records: Sequence[CoordinatorRecord], *, replay: bool = True) -> None:
        """Write the records as one batch; then apply each of them, unless the caller does that itself.

        Raises GroupRefusal if they could not be written: then nothing has changed.
        """
        self.log.append(group_id, [encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record) for record in records])
        if replay:
            for record in records:
                misfit = self.replay(record)
                if misfit is not None:
                    self.runtime.log_lines.fail("misfit", f"a record without effect was written: {misfit}")
