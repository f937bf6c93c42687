"""The permissions that each API needs, by Kafka's rules. An API without a rule is not served.

The operations are on the resources that a request names: a test checks that every handler has a rule here, and another
one compares the answers for clients without permissions with Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from duralog.broker.authorization import group_rules, topic_rules
from duralog.broker.authorization.rule_kinds import (
    ERROR_CODES,
    ERROR_TEXTS,
    Amend,
    Guard,
    Rule,
    all_of,
    anyone,
    each,
    hide,
    in_handler,
    on_cluster,
    operations_of,
    operations_of_cluster,
    take_out,
    whole,
)
from duralog.broker.authorization.topic_rules import each_topic
from duralog.broker.configs.resources import LOGGER_RESOURCE
from duralog.broker.wire.request import Api, Fields, Request
from duralog.storage.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from duralog.storage.metadata.cluster_metadata import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)

_CLUSTER_TEXT = ERROR_TEXTS[ERROR_CODES[ResourceType.CLUSTER]]
_SEVERAL_GROUPS = 8
"""The first version of OffsetFetch with several groups."""
_group_id: Callable[[Any], str] = attrgetter("group_id")
_transactional_id: Callable[[Any], str] = attrgetter("transactional_id")


def _itself(name: str) -> str:
    return name


def _configs(operation: Operation, answered: str, *, text_of_loggers: str | None) -> Rule:
    """The operation on each resource: topics and groups by name; brokers and loggers are the cluster."""

    def of(types: tuple[int, ...], resource_type: ResourceType, text: str | None) -> Rule:
        def name_of(element: Any) -> str:
            return CLUSTER_NAME if resource_type == ResourceType.CLUSTER else str(element.resource_name)

        def check(guard: Guard, api: Api, request: Request) -> Amend | None:
            asked = [element for element in request.message.resources if element.resource_type in types]
            names = dict.fromkeys(map(name_of, asked))
            refused = {name for name in names if not guard.authorizer.allows(request, operation, resource_type, name)}
            if not refused:
                return None

            def is_refused(element: Any) -> bool:
                return element.resource_type in types and name_of(element) in refused

            return take_out(api, request, "resources", answered, is_refused, ERROR_CODES[resource_type], text)

        return check

    return all_of(
        of((BROKER_RESOURCE, CLIENT_METRICS_RESOURCE), ResourceType.CLUSTER, _CLUSTER_TEXT),
        of((LOGGER_RESOURCE,), ResourceType.CLUSTER, text_of_loggers),
        of((GROUP_RESOURCE,), ResourceType.GROUP, ERROR_TEXTS[ERROR_CODES[ResourceType.GROUP]]),
        of((TOPIC_RESOURCE,), ResourceType.TOPIC, ERROR_TEXTS[ERROR_CODES[ResourceType.TOPIC]]),
    )


_one_fetched_group = whole(Operation.DESCRIBE, ResourceType.GROUP, _group_id)
_each_fetched_group = each(Operation.DESCRIBE, ResourceType.GROUP, "groups", "groups", _group_id)


def _offset_fetch_groups(guard: Guard, api: Api, request: Request) -> Fields | Amend | None:
    rule = _each_fetched_group if request.version >= _SEVERAL_GROUPS else _one_fetched_group
    return rule(guard, api, request)


_member_of_group = whole(Operation.READ, ResourceType.GROUP, _group_id)
_writer_of_transaction = whole(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_id)

RULES: Mapping[str, Rule] = {
    "Produce": in_handler,
    "Fetch": in_handler,
    "ListOffsets": each_topic(Operation.DESCRIBE),
    "Metadata": all_of(
        topic_rules.metadata,
        operations_of(ResourceType.TOPIC, "topics", "name", "topic_authorized_operations"),
        operations_of_cluster("cluster_authorized_operations"),
    ),
    "OffsetCommit": all_of(_member_of_group, each_topic(Operation.READ)),
    "OffsetFetch": all_of(_offset_fetch_groups, group_rules.fetched_offsets),
    "FindCoordinator": group_rules.find_coordinator,
    "JoinGroup": _member_of_group,
    "Heartbeat": _member_of_group,
    "LeaveGroup": _member_of_group,
    "SyncGroup": _member_of_group,
    "DescribeGroups": all_of(
        operations_of(ResourceType.GROUP, "groups", "group_id", "authorized_operations"),
        each(Operation.DESCRIBE, ResourceType.GROUP, "groups", "groups", _itself, first=True),
    ),
    "ListGroups": hide(Operation.DESCRIBE, ResourceType.GROUP, "groups", "group_id", unless=Operation.DESCRIBE),
    "SaslHandshake": anyone,
    "ApiVersions": anyone,
    "CreateTopics": topic_rules.create_topics,
    "DeleteTopics": topic_rules.delete_topics,
    "DeleteRecords": each_topic(Operation.DELETE),
    "InitProducerId": group_rules.init_producer_id,
    "OffsetForLeaderEpoch": each_topic(Operation.DESCRIBE, unless=Operation.CLUSTER_ACTION),
    "AddPartitionsToTxn": group_rules.add_partitions_to_txn,
    "AddOffsetsToTxn": all_of(_writer_of_transaction, _member_of_group),
    "EndTxn": _writer_of_transaction,
    "WriteTxnMarkers": on_cluster(Operation.ALTER, Operation.CLUSTER_ACTION),
    "TxnOffsetCommit": all_of(_writer_of_transaction, _member_of_group, each_topic(Operation.READ)),
    "DescribeAcls": on_cluster(Operation.DESCRIBE),
    "CreateAcls": on_cluster(Operation.ALTER),
    "DeleteAcls": on_cluster(Operation.ALTER),
    "DescribeConfigs": _configs(Operation.DESCRIBE_CONFIGS, "results", text_of_loggers=_CLUSTER_TEXT),
    "AlterConfigs": _configs(Operation.ALTER_CONFIGS, "responses", text_of_loggers=None),
    "AlterReplicaLogDirs": on_cluster(Operation.ALTER),
    "DescribeLogDirs": on_cluster(Operation.DESCRIBE),
    "SaslAuthenticate": anyone,
    "CreatePartitions": each_topic(Operation.ALTER, answered="results"),
    "DeleteGroups": each(Operation.DELETE, ResourceType.GROUP, "groups_names", "results", _itself),
    "ElectLeaders": on_cluster(Operation.ALTER),
    "IncrementalAlterConfigs": _configs(Operation.ALTER_CONFIGS, "responses", text_of_loggers=None),
    "AlterPartitionReassignments": on_cluster(Operation.ALTER),
    "ListPartitionReassignments": on_cluster(Operation.DESCRIBE),
    "OffsetDelete": all_of(whole(Operation.DELETE, ResourceType.GROUP, _group_id), group_rules.offset_delete),
    "DescribeClientQuotas": on_cluster(Operation.DESCRIBE_CONFIGS, text=None),
    "AlterClientQuotas": on_cluster(Operation.ALTER_CONFIGS, text=_CLUSTER_TEXT),
    "DescribeUserScramCredentials": on_cluster(Operation.DESCRIBE, text=None),
    "AlterUserScramCredentials": on_cluster(Operation.ALTER),
    "DescribeQuorum": on_cluster(Operation.DESCRIBE, text=_CLUSTER_TEXT),
    "UpdateFeatures": on_cluster(Operation.ALTER),
    "DescribeCluster": operations_of_cluster("cluster_authorized_operations"),
    "DescribeProducers": in_handler,
    "UnregisterBroker": on_cluster(Operation.ALTER),
    "DescribeTransactions": all_of(
        group_rules.topics_of_transactions,
        each(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_ids", "transaction_states", _itself),
    ),
    "ListTransactions": hide(
        Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transaction_states", "transactional_id"
    ),
    "ConsumerGroupHeartbeat": all_of(_member_of_group, group_rules.subscribed_topics),
    "ConsumerGroupDescribe": all_of(
        group_rules.described_topics,
        operations_of(ResourceType.GROUP, "groups", "group_id", "authorized_operations"),
        each(Operation.DESCRIBE, ResourceType.GROUP, "group_ids", "groups", _itself, first=True),
    ),
    "ListConfigResources": on_cluster(Operation.DESCRIBE_CONFIGS),
    "DescribeTopicPartitions": all_of(
        topic_rules.describe_topic_partitions,
        operations_of(ResourceType.TOPIC, "topics", "name", "topic_authorized_operations"),
    ),
}
"""By the names of the APIs."""
