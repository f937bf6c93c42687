"""The record types of Kafka Streams groups, in `__consumer_offsets`."""

from __future__ import annotations

from duralog.format.internal.coordinator_records import (
    MEMBER_EPOCHS,
    TARGET_ASSIGNMENT_METADATA,
    RecordType,
    group_key,
    member_key,
)
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct

_KEY_VALUE = Struct((Field("key", "string"), Field("value", "string")))
_TASKS = (Field("subtopology_id", "string"), Field("partitions", ArrayOf("int32")))
_TARGET_TASKS = ArrayOf(Struct(_TASKS))
_CURRENT_TASKS = ArrayOf(
    Struct((*_TASKS, Field("assignment_epochs", ArrayOf("int32"), tag=0, nullable=True, default=[])))
)
_TOPIC_INFO = Struct(
    (
        Field("name", "string"),
        Field("partitions", "int32"),
        Field("replication_factor", "int16"),
        Field("topic_configs", ArrayOf(_KEY_VALUE)),
    )
)
_SUBTOPOLOGY = Struct(
    (
        Field("subtopology_id", "string"),
        Field("source_topics", ArrayOf("string")),
        Field("source_topic_regex", ArrayOf("string")),
        Field("state_changelog_topics", ArrayOf(_TOPIC_INFO)),
        Field("repartition_sink_topics", ArrayOf("string")),
        Field("repartition_source_topics", ArrayOf(_TOPIC_INFO)),
        Field(
            "copartition_groups",
            ArrayOf(
                Struct(
                    (
                        Field("source_topics", ArrayOf("int16")),
                        Field("source_topic_regex", ArrayOf("int16")),
                        Field("repartition_source_topics", ArrayOf("int16")),
                    )
                )
            ),
        ),
    )
)

STREAMS_GROUP_TYPES = (
    RecordType(
        "StreamsGroupMetadata",
        17,
        group_key("StreamsGroupMetadataKey"),
        Message(
            "StreamsGroupMetadataValue",
            (
                Field("epoch", "int32"),
                Field("metadata_hash", "int64"),
                Field("validated_topology_epoch", "int32", tag=0, default=-1),
                Field("last_assignment_configs", ArrayOf(_KEY_VALUE), tag=1, nullable=True, default=[]),
            ),
        ),
    ),
    RecordType(
        "StreamsGroupMemberMetadata",
        19,
        member_key("StreamsGroupMemberMetadataKey"),
        Message(
            "StreamsGroupMemberMetadataValue",
            (
                Field("instance_id", "string", nullable=True),
                Field("rack_id", "string", nullable=True),
                Field("client_id", "string"),
                Field("client_host", "string"),
                Field("rebalance_timeout_ms", "int32", default=-1),
                Field("topology_epoch", "int32"),
                Field("process_id", "string"),
                Field(
                    "user_endpoint",
                    Struct((Field("host", "string"), Field("port", "uint16"))),
                    nullable=True,
                    default=None,
                ),
                Field("client_tags", ArrayOf(_KEY_VALUE)),
            ),
        ),
    ),
    RecordType(
        "StreamsGroupTargetAssignmentMetadata",
        20,
        group_key("StreamsGroupTargetAssignmentMetadataKey"),
        Message("StreamsGroupTargetAssignmentMetadataValue", TARGET_ASSIGNMENT_METADATA),
    ),
    RecordType(
        "StreamsGroupTargetAssignmentMember",
        21,
        member_key("StreamsGroupTargetAssignmentMemberKey"),
        Message(
            "StreamsGroupTargetAssignmentMemberValue",
            (
                Field("active_tasks", _TARGET_TASKS),
                Field("standby_tasks", _TARGET_TASKS),
                Field("warmup_tasks", _TARGET_TASKS),
            ),
        ),
    ),
    RecordType(
        "StreamsGroupCurrentMemberAssignment",
        22,
        member_key("StreamsGroupCurrentMemberAssignmentKey"),
        Message(
            "StreamsGroupCurrentMemberAssignmentValue",
            (
                *MEMBER_EPOCHS,
                Field("active_tasks", _CURRENT_TASKS),
                Field("standby_tasks", _CURRENT_TASKS),
                Field("warmup_tasks", _CURRENT_TASKS),
                Field("active_tasks_pending_revocation", _CURRENT_TASKS),
                Field("standby_tasks_pending_revocation", _CURRENT_TASKS),
                Field("warmup_tasks_pending_revocation", _CURRENT_TASKS),
            ),
        ),
    ),
    RecordType(
        "StreamsGroupTopology",
        23,
        group_key("StreamsGroupTopologyKey"),
        Message("StreamsGroupTopologyValue", (Field("epoch", "int32"), Field("subtopologies", ArrayOf(_SUBTOPOLOGY)))),
    ),
)
