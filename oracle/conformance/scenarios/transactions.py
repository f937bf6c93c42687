"""Producer ids and transactions, before and after transactions of version 2."""

from __future__ import annotations

from typing import Any

from oracle.conformance.dialog import Dialog, is_done_with_the_last, records
from oracle.conformance.scenario import each_version, scenario
from oracle.conformance.scenarios.fetching import fetch
from oracle.conformance.scenarios.fetching import wanted as from_offset
from oracle.conformance.scenarios.groups import JOIN_LAST, find_coordinator_of, joined, stable
from oracle.conformance.scenarios.offsets import commits, committed, wanted
from oracle.conformance.scenarios.producing import data, fetched, produce
from oracle.conformance.wire import Fields

Owner = dict[str, Any]
"""Transactional id, producer id and epoch, as the requests have them."""


def started(dialog: Dialog, version: int, name: str | None, **fields: Any) -> Owner:
    if name is not None:
        find_transactions(dialog, name)
    request = {"transactional_id": name, "transaction_timeout": 60_000} | fields
    answer = dialog.eventually(is_done_with_the_last, "init_producer_id", version, **request)
    return {"transactional_id": name, "producer_id": answer["producer_id"], "producer_epoch": answer["producer_epoch"]}


def add(dialog: Dialog, version: int, owner: Owner, *topics: tuple[str, list[int]]) -> Fields:
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics]
    if version < 4:
        fields: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in owner.items()}
        fields |= {"v3_and_below_topics": asked}
    else:
        fields = {"transactions": [owner | {"verify_only": False, "topics": asked}]}
    return dialog.eventually(is_done_with_the_last, "add_partitions_to_txn", version, **fields)


def end(dialog: Dialog, version: int, owner: Owner, *, commit: bool) -> Fields:
    return dialog.eventually(is_done_with_the_last, "end_txn", version, **owner, committed=commit)


def write(dialog: Dialog, version: int, owner: Owner, topic: str, sequence: int, partition: int = 0) -> Fields:
    batch = records(
        2, sequence, producer_id=owner["producer_id"], producer_epoch=owner["producer_epoch"],
        base_sequence=sequence, is_transactional=True,
    )  # fmt: skip
    return produce(dialog, version, data(topic, (partition, batch)), transactional_id=owner["transactional_id"])


def read(dialog: Dialog, topic: str, partition: int = 0) -> None:
    """What both kinds of readers get, once every marker is written."""
    dialog.eventually(
        lambda answer: _is_stable(answer["responses"][0]["partitions"][0]),
        "fetch", 11, replica_id=-1, max_bytes=1 << 20, session_epoch=-1, isolation_level=1,
        topics=[from_offset(topic, (partition, 0))],
    )  # fmt: skip
    fetch(dialog, 11, from_offset(topic, (partition, 0)))


def _is_stable(partition: Fields) -> bool:
    stable: bool = partition["high_watermark"] == partition["last_stable_offset"]
    return stable


@each_version(0, 5)
def init_producer_id(dialog: Dialog, version: int) -> None:
    api, name = "init_producer_id", dialog.name
    dialog.ask(api, version, transactional_id=None, transaction_timeout=60_000)
    dialog.ask(api, version, transactional_id=None, transaction_timeout=-1)
    dialog.ask(api, version, transactional_id="", transaction_timeout=60_000)
    owner = started(dialog, version, name)
    started(dialog, version, name)
    dialog.ask(api, version, transactional_id=name, transaction_timeout=0)
    dialog.ask(api, version, transactional_id=name, transaction_timeout=-1)
    dialog.ask(api, version, transactional_id=name, transaction_timeout=1 << 30)
    if version >= 3:
        started(dialog, version, name, producer_id=owner["producer_id"], producer_epoch=0)
        started(dialog, version, name, producer_id=owner["producer_id"], producer_epoch=owner["producer_epoch"] + 1)
        started(dialog, version, name, producer_id=owner["producer_id"], producer_epoch=77)
        started(dialog, version, name, producer_id=owner["producer_id"] + 1000, producer_epoch=0)
        started(dialog, version, name, producer_id=owner["producer_id"], producer_epoch=-1)
        started(dialog, version, name, producer_id=-1, producer_epoch=3)
        dialog.ask(api, version, transactional_id=None, producer_id=5, producer_epoch=3, transaction_timeout=60_000)


@each_version(0, 4)
def transaction_as_of_old(dialog: Dialog, version: int) -> None:
    """Partitions are added one by one and the epoch stays."""
    name = topic = dialog.name
    group = f"{name}-group"
    dialog.create_topic(topic, 2)
    find_coordinator_of(dialog, group)
    owner = started(dialog, version, name)
    for commit in (True, False):
        sequence = 0 if commit else 2
        add(dialog, min(version, 3), owner, (topic, [0, 1]))
        write(dialog, 11, owner, topic, sequence)
        dialog.ask("add_offsets_to_txn", version, **owner, group_id=group)
        dialog.ask(
            "txn_offset_commit", version, **owner, group_id=group, generation_id=-1, member_id="",
            topics=[commits(topic, (0, 7 + sequence))],
        )  # fmt: skip
        committed(dialog, 5, group, wanted(topic, 0, 1))
        committed(dialog, 7, group, wanted(topic, 0, 1), require_stable=True)
        end(dialog, version, owner, commit=commit)
        end(dialog, version, owner, commit=commit)
    read(dialog, topic)
    read(dialog, topic, 1)
    committed(dialog, 5, group, wanted(topic, 0, 1))
    fenced = started(dialog, version, name)
    add(dialog, min(version, 3), owner, (topic, [0]))
    dialog.ask("add_offsets_to_txn", version, **owner, group_id=group)
    end(dialog, version, owner, commit=True)
    write(dialog, 11, owner, topic, 4)
    end(dialog, version, fenced, commit=True)
    end(dialog, version, fenced, commit=False)


@scenario
def transaction_of_version_2(dialog: Dialog) -> None:
    """Partitions are added by writing to them, and every end raises the epoch."""
    name = topic = dialog.name
    group = f"{name}-group"
    dialog.create_topic(topic, 2)
    find_coordinator_of(dialog, group)
    owner = started(dialog, 5, name)
    for number, commit in enumerate((True, False, True)):
        write(dialog, 12, owner, topic, 0)
        write(dialog, 12, owner, topic, 2)
        write(dialog, 12, owner, topic, 0, 1)
        dialog.ask(
            "txn_offset_commit", 5, **owner, group_id=group, generation_id=-1, member_id="",
            topics=[commits(topic, (0, 10 + number))],
        )  # fmt: skip
        ended = end(dialog, 5, owner, commit=commit)
        end(dialog, 5, owner, commit=commit)
        end(dialog, 5, owner, commit=not commit)
        find_state(dialog, name, "CompleteCommit" if commit else "CompleteAbort")
        owner |= {"producer_id": ended["producer_id"], "producer_epoch": ended["producer_epoch"]}
    end(dialog, 5, owner, commit=False)
    ended = end(dialog, 5, owner, commit=True)
    read(dialog, topic)
    read(dialog, topic, 1)
    committed(dialog, 7, group, wanted(topic, 0), require_stable=True)
    produce(
        dialog,
        12,
        data(
            topic,
            (0, records(producer_id=owner["producer_id"], producer_epoch=0, base_sequence=0, is_transactional=True)),
        ),
        transactional_id=name,
    )


@scenario
def transactions_side_by_side(dialog: Dialog) -> None:
    """The last stable offset stops at the first that is open, and aborted ones are listed."""
    topic = dialog.name
    dialog.create_topic(topic)
    owners = [started(dialog, 4, f"{dialog.name}-{letter}") for letter in "abc"]
    for number, owner in enumerate(owners):
        add(dialog, 3, owner, (topic, [0]))
        write(dialog, 11, owner, topic, 0)
        dialog.write(topic, 0, 1, first=100 + number)
    fetch(dialog, 11, from_offset(topic, (0, 0)), isolation_level=1)
    dialog.ask(
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    )
    describe_producers(dialog, topic)
    end(dialog, 4, owners[1], commit=False)
    read_until(dialog, topic, high_watermark=10, last_stable_offset=0)
    end(dialog, 4, owners[0], commit=True)
    read_until(dialog, topic, high_watermark=11, last_stable_offset=6)
    end(dialog, 4, owners[2], commit=False)
    read(dialog, topic)
    fetch(dialog, 4, from_offset(topic, (0, 5)), isolation_level=1)
    fetch(dialog, 4, from_offset(topic, (0, 7)), isolation_level=1)
    describe_producers(dialog, topic)


def read_until(dialog: Dialog, topic: str, **ends: int) -> None:
    """What is committed, once the markers that were asked for are written."""
    dialog.eventually(
        lambda answer: ends.items() <= answer["responses"][0]["partitions"][0].items(),
        "fetch", 11, replica_id=-1, max_bytes=1 << 20, session_epoch=-1, isolation_level=1,
        topics=[from_offset(topic, (0, 0))],
    )  # fmt: skip


def describe_producers(dialog: Dialog, topic: str) -> None:
    pending = dialog.on().send("describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}])
    answer = pending.take()
    for each in answer["topics"]:
        for partition in each["partitions"]:
            partition["active_producers"].sort(key=lambda producer: producer["producer_id"])
    pending.write_down(answer)


@each_version(0, 5)
def add_partitions_to_txn(dialog: Dialog, version: int) -> None:
    name = topic = dialog.name
    dialog.create_topic(topic, 2)
    nobody: Owner = {"transactional_id": f"{name}-nobody", "producer_id": 7, "producer_epoch": 0}
    find_transactions(dialog, name, f"{name}-nobody")
    add(dialog, version, nobody, (topic, [0]))
    owner = started(dialog, 4, name)
    add(dialog, version, owner, (topic, [0]), (f"{topic}-missing", [0]))
    add(dialog, version, owner, (topic, [0, 9]))
    add(dialog, version, owner, (topic, [1]))
    add(dialog, version, owner, (topic, [1, 0]))
    add(dialog, version, owner | {"producer_epoch": 9}, (topic, [0]))
    add(dialog, version, owner | {"producer_epoch": -1}, (topic, [0]))
    add(dialog, version, owner | {"producer_id": owner["producer_id"] + 1}, (topic, [0]))
    add(dialog, version, owner | {"transactional_id": ""}, (topic, [0]))
    add(dialog, version, owner)
    if version >= 4:
        asked = [{"name": topic, "partitions": [0, 1]}]
        checked = [owner | {"verify_only": True, "topics": asked}, nobody | {"verify_only": True, "topics": asked}]
        dialog.ask("add_partitions_to_txn", version, transactions=checked)
    end(dialog, 4, owner, commit=True)


def find_transactions(dialog: Dialog, *names: str) -> None:
    """Until their coordinators are ready."""
    for name in names:
        for _ in dialog.tries():
            preparing = dialog.connection("preparing")
            if preparing.ask("find_coordinator", 1, {"key": name, "key_type": 1})["error_code"] == 0:
                answer = preparing.ask("describe_transactions", 0, {"transactional_ids": [name]})
                if answer["transaction_states"][0]["error_code"] in (0, 105):
                    break


@each_version(0, 4)
def add_offsets_to_txn(dialog: Dialog, version: int) -> None:
    name = dialog.name
    find_transactions(dialog, name, f"{name}-nobody")
    owner = started(dialog, 4, name)

    def offsets(owner: Owner, group: str = name) -> None:
        dialog.ask("add_offsets_to_txn", version, **owner, group_id=group)

    offsets({"transactional_id": f"{name}-nobody", "producer_id": 7, "producer_epoch": 0})
    offsets(owner)
    offsets(owner)
    offsets(owner, "")
    offsets(owner | {"producer_epoch": 9})
    offsets(owner | {"producer_id": owner["producer_id"] + 1})
    offsets(owner | {"transactional_id": ""})
    end(dialog, 4, owner, commit=False)


@each_version(0, 5)
def txn_offset_commit(dialog: Dialog, version: int) -> None:
    name = topic = group = dialog.name
    dialog.create_topic(topic, 2)
    find_coordinator_of(dialog, group)
    owner = started(dialog, 4, name)

    def offsets(owner: Owner, *topics: dict[str, Any], group: str = group, **fields: Any) -> None:
        request = {"generation_id": -1, "member_id": ""} | fields
        dialog.ask("txn_offset_commit", version, **owner, group_id=group, topics=list(topics), **request)

    if version < 5:
        dialog.ask("add_offsets_to_txn", 3, **owner, group_id=group)
    offsets(owner, commits(topic, (0, 5)), commits(f"{topic}-missing", (0, 1)))
    offsets(owner, commits(topic, (1, 6), (9, 1)))
    offsets(owner, commits(topic, (1, 6), metadata="x" * 5000))
    offsets(owner, commits(topic, (0, 5)), group="")
    offsets(owner)
    if version >= 3:
        offsets(owner, commits(topic, (0, 5)), member_id="nobody", generation_id=3)
        offsets(owner, commits(topic, (0, 5)), generation_id=3)
        offsets(owner, commits(topic, (0, 5)), group_instance_id="nobody")
    offsets(owner | {"producer_epoch": owner["producer_epoch"] + 5}, commits(topic, (0, 5)))
    committed(dialog, 7, group, wanted(topic, 0, 1), require_stable=True)
    ended = end(dialog, 5 if version == 5 else 4, owner, commit=True)
    dialog.eventually(
        lambda answer: all(each["error_code"] == 0 for each in answer["topics"][0]["partitions"]),
        "offset_fetch", 7, group_id=group, topics=[wanted(topic, 0, 1)], require_stable=True,
    )  # fmt: skip
    find_state(dialog, name, "CompleteCommit")  # Kafka writes it after the last marker.
    if version < 5:
        offsets(owner, commits(topic, (0, 99)))
    else:
        offsets(owner | {"producer_epoch": ended["producer_epoch"] - 1}, commits(topic, (0, 99)))


@scenario
def txn_offset_commit_by_members(dialog: Dialog) -> None:
    name = topic = group = dialog.name
    dialog.create_topic(topic)
    member = stable(dialog, group)
    owner = started(dialog, 4, name)
    who = {"generation_id": member["generation_id"], "member_id": member["member_id"]}
    dialog.ask("add_offsets_to_txn", 3, **owner, group_id=group)
    asked = {"group_id": group, "topics": [commits(topic, (0, 5))]}
    dialog.ask("txn_offset_commit", 3, **owner, **asked, **who)
    dialog.ask("txn_offset_commit", 3, **owner, **asked, **who | {"generation_id": 99})
    dialog.ask("txn_offset_commit", 3, **owner, **asked, **who | {"member_id": "nobody"})
    dialog.ask("txn_offset_commit", 3, **owner, **asked, **who, group_instance_id="nobody")
    dialog.ask("txn_offset_commit", 0, **owner, **asked)
    end(dialog, 3, owner, commit=False)


@each_version(0, 5)
def end_txn(dialog: Dialog, version: int) -> None:
    name = topic = dialog.name
    dialog.create_topic(topic)
    find_transactions(dialog, name, f"{name}-nobody")
    nobody: Owner = {"transactional_id": f"{name}-nobody", "producer_id": 7, "producer_epoch": 0}
    end(dialog, version, nobody, commit=True)
    owner = started(dialog, 4, name)
    end(dialog, version, owner, commit=True)
    add(dialog, 3, owner, (topic, [0]))
    end(dialog, version, owner | {"producer_epoch": 9}, commit=True)
    end(dialog, version, owner | {"producer_id": owner["producer_id"] + 1}, commit=True)
    end(dialog, version, owner | {"transactional_id": ""}, commit=True)
    end(dialog, version, owner, commit=True)
    end(dialog, version, owner, commit=False)


@scenario
def producers_that_are_fenced(dialog: Dialog) -> None:
    """A second start of the same id aborts what the first had open."""
    name = topic = dialog.name
    dialog.create_topic(topic)
    first = started(dialog, 4, name)
    add(dialog, 3, first, (topic, [0]))
    write(dialog, 11, first, topic, 0)
    second = started(dialog, 4, name)
    write(dialog, 11, first, topic, 2)
    end(dialog, 4, first, commit=True)
    add(dialog, 3, first, (topic, [0]))
    add(dialog, 3, second, (topic, [0]))
    write(dialog, 11, second, topic, 0)
    end(dialog, 4, second, commit=True)
    read(dialog, topic)


@scenario
def transactional_writes_without_adding(dialog: Dialog) -> None:
    name = topic = dialog.name
    dialog.create_topic(topic, 2)
    owner = started(dialog, 4, name)
    write(dialog, 11, owner, topic, 0)
    add(dialog, 3, owner, (topic, [1]))
    write(dialog, 11, owner, topic, 0)
    write(dialog, 11, owner, topic, 0, 1)
    write(dialog, 11, owner | {"producer_epoch": 5}, topic, 2, 1)
    write(dialog, 11, owner, topic, 7, 1)
    end(dialog, 4, owner, commit=True)
    read(dialog, topic, 1)


@scenario
def produce_transactionally_unasked(dialog: Dialog) -> None:
    """Transactional batches without a transaction, and the other way round."""
    topic = dialog.name
    dialog.create_topic(topic)
    find_transactions(dialog, dialog.name)
    owner: dict[str, Any] = {"producer_id": 123_456, "producer_epoch": 0, "base_sequence": 0}
    for version in (9, 11, 12):
        produce(
            dialog, version, data(topic, (0, records(**owner, is_transactional=True))), transactional_id=dialog.name
        )
        produce(dialog, version, data(topic, (0, records(**owner, is_transactional=True))), transactional_id=None)
        produce(dialog, version, data(topic, (0, records())), transactional_id=dialog.name)
    fetched(dialog, topic)


def listed(dialog: Dialog, version: int, **fields: Any) -> None:
    dialog.versions_asked.add(("list_transactions", version))
    answer = dialog.connection("").ask("list_transactions", version, fields)
    own = sorted(
        (each for each in answer["transaction_states"] if each["transactional_id"].startswith(dialog.name)),
        key=lambda each: str(each["transactional_id"]),
    )
    dialog.note(f"list_transactions v{version} {dialog.shown(fields)}", answer | {"transaction_states": own})


@each_version(0, 2)
def list_transactions(dialog: Dialog, version: int) -> None:
    topic = dialog.name
    dialog.create_topic(topic)
    ongoing, ended, _ = [started(dialog, 4, f"{dialog.name}-{letter}") for letter in "abc"]
    for owner in (ongoing, ended):
        add(dialog, 3, owner, (topic, [0]))
    end(dialog, 4, ended, commit=True)
    find_state(dialog, f"{dialog.name}-b", "CompleteCommit")
    listed(dialog, version)
    listed(dialog, version, state_filters=["Ongoing", "Empty"])
    listed(dialog, version, state_filters=["Nonsense", "CompleteCommit"])
    listed(dialog, version, producer_id_filters=[ongoing["producer_id"]])
    listed(dialog, version, producer_id_filters=[987_654_321])
    if version >= 1:
        listed(dialog, version, duration_filter=3_600_000)
        listed(dialog, version, duration_filter=0)
    if version >= 2:
        listed(dialog, version, transactional_id_pattern=".*-a")
        listed(dialog, version, transactional_id_pattern="a")
        listed(dialog, version, transactional_id_pattern="(")
        listed(dialog, version, transactional_id_pattern="")
    end(dialog, 4, ongoing, commit=False)


def find_state(dialog: Dialog, name: str, state: str) -> None:
    for _ in dialog.tries():
        answer = dialog.connection("preparing").ask("describe_transactions", 0, {"transactional_ids": [name]})
        if answer["transaction_states"][0]["transaction_state"] == state:
            return


@scenario
def describe_transactions(dialog: Dialog) -> None:
    name = topic = dialog.name
    dialog.create_topic(topic, 3)
    find_transactions(dialog, name, f"{name}-missing")

    def describe(*names: str) -> None:
        pending = dialog.on().send("describe_transactions", 0, transactional_ids=list(names))
        answer = pending.take()
        for each in answer["transaction_states"]:
            for named in each["topics"]:
                named["partitions"].sort()
        pending.write_down(answer)

    describe(name, f"{name}-missing", "")
    owner = started(dialog, 4, name)
    describe(name)
    add(dialog, 3, owner, (topic, [2, 0]))
    describe(name, name)
    end(dialog, 4, owner, commit=False)
    find_state(dialog, name, "CompleteAbort")
    describe(name)
    describe()


@scenario
def epochs_that_run_out(dialog: Dialog) -> None:
    """A producer may raise its own epoch: the answer to a retry is the same as to the first try."""
    name = dialog.name
    owner = started(dialog, 4, name)
    for _ in range(3):
        known = {"producer_id": owner["producer_id"], "producer_epoch": owner["producer_epoch"]}
        first = started(dialog, 4, name, **known)
        assert started(dialog, 4, name, **known) == first
        owner = first


@scenario
def groups_and_transactions_of_one_name(dialog: Dialog) -> None:
    """They have nothing to do with each other."""
    name = dialog.name
    dialog.create_topic(name)
    started(dialog, 4, name)
    joined(dialog, JOIN_LAST, name)
