"""Admits one batch of a client or a coordinator: checks it against the rules of its topic, and makes the stored bytes.

Checks run in Kafka's order: frame, base offset, size, checksum, counts, then the records. An error about records lists
all records that break the rule. The batch is not changed before it has passed all checks.

Most batches take microseconds. A batch that decompresses to many bytes, breaks rules or has to be rebuilt record by
record may take seconds: a caller that cannot wait, such as the event loop, gets `TakesLong` instead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn, cast

import numpy as np

from duralog.columnar.refusals import record_fault, scan_fault
from duralog.config import TopicConfig
from duralog.config.plurals import plural
from duralog.errors import CorruptRecord, DuralogError, Fault, InvalidRecord, InvalidTimestamp, RecordTooLarge
from duralog.format import record_batch
from duralog.format.checksum import crc32c
from duralog.format.compression import Codec, decompress
from duralog.format.layout import (
    BATCH_V2,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from duralog.format.record import Record
from duralog.format.varint import Bytes
from duralog.kernels.columns import BATCH_DTYPE
from duralog.kernels.scan import scan_batches
from duralog.kernels.validate import CONSECUTIVE, WITHOUT_KEY, inspect_batch, inspect_records
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.append.producer_batch import ProducerBatch, decode_marker
from duralog.storage.append.rebuilding import Source, keeps_records, rebuild, target_codec, target_level
from duralog.storage.segment.batch_extents import Extent

_NONE = int(Fault.NONE)
_PARTIAL_BATCH = int(Fault.PARTIAL_BATCH)
_SCAN_FAULTS = (int(Fault.BATCH_LENGTH), int(Fault.UNKNOWN_MAGIC))
_CRC_MISMATCH = int(Fault.CRC_MISMATCH)

_INT64_MAX = 2**63 - 1
_CODECS = tuple(Codec)
_KNOWN_BITS = CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT

WITHOUT_NEEDED_KEY = "Compacted topic cannot accept message without key"
"""The text of an error of a record. Producers show it, and the one about timestamps: both are Kafka's words."""
_QUICKLY_UNPACKED_BYTES = 1 << 20
_QUICKLY_WALKED_RECORDS = 500
_MOST_WALKED_RECORDS = 100_000
"""A batch with more records is not decoded record by record: as Python objects they take a hundred times the memory."""
_MOST_NAMED_ERRORS = 3
"""The number of records that the text of an error names. Its `record_errors` has all of them."""

_CLIENT = AppendOrigin.CLIENT
_CHECKED = AppendOrigin.CHECKED
_BYTE = np.dtype(np.uint8)
_unpack_header = BATCH_V2.struct.unpack_from
_STAMP = struct.Struct(">qii")
_SEAL = struct.Struct(">Ih")
_TIMESTAMP = struct.Struct(">q")
assert (BATCH_V2.at.base_offset, BATCH_V2.at.length, BATCH_V2.at.leader_epoch) == (0, 8, 12)
assert BATCH_V2.at.attributes == BATCH_V2.at.crc + 4


class TakesLong(DuralogError):
    """An append would take longer than the caller can wait. Nothing was written, and the batch was not changed."""


class _Header(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


assert _Header._fields == tuple(field.name for field in BATCH_V2.fields)

_as_header: Callable[[tuple[int, ...]], _Header] = partial(tuple.__new__, _Header)
"""Like `_Header._make`, but twice as fast."""


class Stamp(NamedTuple):
    """What the log writes into new batches. The time is used if the topic has log append time."""

    next_offset: int
    leader_epoch: int
    now_ms: int


class Admission:
    """The batches of one append: the rules for them, and the batches that were admitted."""

    __slots__ = (
        "_array",
        "_config",
        "_is_checked",
        "_is_client",
        "_is_quick",
        "_leader_epoch",
        "_max_decompressed_bytes",
        "_now_ms",
        "_type_bit",
        "_view",
        "buffers",
        "extents",
        "max_timestamp_ms",
        "next_offset",
        "producer_batches",
        "size_bytes",
    )

    def __init__(
        self,
        view: memoryview,
        config: TopicConfig,
        stamp: Stamp,
        origin: AppendOrigin,
        max_decompressed_bytes: int,
        is_quick: bool,
    ) -> None:
        """REQUIRES: the view is writable."""
        self._view = view
        self._array = np.frombuffer(view, _BYTE)
        self._config = config
        self._type_bit = LOG_APPEND_TIME_BIT if config.message_timestamp_type == "LogAppendTime" else 0
        self.next_offset, self._leader_epoch, self._now_ms = stamp
        self._is_client = origin is _CLIENT
        self._is_checked = origin is _CHECKED
        self._max_decompressed_bytes = _QUICKLY_UNPACKED_BYTES if is_quick else max_decompressed_bytes
        self._is_quick = is_quick
        self.buffers: list[memoryview] = []
        self.extents: list[Extent] = []
        self.size_bytes = 0
        self.producer_batches: list[ProducerBatch] = []
        self.max_timestamp_ms = NO_TIMESTAMP

    @property
    def append_time_ms(self) -> int:
        """The log append time of all records; -1 if they keep their own timestamps."""
        return self._now_ms if self._type_bit else NO_TIMESTAMP

    def admit(self, position: int) -> int:
        """Admit the batch at `position`. Returns its original size; 0 if it is incomplete."""
        fault, where, smallest, largest, traits, size, checksum = inspect_batch.run(self._array, position)
        if fault != _NONE:
            if fault == _PARTIAL_BATCH:
                return 0
            if fault in _SCAN_FAULTS:
                raise self._frame_fault(position, Fault(fault))
        header = _as_header(_unpack_header(self._view, position))
        self._check_header(header, position, size, checksum if fault == _CRC_MISMATCH else None)
        batch = self._view[position : position + size]
        codec_id = header.attributes & CODEC_MASK
        records: Bytes = b""
        if codec_id:
            records = self._unpack(batch[BATCH_V2.size :], codec_id, position)
            is_one_time = header.attributes & LOG_APPEND_TIME_BIT
            fault, where, smallest, largest, traits = inspect_records(
                np.frombuffer(records, _BYTE),
                header.record_count,
                header.max_timestamp if is_one_time else header.base_timestamp,
                0 if is_one_time else -1,
            )
        if fault != _NONE:
            raise self._structure_fault(position, size, records, Fault(fault), where)
        if not self._is_checked and self._breaks_record_rules(header.attributes, smallest, largest, traits):
            self._check_walk(header.record_count, position)
            if header.record_count > _MOST_WALKED_RECORDS:
                self._refuse_unlisted(header.record_count, traits, position)
            self._refuse_records(batch, position)

        codec = _CODECS[codec_id]
        keeps_codec = self._config.compression_type == "producer" or header.attributes & CONTROL_BIT
        wanted = codec if keeps_codec else target_codec(self._config)
        if wanted is codec and traits & CONSECUTIVE:
            self._stamp(batch, header, largest)
        else:
            self._check_walk(header.record_count, position)
            if header.record_count > _MOST_WALKED_RECORDS and not keeps_records(header.attributes, traits):
                raise CorruptRecord(
                    "a batch that has to be rebuilt has too many records",
                    fault=Fault.TOO_LARGE,
                    position=position,
                    expected=f"at most {_MOST_WALKED_RECORDS}",
                    found=header.record_count,
                )
            content = records if codec_id else batch[BATCH_V2.size :]
            self._rebuild(Source(batch, content, largest, traits), wanted, position)
        return cast("int", size)

    def _check_header(self, header: _Header, position: int, size: int, wrong_checksum: int | None) -> None:
        if self._is_client and header.base_offset != 0:
            raise InvalidRecord(f"the batch at {position}: a client's base offset must be 0, not {header.base_offset}")
        if size > self._config.max_message_bytes:
            raise self._too_large(position, size)
        if wrong_checksum is not None:
            raise CorruptRecord(
                "wrong checksum",
                fault=Fault.CRC_MISMATCH,
                position=position,
                expected=f"{wrong_checksum:#010x}",
                found=f"{header.crc:#010x}",
            )
        if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
            raise InvalidRecord(
                f"the batch at {position}: {plural(header.record_count, 'record')} and"
                f" {plural(header.last_offset_delta + 1, 'offset')}: each record must have one"
            )
        if header.last_offset_delta > _INT64_MAX - self.next_offset:
            raise InvalidRecord(f"the batch at {position}: there are no offsets left after {self.next_offset - 1}")
        if not self._is_client:
            return
        if header.attributes & CONTROL_BIT:
            raise InvalidRecord(f"the batch at {position}: only the broker writes control batches")
        if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
            raise InvalidRecord(
                f"the batch at {position}: producer {header.producer_id} has sequence number {header.base_sequence},"
                " which must not be negative"
            )

    def _too_large(self, position: int, size: int) -> RecordTooLarge:
        return RecordTooLarge(
            f"the batch at {position} has {size} bytes; max.message.bytes is {self._config.max_message_bytes}"
        )

    def _unpack(self, records: Bytes, codec_id: int, position: int) -> Bytes:
        if codec_id >= len(_CODECS):
            raise CorruptRecord(
                "unknown codec",
                fault=Fault.UNKNOWN_CODEC,
                position=position,
                expected=f"0 to {len(_CODECS) - 1}",
                found=codec_id,
            )
        try:
            return decompress(_CODECS[codec_id], records, max_bytes=self._max_decompressed_bytes)
        except CorruptRecord as error:
            if self._is_quick and error.fault is Fault.TOO_LARGE:
                raise TakesLong(
                    f"the batch at {position} unpacks to more than {_QUICKLY_UNPACKED_BYTES} bytes"
                ) from None
            error.position = position
            raise

    def _check_walk(self, record_count: int, position: int) -> None:
        if self._is_quick and record_count > _QUICKLY_WALKED_RECORDS:
            raise TakesLong(f"the batch at {position} has {record_count} records that must be checked one by one")

    def _breaks_record_rules(self, attributes: int, smallest: int, largest: int, traits: int) -> bool:
        """Whether at least one record breaks a rule. `_record_error` finds which."""
        if traits & WITHOUT_KEY and "compact" in self._config.cleanup_policy:
            return True
        if self._type_bit or smallest == NO_TIMESTAMP:
            return bool(attributes & LOG_APPEND_TIME_BIT)
        return (
            self._now_ms - smallest > self._config.message_timestamp_before_max_ms
            or largest - self._now_ms > self._config.message_timestamp_after_max_ms
        )

    def _record_error(self, record: Record, attributes: int) -> tuple[type[InvalidRecord], str] | None:
        if record.key is None and "compact" in self._config.cleanup_policy:
            return InvalidRecord, WITHOUT_NEEDED_KEY
        if self._type_bit or record.timestamp_ms == NO_TIMESTAMP:
            # Only here: if Kafka checks the timestamp of a record, it does not check the type.
            if attributes & LOG_APPEND_TIME_BIT:
                return InvalidTimestamp, "a client must not set the timestamp type LogAppendTime"
            return None
        earliest = self._now_ms - self._config.message_timestamp_before_max_ms
        latest = self._now_ms + self._config.message_timestamp_after_max_ms
        if earliest <= record.timestamp_ms <= latest:
            return None
        return InvalidTimestamp, (
            f"Timestamp {record.timestamp_ms} of message with offset {record.offset} is out of range. The timestamp "
            f"should be within [{earliest}, {latest}]"
        )

    def _refuse_unlisted(self, record_count: int, traits: int, position: int) -> NoReturn:
        """Refuse a batch without listing the records that break a rule."""
        is_without_key = traits & WITHOUT_KEY and "compact" in self._config.cleanup_policy
        kind, why = (InvalidRecord, WITHOUT_NEEDED_KEY) if is_without_key else (InvalidTimestamp, "timestamp")
        raise kind(f"the batch at {position}: some of {plural(record_count, 'record')} refused: {why}")

    def _refuse_records(self, batch: memoryview, position: int) -> NoReturn:
        header = record_batch.decode_header(batch, 0)
        records = record_batch.decode_records(batch, header, max_decompressed_bytes=self._max_decompressed_bytes)
        found = [(index, self._record_error(record, header.attributes)) for index, record in enumerate(records)]
        errors = [(index, *error) for index, error in found if error is not None]
        record_errors = [(index, message) for index, _, message in errors]
        named = "; ".join(f"record {index}: {message}" for index, message in record_errors[:_MOST_NAMED_ERRORS])
        kind = InvalidTimestamp if any(kind is InvalidTimestamp for _, kind, _ in errors) else InvalidRecord
        raise kind(
            f"the batch at {position}: {len(errors)} of {plural(len(records), 'record')} refused: {named}",
            record_errors=record_errors,
        )

    def _stamp(self, batch: memoryview, header: _Header, largest: int) -> None:
        """Take the batch as it is, with its offset and leader epoch written into it."""
        offset = self.next_offset
        last_offset = offset + header.last_offset_delta
        max_timestamp = self._now_ms if self._type_bit else largest
        attributes = header.attributes
        if max_timestamp != header.max_timestamp or attributes & LOG_APPEND_TIME_BIT != self._type_bit:
            attributes = attributes & _KNOWN_BITS & ~LOG_APPEND_TIME_BIT | self._type_bit
            _seal(batch, attributes, max_timestamp)
        _STAMP.pack_into(batch, 0, offset, header.length, self._leader_epoch)
        if header.producer_id > NO_PRODUCER_ID:
            self.producer_batches.append(
                ProducerBatch(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    offset,
                    last_offset,
                    max_timestamp,
                    bool(attributes & TRANSACTIONAL_BIT),
                    decode_marker(batch) if attributes & CONTROL_BIT else None,
                )
            )
        self.extents.append((self.size_bytes, len(batch), last_offset, max_timestamp))
        self.size_bytes += len(batch)
        self.buffers.append(batch)
        self.next_offset = last_offset + 1
        if max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp

    def _rebuild(self, source: Source, codec: Codec, position: int) -> None:
        """Take a rebuilt batch of the same records."""
        batch = memoryview(
            rebuild(
                source,
                codec=codec,
                level=target_level(self._config, codec),
                append_time_ms=self._now_ms if self._type_bit else None,
            )
        )
        if len(batch) > self._config.max_message_bytes:
            raise self._too_large(position, len(batch))
        header = _as_header(_unpack_header(batch, 0))
        self._stamp(batch, header, header.max_timestamp)

    def _frame_fault(self, position: int, fault: Fault) -> Exception:
        magic = self._view[position + MAGIC_POSITION]
        if fault is Fault.UNKNOWN_MAGIC and magic < record_batch.MAGIC:
            return InvalidRecord(
                f"the batch at {position}: format v{magic} is only read; v{record_batch.MAGIC} is written"
            )
        return scan_fault(self._array, position, fault)

    def _structure_fault(self, position: int, size: int, records: Bytes, fault: Fault, where: int) -> CorruptRecord:
        """The error of the record at `where`, a position in the buffer or in the decompressed records."""
        rows = np.empty(1, BATCH_DTYPE)
        scan_batches(self._array[position : position + size], position, False, rows)
        is_packed = bool(rows["attributes"][0] & CODEC_MASK)
        data, end = (np.frombuffer(records, _BYTE), len(records)) if is_packed else (self._array, position + size)
        error = record_fault(fault, data, where, end, rows[0])
        error.position = position if is_packed or fault is Fault.RECORD_COUNT else where
        if is_packed and fault is not Fault.RECORD_COUNT:
            error.reason += f" at byte {where} of the decompressed records"
        return error


def _seal(batch: memoryview, attributes: int, max_timestamp: int) -> None:
    """Write the fields and the new checksum."""
    _TIMESTAMP.pack_into(batch, BATCH_V2.at.max_timestamp, max_timestamp)
    _SEAL.pack_into(batch, BATCH_V2.at.crc, 0, attributes)
    crc = crc32c(batch[BATCH_V2.at.attributes :])
    _SEAL.pack_into(batch, BATCH_V2.at.crc, crc, attributes)
