"""Coordinators that start on anything: records of every type with any values, and real ones with bytes changed.

Whatever is in `__consumer_offsets` and `__transaction_state`, as long as the checksums are right: the broker starts, it
serves the groups and transactional ids of coordinators, and requests about the others get an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from duralog.broker.topics.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.format.internal.coordinator_records import CoordinatorRecord, RecordType, encode_coordinator_record
from duralog.format.internal.internal_topics import COORDINATOR_TOPICS
from duralog.format.internal.message_schema import ArrayOf, Field, Struct
from duralog.format.java_hash import coordinator_partition
from duralog.format.record import Record
from duralog.format.uuids import uuid_text
from duralog.storage.checks.verification import Verification
from duralog.storage.repair.repair import Repair
from duralog.storage.store import Store
from tests.support.broker.coordinator_cases import CASES, KeyAndValue
from tests.support.broker.group_desk import START_MS, GroupDesk

PARTITIONS = 3
RECORDS = 60
"""In each partition, in each round."""
CONFIGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": PARTITIONS,
    "offsets.retention.check.interval.ms": 1_000,
    "offsets.retention.minutes": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 1_000,
}
GROUPS = [f"kept-{number}" for number in range(6)]
STRANGE = [f"strange-{number}" for number in range(8)]
MEMBERS = ["m", "n", ""]
INIT, FIND, LIST_TRANSACTIONS, DESCRIBE_TRANSACTIONS, HEARTBEAT, DESCRIBE_CONSUMERS = 22, 10, 66, 65, 68, 69
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class AnyRecord:
    """Records of the tables with random values, of few groups and members, so that they meet."""

    def __init__(self, random: Random, names: Sequence[str]) -> None:
        self._random = random
        self._names = names

    def of(self, topic: str) -> KeyAndValue:
        types = COORDINATOR_TOPICS[topic]
        record_type = types[self._random.choice(sorted(types))]
        try:
            return self._encoded(topic, record_type)
        except Exception as error:  # An empty name where none may be, say.
            raise AssertionError(record_type.name) from error

    def _encoded(self, topic: str, record_type: RecordType) -> KeyAndValue:
        version = self._random.randint(0, record_type.value.last_version)
        is_tombstone = self._random.random() < 0.1
        record = CoordinatorRecord(
            type_id=record_type.id,
            type_name=record_type.name,
            key=self._struct(record_type.key.fields, 0),
            version=None if is_tombstone else version,
            value=None if is_tombstone else self._struct(record_type.value.fields, version),
        )
        return encode_coordinator_record(COORDINATOR_TOPICS[topic], record)

    def _struct(self, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
        return {field.name: self._value(field, version) for field in fields if field.is_in(version)}

    def _value(self, field: Field, version: int) -> Any:
        random = self._random
        if field.nullable and random.random() < 0.3:
            return None
        if isinstance(field.type, Struct):
            return self._struct(field.type.fields, version)
        if isinstance(field.type, ArrayOf):
            element = Field(field.name, field.type.element)
            return [self._value(element, version) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        if field.type == "string":
            return self._text(field.name)
        if field.type == "bytes":
            return random.choice((b"", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", random.randbytes(5)))
        if field.type == "uuid":
            return uuid_text(random.choice((bytes(16), bytes(15) + b"\1", random.randbytes(16))))
        if field.type == "boolean":
            return random.random() < 0.5
        if field.type == "uint16":
            return random.randrange(2**16)
        return self._number(field.name, INTEGERS[field.type])

    def _number(self, name: str, bits: int) -> int:
        random = self._random
        if name == "transaction_status":
            return random.randint(0, 5)
        if name == "client_transaction_version":
            return random.randint(0, 2)
        if name in ("producer_id", "producer_epoch") and random.random() < 0.8:
            return random.choice((0, 1, 2**15 - 1))
        smallest: int = -(2 ** (bits - 1))
        times = [START_MS, START_MS - 10**9] if bits == 64 else []
        numbers: list[int] = [0, 0, 1, 1, 2, 5, -1, -2, smallest, -smallest - 1, *times]
        return random.choice(numbers)

    def _text(self, name: str) -> str:
        random = self._random
        if name in ("group", "group_id", "transactional_id"):
            return random.choice(self._names)
        if name in ("member_id", "leader"):
            return random.choice(MEMBERS)
        if name in ("topic", "topic_name", "topics", "subscribed_topic_names", "source_topics"):
            return random.choice(("t", "t", "u", CONSUMER_OFFSETS, "no/topic", ""))
        if "regex" in name or name == "regular_expression":
            return random.choice(("t.*", "", "(((", "a" * 50, "[z-a]", "(a+)+$"))
        return random.choice(("", "range", "uniform", "consumer", "x", "\u20ac", "i" * 300))


def changed(random: Random, content: bytes | None) -> bytes | None:
    """The bytes with something wrong: bytes changed, cut off, added, doubled or gone."""
    if not content:
        return random.choice((None, b"", b"\0", random.randbytes(4)))
    data = bytearray(content)
    at = random.randrange(len(data))
    match random.randrange(7):
        case 0:
            data[at] = random.randrange(256)
        case 1:
            data[at] ^= 1 << random.randrange(8)
        case 2:
            del data[at:]
        case 3:
            data[at:at] = random.randbytes(random.randint(1, 9))
        case 4:
            data[at : at + 4] = random.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"))
        case 5:
            data += data[at:]
        case 6:
            return None
    return bytes(data)


def some(random: Random, topic: str, names: Sequence[str]) -> Iterator[KeyAndValue]:
    """As it is, or with its key or its value changed."""
    any_record = AnyRecord(random, names)
    cases = [case for case in CASES if case.topic == topic]
    for _ in range(RECORDS):
        if random.random() < 0.2:
            key, value = random.choice(cases).make(random.choice(names))
        else:
            key, value = any_record.of(topic)
        how = random.random()
        if how < 0.2:
            key = changed(random, key) or b""
        elif how < 0.5:
            value = changed(random, value)
        yield key, value


def fill(path: Path, seed: int) -> None:
    random = Random(seed)
    with Store(str(path)) as store:
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            for number in range(PARTITIONS):
                log = store.partition(topic, number)
                names = [name for name in STRANGE if coordinator_partition(name, PARTITIONS) == number]
                for key, value in some(random, topic, names):
                    log.append([Record(key=key, value=value, timestamp_ms=START_MS)])


def make(path: Path) -> None:
    """Groups and transactional ids as coordinators write them."""
    with GroupDesk(path, CONFIGS) as desk:
        desk.with_topics(t=2, u=1)
        made: list[object] = []
        desk.broker.topics.ensure_internal(TRANSACTION_STATE, made.append)
        while not made:
            desk.broker.run_pending()
        for place, group in enumerate(GROUPS):
            desk.stable(group)
            assert desk.commit(group, {("t", 1): place}, member=member_of(desk, group), generation=1) == {("t", 1): 0}
            answer = ask(desk, INIT, 5, transactional_id=group, transaction_timeout_ms=60_000)
            assert answer.error_code == 0


def ask(desk: GroupDesk, api_key: int, version: int, **fields: Any) -> Any:
    """The answer, which may need a worker thread."""
    waiting = desk.begin(api_key, version, **fields)
    while not waiting.is_answered:
        desk.broker.run_pending()
    return waiting.answer


def member_of(desk: GroupDesk, group: str) -> str:
    return next(iter(desk.classic_group(group).members))


def check_served(desk: GroupDesk) -> None:
    for place, group in enumerate(GROUPS):
        assert desk.committed(group) == {("t", 1): place}
        assert desk.heartbeat(group, member_of(desk, group), 1) == 0
        assert ask(desk, DESCRIBE_TRANSACTIONS, 0, transactional_ids=[group]).transaction_states[0].error_code == 0


def ask_for_all(desk: GroupDesk) -> None:
    """Every question about the strange ones has an answer."""
    ask(desk, 16, 5, states_filter=[], types_filter=[])
    ask(desk, LIST_TRANSACTIONS, 1, state_filters=[], producer_id_filters=[], duration_filter=-1)
    for name in STRANGE:
        desk.describe(name)
        ask(desk, DESCRIBE_CONSUMERS, 0, group_ids=[name], include_authorized_operations=False)
        desk.committed(name)
        desk.commit(name, {("t", 0): 1})
        desk.join(name)
        desk.join(name, "m")
        desk.heartbeat(name, "m", 1)
        desk.leave(name, ("m", None))
        for member in MEMBERS[:2]:
            for epoch in (0, 1):
                ask(
                    desk,
                    HEARTBEAT,
                    1,
                    group_id=name,
                    member_id=member,
                    member_epoch=epoch,
                    instance_id=None,
                    rack_id=None,
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_names=["t"],
                    subscribed_topic_regex=None,
                    server_assignor=None,
                    topic_partitions=[],
                )
        ask(desk, DESCRIBE_TRANSACTIONS, 0, transactional_ids=[name])
        ask(desk, INIT, 5, transactional_id=name, transaction_timeout_ms=60_000)
        ask(desk, 42, 2, groups_names=[name])


@pytest.mark.parametrize("seed", range(5))
def test_the_broker_starts_and_serves_the_others(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path / "data")
    fill(tmp_path / "data", seed)
    with GroupDesk(tmp_path / "data", CONFIGS) as desk:
        check_served(desk)
        ask_for_all(desk)
        for _ in range(20):
            desk.pass_time(5_000)
            check_served(desk)
    repaired = list(Repair(str(tmp_path / "data")).run())
    assert sum(len(each.errors) for each in repaired) > 2 * PARTITIONS
    verification = Verification(str(tmp_path / "data"))
    assert [error for report in verification.run() for error in report.errors] == []
    with GroupDesk(tmp_path / "data", CONFIGS, now_ms=START_MS + 100_000) as again:
        check_served(again)
        ask_for_all(again)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == []
