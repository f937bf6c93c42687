"""Records and positions asked for in shapes that hardly a client sends: twice, empty, good beside bad, unknown tags."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from oracle.conformance.dialog import Dialog, records
from oracle.conformance.scenario import scenario
from oracle.conformance.scenarios.discovery import NO_SUCH_ID, known
from oracle.conformance.scenarios.fetching import fetch, wanted
from oracle.conformance.scenarios.hostile import VERSIONS, reaction
from oracle.conformance.scenarios.positions import at, list_of
from oracle.conformance.scenarios.producing import data, fetched, produce
from oracle.conformance.wire import API_KEYS, encode_request, header, is_flexible


@scenario
def tags_that_nobody_knows(dialog: Dialog) -> None:
    """A newer client's tagged fields are skipped, in every API and version that can have them."""
    tags = {
        "an empty tag": b"\x01\xff\x7f\x00",
        "two tags": b"\x02\x62\x01a\x63\x01b",
        "a tag twice": b"\x02\x62\x01a\x62\x01b",
        "tags out of order": b"\x02\x63\x01a\x62\x01b",
        "a tag that is cut": b"\x01\x63\x03ab",
        "a tag without a size": b"\x01\x63",
    }
    for api, (first, last) in VERSIONS.items():
        if api == "add_partitions_to_txn":
            last = 3  # Newer ones without a transaction are never answered by Kafka 4.3.1.
        for version in range(first, last + 1):
            if not is_flexible(api, version):
                continue
            body = encode_request(api, version, {"acks": -1} if api == "produce" else {})
            assert body[-1] == 0, f"{api} v{version} ends with a tag"
            frame = header(API_KEYS[api], version, 1, "conformance", True) + body[:-1]
            reaction(dialog, f"{api} v{version}: a tag", frame + b"\x01\x63\x02ab")
            for name, tagged in tags.items() if version == last else ():
                reaction(dialog, f"{api} v{version}: {name}", frame + tagged)


@scenario
def produce_a_partition_twice(dialog: Dialog) -> None:
    topic_id = dialog.create_topic(dialog.name, 2)
    for version in (3, 8, 9, 12, 13):
        named: str | UUID = topic_id if version >= 13 else dialog.name
        produce(dialog, version, data(named, (0, records(3)), (0, records(1))))
        produce(dialog, version, data(named, (1, records(3)), (0, records(2))), data(named, (0, records(1))))
        produce(dialog, version, data(named, (0, records(1)), (1, b"")))
    fetched(dialog, dialog.name, 0)
    fetched(dialog, dialog.name, 1)


@scenario
def produce_to_odd_topics(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name)
    produce(dialog, 13, data(UUID(int=0), (0, records())))
    produce(dialog, 13, data(UUID(int=0), (0, records())), data(NO_SUCH_ID, (0, records()), (1, records())))
    for version in (3, 8, 9, 12):
        for name in ("", "a/b", ".", "x" * 250, "sn\N{SNOWMAN}w"):
            produce(dialog, version, data(name, (0, records())))
        produce(dialog, version, data(dialog.name, (2**31 - 1, records()), (-(2**31), records())))
        produce(dialog, version, data(dialog.name, (0, records())), acks=1, transactional_id="")
    for timeout in (0, -1):
        asked = {"acks": -1, "timeout": timeout, "topic_data": [data(dialog.name, (0, records()))]}
        dialog.ask("produce", 9, **asked)


@scenario
def fetch_sessions_of_odd_shapes(dialog: Dialog) -> None:
    topic_id = dialog.create_topic(dialog.name, 3)
    dialog.write(dialog.name, 0, 2)
    dialog.write(dialog.name, 1, 2)
    for version in (7, 12, 13, 18):
        named: str | UUID = topic_id if version >= 13 else dialog.name
        forgotten = {"topic_id": topic_id} if version >= 13 else {"topic": dialog.name}
        empty = fetch(dialog, version, session_epoch=0)["session_id"]
        if empty:
            fetch(dialog, version, session_id=empty, session_epoch=1)
            fetch(dialog, version, wanted(named, (0, 0)), session_id=empty, session_epoch=1)
            fetch(dialog, version, session_id=empty, session_epoch=2)
        session = fetch(dialog, version, wanted(named, (0, 2), (1, 2)), session_epoch=0)["session_id"]
        fetch(dialog, version, wanted(named, (0, 0), (0, 1)), session_id=session, session_epoch=1)
        fetch(
            dialog, version, wanted(named, (2, 0)), session_id=session, session_epoch=2,
            forgotten_topics_data=[forgotten | {"partitions": [2, 7]}],
        )  # fmt: skip
        fetch(
            dialog, version, session_id=session, session_epoch=3, forgotten_topics_data=[forgotten | {"partitions": []}]
        )
        fetch(dialog, version, wanted(named, (9, 0), (0, 2)), session_id=session, session_epoch=4)
        fetch(dialog, version, session_id=session, session_epoch=5)
        again = fetch(dialog, version, wanted(named, (0, 2)), session_id=session, session_epoch=0)["session_id"]
        fetch(dialog, version, session_id=session, session_epoch=6)
        fetch(
            dialog, version, session_id=again, session_epoch=1,
            forgotten_topics_data=[forgotten | {"partitions": [0]}],
        )  # fmt: skip
        fetch(dialog, version, session_id=again, session_epoch=2)
        fetch(dialog, version, session_id=-1, session_epoch=1)
        fetch(dialog, version, wanted(named, (0, 2)), session_id=77, session_epoch=-5)


@scenario
def fetch_sessions_and_deleted_topics(dialog: Dialog) -> None:
    """A topic goes and another of its name comes while sessions know the first, by name and by id."""
    name = dialog.name
    topic_id = dialog.create_topic(name)
    other_id = dialog.create_topic(f"{name}-other")
    dialog.write(name, 0, 2)
    by_name = fetch(dialog, 12, wanted(name, (0, 2)), wanted(f"{name}-other", (0, 0)), session_epoch=0)["session_id"]
    by_id = fetch(dialog, 13, wanted(topic_id, (0, 2)), wanted(other_id, (0, 0)), session_epoch=0)["session_id"]
    dialog.ask("delete_topics", 6, topics=[{"name": name}], timeout=30_000)
    dialog.eventually(
        lambda answer: not known(answer), "metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False
    )
    fetch(dialog, 12, session_id=by_name, session_epoch=1)
    fetch(dialog, 13, session_id=by_id, session_epoch=1)
    fetch(dialog, 13, wanted(topic_id, (0, 2)))
    dialog.create_topic(name)
    fetch(dialog, 12, session_id=by_name, session_epoch=2)
    fetch(dialog, 13, session_id=by_id, session_epoch=2)
    fetch(dialog, 12, wanted(name, (0, 0)), session_id=by_name, session_epoch=3)
    fetch(dialog, 12, session_id=by_name, session_epoch=4)


@scenario
def fetch_with_odd_numbers(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name, 2)
    dialog.write(dialog.name, 0, 2)
    for isolation in (-1, 2, 127):
        for version in (4, 12):
            fetch(dialog, version, wanted(dialog.name, (0, 0)), isolation_level=isolation)
    fetch(dialog, 12, wanted(dialog.name, (0, 0)), max_wait=-1, min_bytes=1 << 20)
    fetch(dialog, 12, wanted(dialog.name, (1, 0)), max_wait=30_000, min_bytes=0)
    fetch(dialog, 12, wanted(dialog.name, (1, 0)), max_wait=30_000, min_bytes=-1)
    fetch(dialog, 12, wanted(dialog.name, (1, 0)), max_wait=30_000, min_bytes=1, max_bytes=0)
    fetch(dialog, 12, wanted(dialog.name, (0, 2**63 - 1), (1, -(2**63))))
    fetch(dialog, 12, wanted(dialog.name, (0, 0), current_leader_epoch=-7))
    fetch(dialog, 12, wanted(dialog.name, (0, 0), last_fetched_epoch=-7))
    fetch(dialog, 12, wanted(dialog.name, (0, 9), last_fetched_epoch=0))
    fetch(dialog, 12, wanted(dialog.name, (0, -1), last_fetched_epoch=0))
    fetch(dialog, 12, wanted(dialog.name, (1, 0), last_fetched_epoch=0))
    fetch(dialog, 12, wanted(dialog.name, (0, 0)), cluster_id="another", rack_id="somewhere")
    fetch(dialog, 12, wanted("", (0, 0)), wanted("a/b", (0, 0)))
    fetch(
        dialog,
        12,
        wanted(dialog.name, (0, 0)),
        wanted(f"{dialog.name}-missing", (1, 0), (0, 0)),
        wanted("", (0, 0)),
        wanted(dialog.name, (1, 0)),
    )


@scenario
def fetch_of_partitions_that_are_not_there(dialog: Dialog) -> None:
    """They come last, and unknown ids before unknown partitions."""
    one, other = (dialog.create_topic(f"{dialog.name}-{letter}", 2) for letter in "ab")
    unknown = wanted(NO_SUCH_ID, (5, 0))
    for version in (13, 18):
        fetch(dialog, version, wanted(one, (99, 0), (0, 1000)), unknown)
        fetch(dialog, version, wanted(one, (99, 0), (0, 0)), wanted(other, (0, 0)), unknown, wanted(other, (8, 0)))
        fetch(dialog, version, unknown, wanted(one, (7, 0)), wanted(other, (99, 0)))


@scenario
def list_offsets_with_odd_numbers(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name, 2)
    dialog.write(name, 0, 2)
    for version in (2, 6, 11):
        for isolation in (-1, 2, 127):
            list_of(dialog, version, at(name, (0, -1)), isolation_level=isolation)
        list_of(dialog, version, at(name, (0, 2**63 - 1), (1, 0)))
        list_of(dialog, version, at(name, (0, -(2**63)), (1, -1)))
        list_of(dialog, version, at("", (0, -1)), at("a/b", (0, -1)))
        list_of(dialog, version, at(name))
        list_of(dialog, version, at(name, (0, -1)), at(name, (0, -2)), at(name, (1, -1)))
        list_of(dialog, version, at(f"{name}-missing", (0, -1), (0, -1)), at(name, (1, -1)))
        list_of(dialog, version, at(name, (0, -1), current_leader_epoch=-9))
        list_of(dialog, version, at(name, (0, -1)), timeout=-1)
        list_of(dialog, version, at(name, (0, -1)), timeout=0)
        list_of(dialog, version, at(name, (0, -99)), at(f"{name}-missing", (0, -99)))


@scenario
def metadata_of_good_and_bad(dialog: Dialog) -> None:
    """One request with a topic that is there, one that is not, and names that cannot be; nothing is made."""
    name = dialog.name
    topic_id = dialog.create_topic(name, 2)
    names = (f"{name}-missing", "a/b", name, "a/b", "")
    for version in (4, 8, 9, 11, 12, 13):
        metadata(dialog, version, *({"name": each} for each in names), allow_auto_topic_creation=False)
    unknown: dict[str, Any] = {"topic_id": NO_SUCH_ID, "name": None}
    by_id: dict[str, Any] = {"topic_id": topic_id, "name": None}
    for version in (12, 13):
        dialog.ask("metadata", version, topics=[by_id, unknown, by_id, unknown])
        dialog.ask("metadata", version, topics=[by_id, {"name": f"{name}-missing"}])
        dialog.ask("metadata", version, topics=[{"topic_id": topic_id, "name": "another"}])
        dialog.ask("metadata", version, topics=[{"name": None}, {"name": name}])


@scenario
def metadata_makes_several(dialog: Dialog) -> None:
    dialog.create_topic(dialog.name)
    for version in (0, 4, 9, 13):
        one, two = (f"{dialog.name}-{letter}{version}" for letter in "ab")
        metadata(dialog, version, *({"name": each} for each in (one, "a/b", dialog.name, two, one)))
        for each in (one, two):
            dialog.eventually(known, "metadata", version, topics=[{"name": each}], allow_auto_topic_creation=False)


def metadata(dialog: Dialog, version: int, *topics: dict[str, Any], **fields: Any) -> None:
    """With the answer in an order that no hash table has a say in."""
    pending = dialog.on().send("metadata", version, topics=list(topics), **fields)
    answer = pending.take()
    answer["topics"].sort(key=lambda each: (each["error_code"], each["name"]))
    pending.write_down(answer)


@scenario
def epochs_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name, 2)
    dialog.write(name, 0, 3)

    def ends(version: int, *topics: tuple[str, list[tuple[int, int, int]]]) -> None:
        asked = [
            {
                "topic": each,
                "partitions": [
                    {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
                    for index, current, epoch in partitions
                ],
            }
            for each, partitions in topics
        ]
        pending = dialog.on().send("offset_for_leader_epoch", version, topics=asked, replica_id=-1)
        answer = pending.take()
        answer["topics"].sort(key=lambda each: (str(each["topic"]), repr(each)))
        pending.write_down(answer)

    for version in (2, 4):
        ends(version, (name, [(0, -1, 0), (0, -1, 5)]))
        ends(version, (name, [(0, -1, 0)]), (name, [(1, -1, 0)]))
        ends(
            version, (f"{name}-missing", [(0, -1, 0)]), (name, [(0, 3, 0), (1, -7, 0), (9, 0, 0)]), ("a/b", [(0, 0, 0)])
        )
        ends(version, (name, [(0, -1, 2**31 - 1), (1, 2**31 - 1, 0)]))


@scenario
def log_dirs_of_odd_shapes(dialog: Dialog) -> None:
    name = dialog.name
    dialog.create_topic(name, 2)
    dialog.write(name, 0, 3)
    for version in (1, 5):
        for topics in (
            [{"topic": name, "partitions": []}],
            [{"topic": name, "partitions": [0, 0]}, {"topic": name, "partitions": [1]}],
            [{"topic": "", "partitions": [0]}, {"topic": "a/b", "partitions": [0]}],
        ):
            pending = dialog.on().send("describe_log_dirs", version, topics=topics)
            answer = pending.take()
            for result in answer["results"]:
                for each in result["topics"]:
                    each["partitions"].sort(key=lambda partition: partition["partition_index"])
            pending.write_down(answer)


@scenario
def describe_topic_partitions_of_odd_shapes(dialog: Dialog) -> None:
    topics = [f"{dialog.name}-{letter}" for letter in "ab"]
    for each in topics:
        dialog.create_topic(each, 3)
    ask, api = dialog.ask, "describe_topic_partitions"
    both: list[dict[str, Any]] = [{"name": each} for each in topics]
    for topic_name, index in ((topics[0], 0), (topics[1], 0), (topics[0], 3), (topics[1], 3)):
        cursor = {"topic_name": topic_name, "partition_index": index}
        ask(api, 0, topics=both, response_partition_limit=2, cursor=cursor)
    cursor = {"topic_name": f"{dialog.name}-aa", "partition_index": 1}
    ask(api, 0, topics=both, response_partition_limit=9, cursor=cursor)
    cursor = {"topic_name": f"{dialog.name}-c", "partition_index": 1}
    ask(api, 0, topics=both, response_partition_limit=9, cursor=cursor)
    cursor = {"topic_name": "", "partition_index": 0}
    ask(api, 0, topics=both, response_partition_limit=9, cursor=cursor)
    ask(api, 0, topics=[*both, {"name": f"{dialog.name}-missing"}, {"name": "a/b"}], response_partition_limit=3)
    ask(api, 0, topics=[{"name": f"{dialog.name}-aa"}, *both], response_partition_limit=1)
    ask(api, 0, topics=[{"name": ""}, *both], response_partition_limit=1, cursor=cursor | {"topic_name": "z"})
    ask(api, 0, topics=both, response_partition_limit=2**31 - 1)
