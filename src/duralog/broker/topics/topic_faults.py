"""Why a topic cannot be created or changed, as Kafka's controller reports it: an error code and a message.

The checks are in Kafka's order, since the client gets the first one that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from duralog.broker.net.log_lines import LogLines
from duralog.broker.wire import error_codes as codes
from duralog.format.filenames import LONGEST_TOPIC_NAME, collision_key, topic_name_fault
from duralog.format.internal.internal_topics import CLUSTER_METADATA, COORDINATOR_TOPICS, PLACED_BY_COUNT

NOT_GIVEN = -1
"""As a number of partitions or of replicas: the broker's default."""
REPLICAS = 1


class Fault(NamedTuple):
    code: int
    message: str | None


DUPLICATE = Fault(codes.INVALID_REQUEST, "Duplicate topic name.")
UNKNOWN_TOPIC = Fault(codes.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
UNKNOWN_ID = Fault(codes.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
TOO_MANY = Fault(codes.POLICY_VIOLATION, "Excessively large number of partitions per request.")
TIMED_OUT = Fault(codes.REQUEST_TIMED_OUT, None)


def fault_of(error: Exception, log_lines: LogLines) -> Fault:
    """What a client gets for an error of the store. Disk errors are logged as well."""
    log_lines.log_disk_error(error)
    return Fault(codes.code_of(error), str(error))


def name_fault(name: str) -> Fault | None:
    """Why a topic cannot have this name, in the words of Kafka's clients and tools."""
    if topic_name_fault(name) is None:
        return None
    if name == "":
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > LONGEST_TOPIC_NAME:
        reason = f"the length of '{name}' is longer than the max allowed length {LONGEST_TOPIC_NAME}"
    else:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return Fault(codes.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def new_name_fault(name: str, existing: Mapping[str, Any], by_collision_key: Mapping[str, str]) -> Fault | None:
    """Why a topic of this name cannot be created; `existing` are the topics that there are."""
    if name == CLUSTER_METADATA:
        return Fault(codes.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in existing:
        return Fault(codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    fault = name_fault(name)
    if fault is None and collision_key(name) in by_collision_key:
        other = by_collision_key[collision_key(name)]
        return Fault(codes.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    return fault


def placement_fault(
    partitions: int, replication_factor: int, assignments: Sequence[Any], node_id: int, default_replicas: int
) -> Fault | None:
    """Why a new topic cannot have this many partitions and replicas, or be placed so by hand."""
    if assignments:
        return _assignments_fault(partitions, replication_factor, assignments, node_id)
    if replication_factor < NOT_GIVEN or replication_factor == 0:
        return Fault(
            codes.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < NOT_GIVEN or partitions == 0:
        return Fault(codes.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    replicas = default_replicas if replication_factor == NOT_GIVEN else replication_factor
    if replicas > REPLICAS:
        return Fault(
            codes.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of"
            f" {replicas} cannot be reached because only {REPLICAS} broker(s) are registered or some brokers"
            " have all their log directories cordoned.",
        )
    return None


def _assignments_fault(
    partitions: int, replication_factor: int, assignments: Sequence[Any], node_id: int
) -> Fault | None:
    by_hand = "A manual partition assignment was specified, but"
    if replication_factor != NOT_GIVEN:
        return Fault(codes.INVALID_REQUEST, f"{by_hand} replication factor was not set to -1.")
    if partitions != NOT_GIVEN:
        return Fault(codes.INVALID_REQUEST, f"{by_hand} numPartitions was not set to -1.")
    placed: set[int] = set()
    for assignment in assignments:
        number = assignment.partition_index
        if number in placed:
            return _misplaced(f"Found multiple manual partition assignments for partition {number}")
        placed.add(number)
        fault = replicas_fault(assignment.broker_ids, node_id)
        if fault is not None:
            return fault
    if placed != set(range(len(placed))):
        return _misplaced("partitions should be a consecutive 0-based integer sequence")
    return None


def replicas_fault(broker_ids: Iterable[int], node_id: int) -> Fault | None:
    """Why a partition cannot have these replicas: there is one node."""
    by_hand = "The manual partition assignment includes"
    ordered = sorted(broker_ids)
    if not ordered:
        return _misplaced(f"{by_hand} an empty replica list.")
    previous = None
    for broker_id in ordered:
        if broker_id != node_id:
            return _misplaced(f"{by_hand} broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            return _misplaced(f"{by_hand} the broker {broker_id} more than once.")
        previous = broker_id
    return None


def more_partitions_fault(
    name: str, present: int, total: int, assignments: Sequence[Any] | None, node_id: int
) -> Fault | None:
    """Why the number of partitions of a topic cannot be changed to this."""
    if total == present:
        return Fault(codes.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if total < present:
        return Fault(
            codes.INVALID_PARTITIONS,
            f"The topic {name} currently has {present} partition(s); {total} would not be an increase.",
        )
    if name in COORDINATOR_TOPICS:
        # Kafka adds them, and loses sight of what it has committed.
        return Fault(codes.INVALID_PARTITIONS, f"{name} cannot get more partitions: {PLACED_BY_COUNT}.")
    if assignments is None:
        return None
    if len(assignments) != total - present:
        return _misplaced(
            f"Attempted to add {total - present} additional partition(s), but only {len(assignments)} assignment(s)"
            " were specified."
        )
    faults = (replicas_fault(assignment.broker_ids, node_id) for assignment in assignments)
    return next((fault for fault in faults if fault is not None), None)


def _misplaced(message: str) -> Fault:
    return Fault(codes.INVALID_REPLICA_ASSIGNMENT, message)
