"""The record types of `__consumer_offsets`: committed offsets, classic groups, and groups of the newer protocols.

The tables are those of Kafka 4.3.1. Those of share and streams groups are in `share_records` and `streams_records`.
"""

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
from duralog.format.internal.share_records import SHARE_GROUP_TYPES
from duralog.format.internal.streams_records import STREAMS_GROUP_TYPES
from duralog.format.uuids import ZERO_UUID

_COMMITTED_PARTITION = (Field("group", "string"), Field("topic", "string"), Field("partition", "int32"))

_OFFSET_COMMIT = RecordType(
    "OffsetCommit",
    1,
    Message("OffsetCommitKey", _COMMITTED_PARTITION, flexible_since=None),
    Message(
        "OffsetCommitValue",
        (
            Field("offset", "int64"),
            Field("leader_epoch", "int32", since=3, default=-1),
            Field("metadata", "string"),
            Field("commit_timestamp", "int64"),
            Field("expire_timestamp", "int64", since=1, until=1, default=-1),
            Field("topic_id", "uuid", since=4, tag=0, default=ZERO_UUID),
        ),
        last_version=4,
        flexible_since=4,
    ),
)

_LEGACY_OFFSET_COMMIT = RecordType(
    "LegacyOffsetCommit",
    0,
    Message("LegacyOffsetCommitKey", _COMMITTED_PARTITION, flexible_since=None),
    Message(
        "LegacyOffsetCommitValue",
        (Field("offset", "int64"), Field("metadata", "string"), Field("commit_timestamp", "int64")),
        flexible_since=None,
    ),
)

_GROUP_METADATA = RecordType(
    "GroupMetadata",
    2,
    Message("GroupMetadataKey", (Field("group", "string"),), flexible_since=None),
    Message(
        "GroupMetadataValue",
        (
            Field("protocol_type", "string"),
            Field("generation", "int32"),
            Field("protocol", "string", nullable=True),
            Field("leader", "string", nullable=True),
            Field("current_state_timestamp", "int64", since=2, default=-1),
            Field(
                "members",
                ArrayOf(
                    Struct(
                        (
                            Field("member_id", "string"),
                            Field("group_instance_id", "string", since=3, nullable=True, default=None),
                            Field("client_id", "string"),
                            Field("client_host", "string"),
                            Field("rebalance_timeout", "int32", since=1, default=-1),
                            Field("session_timeout", "int32"),
                            Field("subscription", "bytes"),
                            Field("assignment", "bytes"),
                        )
                    )
                ),
            ),
        ),
        last_version=4,
        flexible_since=4,
    ),
)

_ASSIGNED_PARTITIONS = Struct(
    (
        *TOPIC_PARTITIONS.fields,
        Field("assignment_epochs", ArrayOf("int32"), tag=0, nullable=True, default=[]),
    )
)

_CONSUMER_GROUP_TYPES = (
    RecordType(
        "ConsumerGroupMetadata",
        3,
        group_key("ConsumerGroupMetadataKey"),
        Message(
            "ConsumerGroupMetadataValue",
            (Field("epoch", "int32"), Field("metadata_hash", "int64", tag=0, default=0)),
        ),
    ),
    RecordType(
        "ConsumerGroupPartitionMetadata",
        4,
        group_key("ConsumerGroupPartitionMetadataKey"),
        Message(
            "ConsumerGroupPartitionMetadataValue",
            (
                Field(
                    "topics",
                    ArrayOf(
                        Struct(
                            (
                                Field("topic_id", "uuid"),
                                Field("topic_name", "string"),
                                Field("num_partitions", "int32"),
                                Field(
                                    "partition_metadata",
                                    ArrayOf(Struct((Field("partition", "int32"), Field("racks", ArrayOf("string"))))),
                                ),
                            )
                        )
                    ),
                ),
            ),
        ),
    ),
    RecordType(
        "ConsumerGroupMemberMetadata",
        5,
        member_key("ConsumerGroupMemberMetadataKey"),
        Message(
            "ConsumerGroupMemberMetadataValue",
            (
                Field("instance_id", "string", nullable=True),
                Field("rack_id", "string", nullable=True),
                Field("client_id", "string"),
                Field("client_host", "string"),
                Field("subscribed_topic_names", ArrayOf("string")),
                Field("subscribed_topic_regex", "string", nullable=True),
                Field("rebalance_timeout_ms", "int32", default=-1),
                Field("server_assignor", "string", nullable=True),
                Field(
                    "classic_member_metadata",
                    Struct(
                        (
                            Field("session_timeout_ms", "int32"),
                            Field(
                                "supported_protocols",
                                ArrayOf(Struct((Field("name", "string"), Field("metadata", "bytes")))),
                            ),
                        )
                    ),
                    tag=0,
                    nullable=True,
                    # Kafka's own default is the empty struct: that there is none must be written.
                    default={"session_timeout_ms": 0, "supported_protocols": []},
                ),
            ),
        ),
    ),
    RecordType(
        "ConsumerGroupTargetAssignmentMetadata",
        6,
        group_key("ConsumerGroupTargetAssignmentMetadataKey"),
        Message("ConsumerGroupTargetAssignmentMetadataValue", TARGET_ASSIGNMENT_METADATA),
    ),
    RecordType(
        "ConsumerGroupTargetAssignmentMember",
        7,
        member_key("ConsumerGroupTargetAssignmentMemberKey"),
        Message("ConsumerGroupTargetAssignmentMemberValue", MEMBER_ASSIGNMENT),
    ),
    RecordType(
        "ConsumerGroupCurrentMemberAssignment",
        8,
        member_key("ConsumerGroupCurrentMemberAssignmentKey"),
        Message(
            "ConsumerGroupCurrentMemberAssignmentValue",
            (
                *MEMBER_EPOCHS,
                Field("assigned_partitions", ArrayOf(_ASSIGNED_PARTITIONS)),
                Field("partitions_pending_revocation", ArrayOf(_ASSIGNED_PARTITIONS)),
            ),
        ),
    ),
    RecordType(
        "ConsumerGroupRegularExpression",
        16,
        group_key("ConsumerGroupRegularExpressionKey", Field("regular_expression", "string")),
        Message(
            "ConsumerGroupRegularExpressionValue",
            (Field("topics", ArrayOf("string")), Field("version", "int64"), Field("timestamp", "int64")),
        ),
    ),
)

CONSUMER_OFFSETS_TYPES = record_types(
    _LEGACY_OFFSET_COMMIT,
    _OFFSET_COMMIT,
    _GROUP_METADATA,
    *_CONSUMER_GROUP_TYPES,
    *SHARE_GROUP_TYPES,
    *STREAMS_GROUP_TYPES,
)
