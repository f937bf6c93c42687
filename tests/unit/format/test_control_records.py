from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format import control_records
from duralog.format.control_records import (
    ControlRecord,
    ControlType,
    Endpoint,
    EndTransactionMarker,
    KRaftVersion,
    KRaftVoter,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControl,
    Voter,
)
from duralog.format.uuids import uuid_text

DIRECTORY = "ACsDLMXvQDqPXeSh-NcKzQ"
VOTER = KRaftVoter(
    voter_id=1,
    directory_id=DIRECTORY,
    endpoints=(Endpoint(name="CONTROLLER", host="127.0.0.1", port=19193),),
    min_supported_version=0,
    max_supported_version=1,
)

# All but the second leader change are from logs and snapshots that Kafka 4.3.1 wrote.
EXAMPLES = [
    ("00000000", "000000000002", EndTransactionMarker(type=ControlType.ABORT, coordinator_epoch=2)),
    ("00000001", "000000000009", EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=9)),
    (
        "00000002",
        "00000000000102000000010002000000010000",
        LeaderChange(leader_id=1, voters=(Voter(voter_id=1),), granting_voters=(Voter(voter_id=1),)),
    ),
    (
        "00000002",
        "0001000000030200000001002b032cc5ef403a8f5de4a1f8d70acd000100",
        LeaderChange(leader_id=3, voters=(Voter(voter_id=1, directory_id=DIRECTORY),), granting_voters=(), version=1),
    ),
    ("00000003", "0000000001a1de0289ef00", SnapshotHeader(last_contained_log_timestamp_ms=1794726070767)),
    ("00000004", "000000", SnapshotFooter()),
    ("00000005", "0000000100", KRaftVersion(kraft_version=1)),
    (
        "00000006",
        "00000200000001002b032cc5ef403a8f5de4a1f8d70acd020b434f4e54524f4c4c45520a3132372e302e302e314af90000000001000000",
        KRaftVoters(voters=(VOTER,)),
    ),
]


@pytest.mark.parametrize(("key", "value", "control"), EXAMPLES)
def test_examples(key: str, value: str, control: ControlRecord) -> None:
    assert control_records.decode(bytes.fromhex(key), bytes.fromhex(value)) == control
    assert control_records.encode(control) == (bytes.fromhex(key), bytes.fromhex(value))


@pytest.mark.parametrize(("key", "value", "control"), EXAMPLES)
def test_every_cut_is_refused(key: str, value: str, control: ControlRecord) -> None:
    data = bytes.fromhex(value)
    # The tagged fields at the end of the message hold nothing that is read.
    needed = len(data) - (0 if isinstance(control, EndTransactionMarker) else 1)
    for cut in range(needed):
        with pytest.raises(CorruptRecord) as refusal:
            control_records.decode(bytes.fromhex(key), data[:cut])
        assert refusal.value.fault in (Fault.FIELD_LENGTH, Fault.VARINT)


@pytest.mark.parametrize(("key", "value", "control"), EXAMPLES)
def test_later_versions_and_longer_values_are_read_by_what_is_known(
    key: str, value: str, control: ControlRecord
) -> None:
    later_key = b"\x00\x07" + bytes.fromhex(key)[2:] + b"more"
    assert control_records.decode(later_key, bytes.fromhex(value) + b"more") == control
    if not (isinstance(control, LeaderChange) and control.version == 0):
        later = control_records.decode(later_key, b"\x00\x63" + bytes.fromhex(value)[2:])
        assert getattr(later, "version") == 0x63  # noqa: B009
        assert type(later) is type(control)


def test_tagged_fields_are_skipped() -> None:
    tags = "0200036162630500"
    value = bytes.fromhex("0000000000010200000001" + tags + "01" + "00")
    control = control_records.decode(b"\x00\x00\x00\x02", value)
    assert control == LeaderChange(leader_id=1, voters=(Voter(voter_id=1),), granting_voters=())


@pytest.mark.parametrize("type_id", [7, 100, -1])
@pytest.mark.parametrize("value", [None, b"", b"any bytes"])
def test_unknown_types_are_kept_as_they_are(type_id: int, value: bytes | None) -> None:
    key = b"\x00\x00" + type_id.to_bytes(2, "big", signed=True)
    control = control_records.decode(key, value)
    assert control == UnknownControl(type_id=type_id, key=key, value=value)
    assert control_records.encode(control) == (key, value)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_keys_that_cannot_be(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match="key"):
        control_records.decode(key, b"\x00\x00\x00\x00\x00\x00")


@pytest.mark.parametrize("control_type", list(ControlType))
def test_values_that_cannot_be(control_type: ControlType) -> None:
    key = b"\x00\x00" + control_type.to_bytes(2, "big")
    with pytest.raises(CorruptRecord, match="without a value"):
        control_records.decode(key, None)
    with pytest.raises(CorruptRecord, match="negative version"):
        control_records.decode(key, b"\xff\xff" + bytes(20))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("00000000000100", Fault.FIELD_VALUE),
        ("000000000001ffffffff0f00", Fault.FIELD_LENGTH),
        ("000000000001ffffffffff01", Fault.VARINT),
        ("0000000000010200000001ffffffff0f", Fault.VARINT),
        ("000000000001020000000101007f", Fault.FIELD_LENGTH),
    ],
    ids=["null array", "count", "endless count", "many tags", "long tag"],
)
def test_counts_and_lengths_that_cannot_be(value: str, fault: Fault) -> None:
    with pytest.raises(CorruptRecord) as refusal:
        control_records.decode(b"\x00\x00\x00\x02", bytes.fromhex(value))
    assert refusal.value.fault is fault
    assert refusal.value.position is not None


@pytest.mark.parametrize(
    "control",
    [
        EndTransactionMarker(type=ControlType.LEADER_CHANGE, coordinator_epoch=0),
        EndTransactionMarker(type=ControlType.COMMIT, coordinator_epoch=2**31),
        LeaderChange(leader_id=2**31, voters=(), granting_voters=()),
        LeaderChange(leader_id=0, voters=(Voter(voter_id=1, directory_id="short"),), granting_voters=(), version=1),
        KRaftVoters(
            voters=(
                KRaftVoter(
                    voter_id=1,
                    directory_id=DIRECTORY,
                    endpoints=(Endpoint(name="A", host="b", port=65536),),
                    min_supported_version=0,
                    max_supported_version=1,
                ),
            )
        ),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(control: ControlRecord) -> None:
    with pytest.raises(InvalidRecord):
        control_records.encode(control)


INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
DIRECTORIES = st.binary(min_size=16, max_size=16).map(uuid_text)
KRAFT_VOTERS = st.builds(
    KRaftVoter,
    voter_id=INT32,
    directory_id=DIRECTORIES,
    endpoints=st.lists(
        st.builds(Endpoint, name=st.text(max_size=200), host=st.text(max_size=9), port=st.integers(0, 65535)),
        max_size=3,
    ).map(tuple),
    min_supported_version=INT16,
    max_supported_version=INT16,
)


@given(st.lists(KRAFT_VOTERS, max_size=3).map(tuple))
def test_voters_come_back(voters: tuple[KRaftVoter, ...]) -> None:
    control = KRaftVoters(voters=voters)
    assert control_records.decode(*control_records.encode(control)) == control


@given(st.integers(0, 6), st.binary(max_size=60))
def test_any_value_decodes_or_is_refused(type_id: int, value: bytes) -> None:
    with suppress(CorruptRecord):
        control_records.decode(b"\x00\x00\x00" + bytes([type_id]), value)
