"""Rare turns of transactions: markers by hand, every way to end one twice, recovery, the wrong producer, offsets."""

from __future__ import annotations

from typing import Any

from oracle.conformance.dialog import Dialog, is_done_with_the_last, records
from oracle.conformance.scenario import scenario
from oracle.conformance.scenarios import offsets
from oracle.conformance.scenarios.groups import find_coordinator_of
from oracle.conformance.scenarios.producing import data, produce
from oracle.conformance.scenarios.transactions import Owner, add, end, find_state, read, started, write
from oracle.conformance.wire import Fields


def ended(dialog: Dialog, owner: Owner, *, commit: bool) -> Owner:
    """The owner as it is after the end of a transaction of version 2, once every marker is written."""
    answer = end(dialog, 5, owner, commit=commit)
    find_state(dialog, owner["transactional_id"], "CompleteCommit" if commit else "CompleteAbort")
    return owner | {"producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}


@scenario
def markers_by_hand(dialog: Dialog) -> None:
    """As `kafka-transactions abort` writes them for transactions that hang."""
    topic = dialog.name
    dialog.create_topic(topic, 2)
    owner = started(dialog, 4, dialog.name)
    add(dialog, 3, owner, (topic, [0]))
    write(dialog, 11, owner, topic, 0)

    def marker(*partitions: int, epoch: int = owner["producer_epoch"], **fields: Any) -> dict[str, Any]:
        topics = [{"name": topic, "partition_indexes": list(partitions)}]
        return {"producer_id": owner["producer_id"], "producer_epoch": epoch, "topics": topics} | fields

    def write_markers(version: int, *markers: dict[str, Any]) -> Fields:
        return dialog.ask("write_txn_markers", version, markers=list(markers))

    write_markers(1, marker(9))
    write_markers(1, marker(0, coordinator_epoch=5))
    read(dialog, topic)
    write_markers(1, marker(0, coordinator_epoch=3))
    write_markers(2, marker(0, coordinator_epoch=5, transaction_version=2))
    write_markers(1)
    end(dialog, 4, owner, commit=True)


@scenario
def every_way_to_end_twice(dialog: Dialog) -> None:
    topic = dialog.name
    dialog.create_topic(topic)
    owner = started(dialog, 5, dialog.name)
    for commit in (True, False):
        write(dialog, 12, owner, topic, 0)
        owner = ended(dialog, owner, commit=commit)
        for later in (-2, -1, 1):
            for again in (True, False):
                end(dialog, 5, owner | {"producer_epoch": owner["producer_epoch"] + later}, commit=again)
        end(dialog, 5, owner, commit=True)
        end(dialog, 5, owner | {"producer_id": owner["producer_id"] + 7000}, commit=True)


@scenario
def producers_that_recover(dialog: Dialog) -> None:
    """One that knows who it was gets the same answer however often it asks, until another took its place."""
    topic = name = dialog.name
    dialog.create_topic(topic)
    owner = started(dialog, 5, name)
    write(dialog, 12, owner, topic, 0)
    owner = ended(dialog, owner, commit=True)
    known = {"producer_id": owner["producer_id"], "producer_epoch": owner["producer_epoch"]}
    for version, request in ((5, known), (5, known), (5, {}), (5, known), (3, known)):
        started(dialog, version, name, **request)


@scenario
def writes_by_the_wrong_producer(dialog: Dialog) -> None:
    topic = name = dialog.name
    dialog.create_topic(topic, 2)
    first = started(dialog, 5, name)
    write(dialog, 12, first, topic, 0)
    owner = ended(dialog, first, commit=True)
    for version in (12, 11, 10):
        write(dialog, version, first, topic, 2)
    for version in (10, 11):
        write(dialog, version, owner, topic, 0)
    write(dialog, 12, owner | {"producer_id": owner["producer_id"] + 5000}, topic, 0)
    batches = [
        records(producer_id=owner["producer_id"] + more, producer_epoch=0, base_sequence=0, is_transactional=True)
        for more in (0, 1)
    ]
    produce(dialog, 12, data(topic, (0, batches[0]), (1, batches[1])), transactional_id=name)
    produce(dialog, 12, data(topic, (0, batches[0])))


@scenario
def offsets_of_open_transactions(dialog: Dialog) -> None:
    """What may happen to a group while offsets of it wait for the end of a transaction."""
    topic = group = dialog.name
    dialog.create_topic(topic, 4)
    owner = started(dialog, 4, dialog.name)

    def begin(group: str, *places: tuple[int, int]) -> None:
        find_coordinator_of(dialog, group)
        dialog.ask("add_offsets_to_txn", 3, **owner, group_id=group)
        asked = {"group_id": group, "generation_id": -1, "member_id": "", "topics": [offsets.commits(topic, *places)]}
        dialog.ask("txn_offset_commit", 3, **owner, **asked)

    def look(group: str) -> None:
        for require_stable in (True, False):
            offsets.committed(dialog, 7, group, offsets.wanted(topic, 0, 1, 2, 3), require_stable=require_stable)
            offsets.committed(dialog, 7, group, everything=True, require_stable=require_stable)

    def delete(*partitions: int) -> None:
        asked = {"name": topic, "partitions": [{"partition_index": index} for index in partitions]}
        dialog.ask("offset_delete", 0, group_id=group, topics=[asked])

    begin(group, (0, 5), (1, 6), (2, 7))
    begin(f"{group}-gone", (0, 5))
    offsets.commit(dialog, 8, group, offsets.commits(topic, (0, 50), (3, 51)))
    look(group)
    delete(1, 3)
    look(group)
    dialog.ask("delete_groups", 2, groups_names=[f"{group}-gone"])
    look(f"{group}-gone")
    end(dialog, 4, owner, commit=True)
    find_state(dialog, dialog.name, "CompleteCommit")
    look(group)
    look(f"{group}-gone")
    begin(group, (0, 99))
    end(dialog, 4, owner, commit=False)
    find_state(dialog, dialog.name, "CompleteAbort")
    look(group)


@scenario
def transactions_that_take_too_long(dialog: Dialog) -> None:
    """The coordinator aborts them; what their producers do then comes too late."""
    topic = group = dialog.name
    dialog.create_topic(topic, 5)
    find_coordinator_of(dialog, group)

    def begun(partition: int) -> Owner:
        """Time enough for the write: Kafka may otherwise abort between adding the partition and appending to it."""
        owner = started(dialog, 5, f"{dialog.name}-{partition}", transaction_timeout=2_000)
        write(dialog, 12, owner, topic, 0, partition)
        return owner

    *owners, late = [begun(partition) for partition in range(5)]
    for owner in (*owners, late):
        find_state(dialog, owner["transactional_id"], "CompleteAbort")
    for owner, (version, commit) in zip(owners, ((5, True), (5, False), (4, True), (4, False)), strict=True):
        end(dialog, version, owner, commit=commit)
    for version in (11, 12):
        write(dialog, version, late, topic, 2, 4)
    add(dialog, 3, late, (topic, [4]))
    dialog.ask("add_offsets_to_txn", 3, **late, group_id=group)
    asked = {"group_id": group, "generation_id": -1, "member_id": "", "topics": [offsets.commits(topic, (0, 5))]}
    for version in (3, 5):
        dialog.ask("txn_offset_commit", version, **late, **asked)
    known = {"producer_id": late["producer_id"], "producer_epoch": late["producer_epoch"]}
    for request in (known, known, {}, known):
        started(dialog, 5, late["transactional_id"], **request)
    for partition in range(5):
        read(dialog, topic, partition)
    offsets.committed(dialog, 7, group, everything=True, require_stable=True)


@scenario
def partitions_added_in_odd_shapes(dialog: Dialog) -> None:
    """Topics and partitions named twice, topics without any, and none at all."""
    one, other = dialog.name, f"{dialog.name}-2"
    dialog.create_topic(one, 2)
    dialog.create_topic(other)
    shapes: tuple[tuple[tuple[str, list[int]], ...], ...] = (
        ((one, [0]), (one, [1])),
        ((one, [0, 0, 1]),),
        ((one, []),),
        (),
        ((one, []), (other, [0])),
        ((one, [0]), ("not-there", []), (other, [])),
        ((one, []), ("not-there", [1])),
        ((one, [0, 0]), (one, [9])),
    )
    for version in (3, 5):
        owner = started(dialog, 4, f"{dialog.name}-{version}")
        for shape in shapes:
            add(dialog, version, owner, *shape)
    for shape in shapes:
        topics = [{"name": name, "partitions": partitions} for name, partitions in shape]
        dialog.ask("add_partitions_to_txn", 5, transactions=[owner | {"verify_only": True, "topics": topics}])


@scenario
def transactional_offsets_in_odd_shapes(dialog: Dialog) -> None:
    group = topic = dialog.name
    dialog.create_topic(topic, 2)
    find_coordinator_of(dialog, group)
    owner = started(dialog, 4, dialog.name)
    for shape in offsets.odd_shapes(topic):
        asked = {"group_id": group, "generation_id": -1, "member_id": "", "topics": list(shape)}
        dialog.eventually(is_done_with_the_last, "txn_offset_commit", 5, **owner, **asked)
        offsets.committed(dialog, 8, group, offsets.wanted(topic, 0, 1), require_stable=True)
    ended(dialog, owner, commit=True)
    offsets.committed(dialog, 8, group, offsets.wanted(topic, 0, 1), require_stable=True)
