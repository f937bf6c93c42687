"""Control records: what brokers write between the data, in batches with the control bit.

The key has the type. Commit and abort markers end a producer's transaction in any partition; the other types occur in
the metadata log and its snapshots only. Their values start with a version and use Kafka's flexible encoding: compact
lengths are unsigned varints of length + 1, and each struct ends with tagged fields, which are skipped here.

Readers must outlive their writers' formats: a type that is not known decodes to `UnknownControl`, a newer version
decodes by the newest known one, and bytes after the known fields are ignored. A value that ends before its fields
do, or a count that its bytes cannot hold, is a `CorruptRecord` whose position counts in the value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from duralog.errors import CorruptRecord, Fault, InvalidRecord
from duralog.format.layout import CONTROL_KEY, END_TRANSACTION_MARKER
from duralog.format.uuids import UUID_BYTES, ZERO_UUID, uuid_bytes, uuid_text
from duralog.format.varint import decode_unsigned_varint, encode_unsigned_varint

_T = TypeVar("_T")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionMarker:
    """A producer's transaction was committed or aborted."""

    type: ControlType
    """COMMIT or ABORT."""
    coordinator_epoch: int
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    voter_id: int
    directory_id: str = ZERO_UUID
    """From version 1 of the leader change on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """The first record of each epoch of the metadata log."""

    leader_id: int
    voters: Sequence[Voter]
    granting_voters: Sequence[Voter]
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    last_contained_log_timestamp_ms: int
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFooter:
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVersion:
    kraft_version: int
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVoter:
    voter_id: int
    directory_id: str
    endpoints: Sequence[Endpoint]
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KRaftVoters:
    """Who votes from here on."""

    voters: Sequence[KRaftVoter]
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownControl:
    """A type of a later Kafka, as it is stored."""

    type_id: int
    key: bytes
    value: bytes | None


KnownControl = EndTransactionMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters
ControlRecord = KnownControl | UnknownControl

_LEADER_CHANGE_WITH_DIRECTORIES = 1


def decode(key: bytes | None, value: bytes | None) -> ControlRecord:
    """What a record of a control batch says."""
    type_id = decode_type_id(key)
    try:
        control_type = ControlType(type_id)
    except ValueError:
        return UnknownControl(type_id=type_id, key=key or b"", value=value)
    if value is None:
        raise CorruptRecord("a control record without a value", expected=control_type.name, found="null")
    fields = _Fields(value)
    version = fields.int16()
    if version < 0:
        raise CorruptRecord("a negative version of a control record", position=0, expected="0 or more", found=version)
    return _DECODERS[control_type](fields, control_type, version)


def decode_type_id(key: bytes | None) -> int:
    """The type of a control record, known or not, from its key alone. Newer key versions may append to it."""
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptRecord(
            "a control record's key is too short",
            fault=Fault.FIELD_LENGTH,
            position=0,
            expected=f"{CONTROL_KEY.size} bytes",
            found="null" if key is None else len(key),
        )
    version, type_id = CONTROL_KEY.unpack(key)
    if version < 0:
        raise CorruptRecord("a negative version of a control key", position=0, expected="0 or more", found=version)
    return type_id


def encode(control: ControlRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a control record."""
    if isinstance(control, UnknownControl):
        return control.key, control.value
    try:
        control_type, value = _encode_known(control)
    except (struct.error, ValueError) as error:
        raise InvalidRecord(f"a field of {type(control).__name__} is out of range: {error}") from None
    return CONTROL_KEY.pack(0, control_type), value


class _Fields:
    """Reads fields one after the other. Each is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size: int) -> bytes:
        left = len(self._data) - self._position
        if size > left:
            raise CorruptRecord(
                "a control record ends inside a field",
                fault=Fault.FIELD_LENGTH,
                position=self._position,
                expected=f"{size} bytes",
                found=left,
            )
        self._position += size
        return self._data[self._position - size : self._position]

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def uint16(self) -> int:
        return int.from_bytes(self._take(2), "big")

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def uuid(self) -> str:
        return uuid_text(self._take(UUID_BYTES))

    def string(self) -> str:
        return self._take(self._compact_length()).decode("utf-8", errors="replace")

    def array(self, read_element: Callable[[], _T]) -> tuple[_T, ...]:
        position = self._position
        count = self._compact_length()
        if count > len(self._data) - self._position:
            raise CorruptRecord(
                "a control record's array cannot be that long",
                fault=Fault.FIELD_LENGTH,
                position=position,
                expected=f"at most {len(self._data) - self._position}",
                found=count,
            )
        return tuple(read_element() for _ in range(count))

    def skip_tagged(self) -> None:
        for _ in range(self._unsigned_varint()):
            self._unsigned_varint()
            self._take(self._unsigned_varint())

    def _compact_length(self) -> int:
        position = self._position
        length = self._unsigned_varint() - 1
        if length < 0:
            raise CorruptRecord(
                "null where a control record needs a value", position=position, expected="a length", found="null"
            )
        return length

    def _unsigned_varint(self) -> int:
        value, self._position = decode_unsigned_varint(self._data, self._position, len(self._data))
        return value


def _decode_marker(fields: _Fields, control_type: ControlType, version: int) -> EndTransactionMarker:
    return EndTransactionMarker(type=control_type, coordinator_epoch=fields.int32(), version=version)


def _decode_leader_change(fields: _Fields, _: ControlType, version: int) -> LeaderChange:
    def read_voter() -> Voter:
        voter_id = fields.int32()
        directory_id = fields.uuid() if version >= _LEADER_CHANGE_WITH_DIRECTORIES else ZERO_UUID
        fields.skip_tagged()
        return Voter(voter_id=voter_id, directory_id=directory_id)

    return LeaderChange(
        leader_id=fields.int32(),
        voters=fields.array(read_voter),
        granting_voters=fields.array(read_voter),
        version=version,
    )


def _decode_snapshot_header(fields: _Fields, _: ControlType, version: int) -> SnapshotHeader:
    return SnapshotHeader(last_contained_log_timestamp_ms=fields.int64(), version=version)


def _decode_snapshot_footer(_: _Fields, __: ControlType, version: int) -> SnapshotFooter:
    return SnapshotFooter(version=version)


def _decode_kraft_version(fields: _Fields, _: ControlType, version: int) -> KRaftVersion:
    return KRaftVersion(kraft_version=fields.int16(), version=version)


def _decode_kraft_voters(fields: _Fields, _: ControlType, version: int) -> KRaftVoters:
    def read_endpoint() -> Endpoint:
        endpoint = Endpoint(name=fields.string(), host=fields.string(), port=fields.uint16())
        fields.skip_tagged()
        return endpoint

    def read_voter() -> KRaftVoter:
        voter_id = fields.int32()
        directory_id = fields.uuid()
        endpoints = fields.array(read_endpoint)
        min_supported_version = fields.int16()
        max_supported_version = fields.int16()
        fields.skip_tagged()  # of the range of versions
        fields.skip_tagged()  # of the voter
        return KRaftVoter(
            voter_id=voter_id,
            directory_id=directory_id,
            endpoints=endpoints,
            min_supported_version=min_supported_version,
            max_supported_version=max_supported_version,
        )

    return KRaftVoters(voters=fields.array(read_voter), version=version)


_DECODERS: dict[ControlType, Callable[[_Fields, ControlType, int], KnownControl]] = {
    ControlType.ABORT: _decode_marker,
    ControlType.COMMIT: _decode_marker,
    ControlType.LEADER_CHANGE: _decode_leader_change,
    ControlType.SNAPSHOT_HEADER: _decode_snapshot_header,
    ControlType.SNAPSHOT_FOOTER: _decode_snapshot_footer,
    ControlType.KRAFT_VERSION: _decode_kraft_version,
    ControlType.KRAFT_VOTERS: _decode_kraft_voters,
}

_NO_TAGS = b"\x00"


def _encode_known(control: KnownControl) -> tuple[ControlType, bytes]:
    match control:
        case EndTransactionMarker():
            if control.type not in (ControlType.COMMIT, ControlType.ABORT):
                raise InvalidRecord(f"a transaction ends with COMMIT or ABORT, not {control.type.name}")
            return control.type, END_TRANSACTION_MARKER.pack(control.version, control.coordinator_epoch)
        case LeaderChange():
            head = struct.pack(">hi", control.version, control.leader_id)
            voters = _array([_leader_change_voter(voter, control.version) for voter in control.voters])
            granting = _array([_leader_change_voter(voter, control.version) for voter in control.granting_voters])
            return ControlType.LEADER_CHANGE, head + voters + granting + _NO_TAGS
        case SnapshotHeader():
            head = struct.pack(">hq", control.version, control.last_contained_log_timestamp_ms)
            return ControlType.SNAPSHOT_HEADER, head + _NO_TAGS
        case SnapshotFooter():
            return ControlType.SNAPSHOT_FOOTER, struct.pack(">h", control.version) + _NO_TAGS
        case KRaftVersion():
            return ControlType.KRAFT_VERSION, struct.pack(">hh", control.version, control.kraft_version) + _NO_TAGS
        case KRaftVoters():
            voters = _array([_kraft_voter(voter) for voter in control.voters])
            return ControlType.KRAFT_VOTERS, struct.pack(">h", control.version) + voters + _NO_TAGS


def _array(elements: Sequence[bytes]) -> bytes:
    return encode_unsigned_varint(len(elements) + 1) + b"".join(elements)


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return encode_unsigned_varint(len(data) + 1) + data


def _leader_change_voter(voter: Voter, version: int) -> bytes:
    directory = uuid_bytes(voter.directory_id) if version >= _LEADER_CHANGE_WITH_DIRECTORIES else b""
    return struct.pack(">i", voter.voter_id) + directory + _NO_TAGS


def _kraft_voter(voter: KRaftVoter) -> bytes:
    endpoints = [
        _string(endpoint.name) + _string(endpoint.host) + struct.pack(">H", endpoint.port) + _NO_TAGS
        for endpoint in voter.endpoints
    ]
    return b"".join(
        (
            struct.pack(">i", voter.voter_id),
            uuid_bytes(voter.directory_id),
            _array(endpoints),
            struct.pack(">hh", voter.min_supported_version, voter.max_supported_version),
            _NO_TAGS,
            _NO_TAGS,
        )
    )
