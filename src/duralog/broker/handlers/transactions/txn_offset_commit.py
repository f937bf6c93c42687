"""TxnOffsetCommit, versions 0 to 5: commits offsets of a group within a transaction.

Version 5 adds the group's partition to the transaction; before, AddOffsetsToTxn must have done so. From version 3 on
the request names the member, which is checked. Clients before version 2 do not know COORDINATOR_LOAD_IN_PROGRESS and
get COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Any

from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.groups.offsets.commits import Committer, Errors, TopicCommit
from duralog.broker.groups.offsets.table import PartitionCommit
from duralog.broker.groups.refusal import GroupRefusal
from duralog.broker.topics.topics import Topics
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.wire.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_GROUP_ID,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from duralog.broker.wire.messages import optional
from duralog.broker.wire.request import Answer, Api, Fields, Request
from duralog.format.layout import NO_LEADER_EPOCH

_KNOWS_LOADING = 2
_NO_GENERATION = -1


def handle(topics: Topics, groups: GroupCoordinator, transactions: TransactionCoordinator, request: Request) -> Answer:
    message = request.message
    unknown: dict[str, list[Fields]] = {}
    commits: list[TopicCommit] = []
    for topic in message.topics:
        view = topics.by_name(topic.name)
        if view is None:
            unknown.setdefault(topic.name, [])
        there = frozenset(() if view is None else view.partitions)
        known = []
        for partition in topic.partitions:
            if partition.partition_index not in there:
                refused = _result(partition.partition_index, UNKNOWN_TOPIC_OR_PARTITION, request.version)
                unknown.setdefault(topic.name, []).append(refused)
            else:
                known.append(_commit_of(partition))
        if known and view is not None:
            commits.append(TopicCommit(topic.name, view.topic_id, known))
    answers: list[Fields] = [{"name": name, "partitions": partitions} for name, partitions in unknown.items()]
    errors = _commit(groups, transactions, request, commits) if commits else {}
    for name, _, committed in commits:
        # Results of a topic join those that were refused, but a topic that is asked for twice is answered twice.
        results = [_result(each.partition, errors[name, each.partition], request.version) for each in committed]
        if name in unknown:
            unknown[name] += results
        else:
            answers.append({"name": name, "partitions": results})
    return {"topics": answers}


def _commit_of(partition: Any) -> PartitionCommit:
    return PartitionCommit(
        partition.partition_index,
        partition.committed_offset,
        optional(partition, "committed_leader_epoch", NO_LEADER_EPOCH),
        partition.committed_metadata,
    )


def _commit(
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    request: Request,
    commits: list[TopicCommit],
) -> Errors:
    message = request.message
    partitions = [(name, commit.partition) for name, _, known in commits for commit in known]
    if not message.group_id:
        return dict.fromkeys(partitions, INVALID_GROUP_ID)
    error = transactions.check_offset_commit(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        groups.log.partition_for(message.group_id),
        request.version,
    )
    if error != NONE:
        return dict.fromkeys(partitions, error)
    committer = Committer(
        message.group_id,
        member_id=optional(message, "member_id", ""),
        instance_id=optional(message, "group_instance_id"),
        epoch=optional(message, "generation_id", _NO_GENERATION),
        version=request.version,
    )
    try:
        return groups.commits.commit_in_transaction(committer, commits, message.producer_id, message.producer_epoch)
    except GroupRefusal as refusal:
        return dict.fromkeys(partitions, refusal.error_code)


def _result(partition: int, error_code: int, version: int) -> Fields:
    if error_code == COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING:
        error_code = COORDINATOR_NOT_AVAILABLE
    return {"partition_index": partition, "error_code": error_code}


def refuse(request: Request, error_code: int, message: str | None) -> Fields:
    del message
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _result(partition.partition_index, error_code, request.version) for partition in topic.partitions
                ],
            }
            for topic in request.message.topics
        ]
    }


API = Api(28, "TxnOffsetCommit", 0, 5, handle, refuse)
