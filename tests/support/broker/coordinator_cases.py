"""Records for the coordinators' topics, right and wrong, and what Kafka 4.3.1 makes of each when it loads them.

`tests/interop/groups/test_coordinator_records.py` asks Kafka whether that is still true.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from duralog.broker.groups.offsets.records import CommittedOffset, OffsetKey, encode_offset_key, encode_offset_value
from duralog.format.internal.coordinator_records import CoordinatorRecord, encode_coordinator_record
from duralog.format.internal.group_records import CONSUMER_OFFSETS_TYPES
from duralog.format.internal.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from duralog.format.internal.transaction_records import TRANSACTION_STATE_TYPES
from duralog.format.java_hash import coordinator_partition

KeyAndValue = tuple[bytes, bytes | None]

NOW_MS = 1_794_000_000_000
SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


class Verdict(Enum):
    LOADED = "loaded"
    UNKNOWN = "of a type or version that is not known: skipped"
    UNLOADABLE = "cannot be loaded: skipped, and refused where clients write it"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    topic: str
    make: Callable[[str], KeyAndValue]
    """The record, of a group or of a transactional id."""
    verdict: Verdict
    kafka_goes_on: bool
    """Whether Kafka loads what follows the record in its partition."""

    @property
    def is_accepted(self) -> bool:
        """Whether a client may write it."""
        return self.verdict is Verdict.LOADED or (self.verdict is Verdict.UNKNOWN and self.kafka_goes_on)


def name_in(partition: int, count: int, prefix: str = "g") -> str:
    """An id whose records belong into this partition."""
    return next(
        name for number in range(10_000) if coordinator_partition(name := f"{prefix}{number}", count) == partition
    )


def text(content: str) -> bytes:
    return struct.pack(">h", len(content)) + content.encode()


# Groups


def offset_key(group: str, topic: str = "t", partition: int = 9) -> bytes:
    return encode_offset_key(OffsetKey(group, topic, partition))


def offset_value(offset: int = 7) -> bytes:
    return encode_offset_value(CommittedOffset(offset, -1, "m", NOW_MS, None, None))


def group_record(
    type_id: int, key: Mapping[str, Any], value: Mapping[str, Any] | None, version: int = 0
) -> KeyAndValue:
    record = CoordinatorRecord(
        type_id=type_id, type_name=None, key=key, version=None if value is None else version, value=value
    )
    return encode_coordinator_record(CONSUMER_OFFSETS_TYPES, record)


def member(member_id: str = "m", **changes: Any) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 60_000,
        "session_timeout": 10_000,
        "subscription": SUBSCRIBED_TO_T,
        "assignment": b"",
        **changes,
    }


def classic(group: str, *members: Mapping[str, Any], version: int = 3, **changes: Any) -> KeyAndValue:
    value = {
        "protocol_type": "consumer",
        "generation": 1,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": NOW_MS,
        "members": list(members),
        **changes,
    }
    return group_record(2, {"group": group}, value, version)


def consumer_member(group: str, **changes: Any) -> KeyAndValue:
    value = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "h",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 60_000,
        "server_assignor": None,
        "classic_member_metadata": None,
        **changes,
    }
    return group_record(5, {"group_id": group, "member_id": "m"}, value)


def consumer_epoch(group: str, epoch: int = 3) -> KeyAndValue:
    return group_record(3, {"group_id": group}, {"epoch": epoch, "metadata_hash": 0})


def _value(change: Callable[[bytes], bytes], make: Callable[[str], KeyAndValue]) -> Callable[[str], KeyAndValue]:
    def changed(name: str) -> KeyAndValue:
        key, value = make(name)
        assert value is not None
        return key, change(value)

    return changed


def _commit(name: str) -> KeyAndValue:
    return offset_key(name), offset_value()


def _in_version(version: bytes) -> Callable[[bytes], bytes]:
    return lambda value: version + value[2:]


_L, _U, _X = Verdict.LOADED, Verdict.UNKNOWN, Verdict.UNLOADABLE

_GROUPS: tuple[tuple[str, Callable[[str], KeyAndValue], Verdict, bool], ...] = (
    ("a usual commit", _commit, _L, True),
    ("a tombstone", lambda name: (offset_key(name), None), _L, True),
    ("three bytes of a key", lambda _: (b"\0\1x", offset_value()), _X, False),
    ("one byte of a key", lambda _: (b"\0", offset_value()), _X, False),
    ("an empty key", lambda _: (b"", offset_value()), _X, False),
    ("a key that is cut off", lambda _: (b"\0\2\0\x50", None), _X, False),
    ("an unknown type", lambda _: (b"\0\x63whatever", b"\0\0x"), _U, True),
    ("an unknown type without a value", lambda _: (b"\0\x63whatever", None), _U, True),
    ("an unknown type with an empty value", lambda _: (b"\0\x63whatever", b""), _U, True),
    ("a negative type", lambda _: (b"\xff\xffwhatever", b"\0\0x"), _U, True),
    ("a type that is no more", lambda _: (b"\0\x12" + text("g"), b"\0\0x"), _U, True),
    ("an empty value", lambda name: (offset_key(name), b""), _X, False),
    ("a commit of the next version", _value(_in_version(b"\0\5"), _commit), _U, False),
    ("a commit of a far version", lambda name: (offset_key(name), b"\0\x63x"), _U, False),
    ("a commit of a negative version", _value(_in_version(b"\xff\xff"), _commit), _X, False),
    ("bytes after a value", _value(lambda value: value + b"more", _commit), _L, True),
    ("bytes after a key", lambda name: (offset_key(name) + b"more", offset_value()), _L, True),
    ("a negative offset", lambda name: (offset_key(name), offset_value(-7)), _L, True),
    ("a negative partition", lambda name: (offset_key(name, "t", -1), offset_value()), _L, True),
    ("no metadata", lambda n: (offset_key(n), b"\0\3" + bytes(12) + b"\xff\xff" + bytes(8)), _X, False),
    ("unknown tags", _value(lambda value: value[:-1] + b"\2\6\1a\5\1b", _commit), _L, True),
    ("half a topic id", _value(lambda value: value[:-1] + b"\1\0\x08" + bytes(8), _commit), _X, False),
    ("more than a topic id", _value(lambda value: value[:-1] + b"\1\0\x14" + bytes(20), _commit), _X, True),
    ("an absurd number of tags", _value(lambda value: value[:-1] + b"\xff\xff\xff\xff\7", _commit), _X, False),
    ("bytes that are no text", lambda _: (b"\0\1\0\2\xff\xfe\0\1t\0\0\0\0", offset_value()), _L, True),
    ("a classic group", lambda name: classic(name, member()), _L, True),
    ("a classic group of the next version", _value(_in_version(b"\0\5"), lambda n: classic(n, version=4)), _U, False),
    ("a group that is cut off", _value(lambda value: value[:-5], lambda n: classic(n, member())), _X, False),
    ("an absurd number of members", _value(lambda value: value[:-4] + b"\x7f\xff\xff\xff", classic), _X, False),
    ("a negative number of members", _value(lambda value: value[:-4] + b"\xff" * 4, classic), _X, False),
    ("members without a protocol", lambda name: classic(name, member(), protocol=None), _X, True),
    ("a member twice", lambda name: classic(name, member(), member()), _X, True),
    (
        "an instance twice",
        lambda name: classic(name, member(group_instance_id="i"), member("n", group_instance_id="i")),
        _X,
        False,
    ),
    ("no protocol type", lambda name: classic(name, member(), protocol_type=""), _L, True),
    ("no leader", lambda name: classic(name, member(), leader=None), _L, True),
    ("another leader", lambda name: classic(name, member(), leader="nobody"), _L, True),
    ("a negative generation", lambda name: classic(name, member(), generation=-7), _L, True),
    ("a generation that is almost the last", lambda name: classic(name, member(), generation=2**31 - 2), _X, True),
    ("no timeouts", lambda name: classic(name, member(session_timeout=-7, rebalance_timeout=-9)), _L, True),
    ("a member without an id", lambda name: classic(name, member("")), _L, True),
    ("a strange subscription", lambda name: classic(name, member(subscription=b"zz")), _L, True),
    ("a consumer group", consumer_epoch, _L, True),
    ("a negative epoch", lambda name: consumer_epoch(name, -3), _L, True),
    ("the last epoch", lambda name: consumer_epoch(name, 2**31 - 1), _X, True),
    ("a consumer group of the next version", _value(_in_version(b"\0\1"), consumer_epoch), _U, False),
    ("a consumer", consumer_member, _L, True),
    ("a strange expression", lambda name: consumer_member(name, subscribed_topic_regex="((("), _L, True),
    ("an unknown assignor", lambda name: consumer_member(name, server_assignor="none"), _L, True),
    ("a negative rebalance timeout", lambda name: consumer_member(name, rebalance_timeout_ms=-5), _L, True),
    (
        "a classic consumer without protocols",
        lambda n: consumer_member(n, classic_member_metadata={"session_timeout_ms": -5, "supported_protocols": []}),
        _L,
        True,
    ),
    ("a share group", lambda name: group_record(11, {"group_id": name}, {"epoch": 3, "metadata_hash": 0}), _L, True),
    (
        "half a streams group",
        lambda name: (group_record(17, {"group_id": name}, None)[0], b"\0\0\0"),
        _X,
        False,
    ),
)

# Transactions


def transaction(transactional_id: str, *, version: int = 1, **changes: Any) -> KeyAndValue:
    value = {
        "producer_id": 5000,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "transaction_status": 4,
        "transaction_partitions": [],
        "transaction_last_update_timestamp_ms": NOW_MS,
        "transaction_start_timestamp_ms": NOW_MS - 1000,
    }
    if version >= 1:
        value |= {"previous_producer_id": 5000, "next_producer_id": -1, "client_transaction_version": 2}
    record = CoordinatorRecord(
        type_id=0,
        type_name=None,
        key={"transactional_id": transactional_id},
        version=version,
        value=value | changes,
    )
    return encode_coordinator_record(TRANSACTION_STATE_TYPES, record)


_IN_T = [{"topic": "t", "partition_ids": [0]}]
_PREPARED = {"transaction_status": 2, "transaction_partitions": _IN_T}
_PARTITIONS_AT = 17
"""In version 0: version, producer id and epoch, timeout and status come before."""


def _with(**changes: Any) -> Callable[[str], KeyAndValue]:
    return lambda name: transaction(name, **changes)


def _with_count(count: int) -> Callable[[str], KeyAndValue]:
    """A transaction that claims this number of topics."""
    packed = struct.pack(">i", count)
    return _value(
        lambda value: value[:_PARTITIONS_AT] + packed + value[_PARTITIONS_AT + 4 :],
        _with(version=0, transaction_status=1),
    )


_TRANSACTIONS: tuple[tuple[str, Callable[[str], KeyAndValue], Verdict, bool], ...] = (
    ("a completed transaction", transaction, _L, True),
    ("three bytes of a key", lambda name: (b"\0\0x", transaction(name)[1]), _X, False),
    ("an empty key", lambda name: (b"", transaction(name)[1]), _X, False),
    ("an unknown key", lambda name: (b"\0\1" + text(name), transaction(name)[1]), _U, True),
    ("bytes after a key", lambda name: (transaction(name)[0] + b"more", transaction(name)[1]), _L, True),
    ("an empty value", _value(lambda _: b"", transaction), _X, False),
    ("the next version", _value(_in_version(b"\0\2"), transaction), _U, True),
    ("a negative version", _value(_in_version(b"\xff\xff"), transaction), _X, True),
    ("bytes after a value", _value(lambda value: value + b"more", transaction), _L, True),
    ("a value that is cut off", _value(lambda value: value[:-4], transaction), _X, False),
    ("an absurd number of topics", _with_count(2**31 - 1), _X, False),
    ("a negative number of topics", _with_count(-2), _X, False),
    ("an unknown status", _with(transaction_status=8), _X, False),
    ("a negative status", _with(transaction_status=-1), _X, False),
    ("a dead producer", _with(transaction_status=6), _X, True),
    ("a fenced producer", _with(transaction_status=7), _X, True),
    ("an open transaction without partitions", _with(transaction_status=1, transaction_partitions=None), _X, False),
    ("a completed one without partitions", _with(transaction_partitions=None), _X, False),
    ("an empty one with partitions", _with(transaction_status=0, transaction_partitions=_IN_T), _L, True),
    ("a prepared one without partitions", _with(transaction_status=2), _L, True),
    (
        "a prepared one in a negative partition",
        _with(transaction_status=2, transaction_partitions=[{"topic": "t", "partition_ids": [-3]}]),
        _L,
        True,
    ),
    (
        "a prepared one in no topic",
        _with(transaction_status=2, transaction_partitions=[{"topic": "a/b", "partition_ids": [0]}]),
        _L,
        True,
    ),
    ("a prepared one of no producer", _with(**_PREPARED, producer_id=-1), _X, False),
    ("a prepared one of no epoch", _with(**_PREPARED, producer_epoch=-1), _X, False),
    ("no producer", _with(producer_id=-5), _X, True),
    ("no epoch yet", _with(producer_epoch=-1), _L, True),
    ("a negative epoch", _with(producer_epoch=-7), _X, True),
    ("the last epoch", _with(producer_epoch=32767), _L, True),
    ("a negative timeout", _with(transaction_timeout_ms=-1), _L, True),
    ("a negative time", _with(transaction_last_update_timestamp_ms=-7), _L, True),
    ("a transaction version of the future", _with(client_transaction_version=99), _X, False),
    ("a negative transaction version", _with(client_transaction_version=-9), _X, False),
    ("strange other ids", _with(previous_producer_id=-9, next_producer_id=-9), _L, True),
)

GROUP_CASES = tuple(
    Case(name, CONSUMER_OFFSETS, make, verdict, kafka_goes_on) for name, make, verdict, kafka_goes_on in _GROUPS
)
TRANSACTION_CASES = tuple(
    Case(name, TRANSACTION_STATE, make, verdict, kafka_goes_on) for name, make, verdict, kafka_goes_on in _TRANSACTIONS
)
CASES = GROUP_CASES + TRANSACTION_CASES
