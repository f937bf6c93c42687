"""The record types of share groups, in `__consumer_offsets`, and of their progress, in `__share_group_state`."""

from __future__ import annotations

from duralog.format.internal.coordinator_records import (
    MEMBER_ASSIGNMENT,
    MEMBER_EPOCHS,
    TARGET_ASSIGNMENT_METADATA,
    TOPIC_PARTITIONS,
    RecordType,
    group_key,
    member_key,
    record_types,
)
from duralog.format.internal.message_schema import ArrayOf, Field, Message, Struct

_NAMED_TOPIC = (Field("topic_id", "uuid"), Field("topic_name", "string"))
_NAMED_TOPIC_PARTITIONS = Struct((*_NAMED_TOPIC, Field("partitions", ArrayOf("int32"))))

SHARE_GROUP_TYPES = (
    RecordType(
        "ShareGroupMemberMetadata",
        10,
        member_key("ShareGroupMemberMetadataKey"),
        Message(
            "ShareGroupMemberMetadataValue",
            (
                Field("rack_id", "string", nullable=True),
                Field("client_id", "string"),
                Field("client_host", "string"),
                Field("subscribed_topic_names", ArrayOf("string")),
            ),
        ),
    ),
    RecordType(
        "ShareGroupMetadata",
        11,
        group_key("ShareGroupMetadataKey"),
        Message("ShareGroupMetadataValue", (Field("epoch", "int32"), Field("metadata_hash", "int64"))),
    ),
    RecordType(
        "ShareGroupTargetAssignmentMetadata",
        12,
        group_key("ShareGroupTargetAssignmentMetadataKey"),
        Message("ShareGroupTargetAssignmentMetadataValue", TARGET_ASSIGNMENT_METADATA),
    ),
    RecordType(
        "ShareGroupTargetAssignmentMember",
        13,
        member_key("ShareGroupTargetAssignmentMemberKey"),
        Message("ShareGroupTargetAssignmentMemberValue", MEMBER_ASSIGNMENT),
    ),
    RecordType(
        "ShareGroupCurrentMemberAssignment",
        14,
        member_key("ShareGroupCurrentMemberAssignmentKey"),
        Message(
            "ShareGroupCurrentMemberAssignmentValue",
            (*MEMBER_EPOCHS, Field("assigned_partitions", ArrayOf(TOPIC_PARTITIONS))),
        ),
    ),
    RecordType(
        "ShareGroupStatePartitionMetadata",
        15,
        group_key("ShareGroupStatePartitionMetadataKey"),
        Message(
            "ShareGroupStatePartitionMetadataValue",
            (
                Field("initializing_topics", ArrayOf(_NAMED_TOPIC_PARTITIONS)),
                Field("initialized_topics", ArrayOf(_NAMED_TOPIC_PARTITIONS)),
                Field("deleting_topics", ArrayOf(Struct(_NAMED_TOPIC))),
            ),
        ),
    ),
)

_SHARE_PARTITION = (Field("group_id", "string"), Field("topic_id", "uuid"), Field("partition", "int32"))
_STATE_BATCHES = Field(
    "state_batches",
    ArrayOf(
        Struct(
            (
                Field("first_offset", "int64"),
                Field("last_offset", "int64"),
                Field("delivery_state", "int8"),
                Field("delivery_count", "int16"),
            )
        )
    ),
)
_DELIVERY_COMPLETE_COUNT = Field("delivery_complete_count", "int32", tag=0, default=-1)

SHARE_GROUP_STATE_TYPES = record_types(
    RecordType(
        "ShareSnapshot",
        0,
        Message("ShareSnapshotKey", _SHARE_PARTITION, flexible_since=None),
        Message(
            "ShareSnapshotValue",
            (
                Field("snapshot_epoch", "int32"),
                Field("state_epoch", "int32"),
                Field("leader_epoch", "int32"),
                Field("start_offset", "int64"),
                _DELIVERY_COMPLETE_COUNT,
                Field("create_timestamp", "int64"),
                Field("write_timestamp", "int64"),
                _STATE_BATCHES,
            ),
        ),
    ),
    RecordType(
        "ShareUpdate",
        1,
        Message("ShareUpdateKey", _SHARE_PARTITION, flexible_since=None),
        Message(
            "ShareUpdateValue",
            (
                Field("snapshot_epoch", "int32"),
                Field("leader_epoch", "int32"),
                Field("start_offset", "int64"),
                _DELIVERY_COMPLETE_COUNT,
                _STATE_BATCHES,
            ),
        ),
    ),
)
