"""Partition folders that a history is written to, and what differs between two of them after both were cleaned.

Two folders are alike if they have the same segments with the same batches in them, byte for byte, the same indexes,
snapshots and leader epochs, and the same times of the log files. A batch whose records were compressed anew may have
other bytes there: then its header, apart from size and checksum, and its decompressed records must be the same, and the
indexes be what the rule makes of the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from duralog.config import TopicConfig
from duralog.format.batch import Batch
from duralog.format.batches import decode_records, scan
from duralog.format.compression import Codec, decompress
from duralog.format.filenames import FileKind, SegmentFile, parse_segment_file
from duralog.format.index_entries import OffsetIndexEntry, encode_offset_index, encode_time_index, index_entries
from duralog.format.layout import BATCH_V2, MESSAGE_V0, MESSAGE_V1
from duralog.format.producer_snapshot import ProducerEntry, decode_producer_snapshot
from duralog.storage.append.origin import AppendOrigin
from duralog.storage.disk.file_system import LocalFileSystem
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition
from oracle.random_histories import Stage

_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
_EPOCHS = "leader-epoch-checkpoint"
_IN_MEMORY = "/dev/shm"


def quick_folder() -> TemporaryDirectory[str]:
    """For many small logs: in memory where that can be had, since both sides sync every file that they write."""
    return TemporaryDirectory(prefix="duralog-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None)


def open_log(folder: Path, configs: Mapping[str, object], now_ms: int, log_start_offset: int = 0) -> PartitionLog:
    """The log in a folder that was closed cleanly, or in a new one. Its clock stands."""
    config = TopicConfig().with_overrides(configs)
    files = LocalFileSystem()
    folder.mkdir(parents=True, exist_ok=True)
    environment = LogEnvironment(file_system=files, clock=lambda: now_ms)
    options = LoadOptions(config=config, clean=True, log_start_checkpoint=log_start_offset, clock=environment.clock)
    loaded = load_partition(files, str(folder), options)
    topic, _, number = folder.name.rpartition("-")
    return PartitionLog(loaded, topic=topic, partition=int(number), config=config, environment=environment)


def write_stage(folder: Path, configs: Mapping[str, object], stage: Stage) -> None:
    """Append what the stage has, and date the segments that are new or were appended to."""
    log = open_log(folder, configs, stage.written_ms)
    first = log.view.segments.active.base_offset
    for batch in stage.batches:
        if batch is None:
            log.roll()
        else:
            log.append_batches(batch, origin=AppendOrigin.AS_IS)
    log.close()
    # File times decide about the tombstones of the old formats. They rise from segment to segment, as they do on disk.
    logs = [path for path in sorted(folder.glob("*.log")) if int(path.stem) >= first]
    for number, path in enumerate(logs):
        time_ms = stage.written_ms - 700 * (len(logs) - 1 - number)
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def differences(expected: Path, found: Path, configs: Mapping[str, object]) -> list[str]:
    """What is not as it should be, in words; empty if all is."""
    return list(_differences(_files(expected), _files(found), TopicConfig().with_overrides(configs)))


def same_bytes(one: Path, other: Path) -> bool:
    logs = [{path.name: path.read_bytes() for path in folder.glob("*.log")} for folder in (one, other)]
    return logs[0] == logs[1]


def _files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and file times in milliseconds. An index without entries may be missing."""
    files = {}
    for path in folder.iterdir():
        file = parse_segment_file(path.name)
        content = path.read_bytes()
        if (file is not None and (content or file.kind not in _INDEXES)) or path.name == _EPOCHS:
            files[path.name] = content, path.stat().st_mtime_ns // 1_000_000
    return files


_Files = Mapping[str, tuple[bytes, int]]


def _differences(expected: _Files, found: _Files, config: TopicConfig) -> Iterator[str]:
    for name in sorted(expected.keys() ^ found.keys()):
        yield f"{name} is {'missing' if name in expected else 'too much'}"
    for name in sorted(expected.keys() & found.keys()):
        right, is_there = expected[name][0], found[name][0]
        file = parse_segment_file(name)
        if file is None:
            same: object = right == is_there
        elif file.kind is FileKind.LOG:
            yield from (f"{name}: {text}" for text in _log_differences(right, is_there))
            same = expected[name][1] == found[name][1] or f"is dated {found[name][1]}, not {expected[name][1]}"
        elif file.kind is FileKind.PRODUCER_SNAPSHOT:
            same = _entries(right) == _entries(is_there) or f"{_entries(is_there)}, not {_entries(right)}"
        else:
            log = SegmentFile(file.offset, FileKind.LOG).name
            if log in expected and log in found and expected[log][0] != found[log][0]:
                right = _index_of(file, found[log][0], right, config)
            same = right == is_there or f"{is_there.hex()}, not {right.hex()}"
        if same is not True:
            yield f"{name}: {same or 'differs'}"


def _entries(snapshot: bytes) -> list[ProducerEntry]:
    return sorted(decode_producer_snapshot(snapshot), key=lambda entry: entry.producer_id)


def _index_of(file: SegmentFile, log: bytes, otherwise: bytes, config: TopicConfig) -> bytes:
    """What the index of a log must be by the rule."""
    entries = list(index_entries(scan(log), interval_bytes=config.index_interval_bytes))
    if file.kind is FileKind.OFFSET_INDEX:
        return encode_offset_index([one for one in entries if isinstance(one, OffsetIndexEntry)], file.offset)
    if file.kind is FileKind.TIME_INDEX:
        return encode_time_index([one for one in entries if not isinstance(one, OffsetIndexEntry)], file.offset)
    return otherwise


def _log_differences(expected: bytes, found: bytes) -> Iterator[str]:
    if expected == found:
        return
    compared = 0
    for right, is_there in zip_longest(scan(expected), scan(found)):
        if right is None or is_there is None:
            yield f"{'lacks' if is_there is None else 'has too much'}: {_fields(right or is_there)}"
            return
        compared += right.size_bytes
        if _bytes(expected, right) == _bytes(found, is_there):
            continue
        if _fields(right) != _fields(is_there):
            yield f"has {_fields(is_there)}, not {_fields(right)}"
        elif right.codec_id == Codec.NONE or _unpacked(expected, right) != _unpacked(found, is_there):
            yield f"has other records at {right.base_offset}: {_shown(found, is_there)}, not {_shown(expected, right)}"
        elif not is_there.crc_ok:
            yield f"has a wrong checksum at {is_there.position}"
    if compared != len(expected):
        yield f"Kafka left {len(expected) - compared} bytes that are no batch"


def _bytes(data: bytes, batch: Batch) -> bytes:
    return data[batch.position : batch.position + batch.size_bytes]


def _fields(batch: Batch) -> dict[str, object]:
    """All that does not depend on how a codec's bytes come out."""
    return {
        name: getattr(batch, name)
        for name in Batch.__dataclass_fields__
        if name not in ("position", "size_bytes", "crc", "crc_ok")
    }


def _unpacked(data: bytes, batch: Batch) -> bytes:
    """The records of a compressed batch. Of a wrapper the key is null, and its value has four bytes of length."""
    header_bytes = BATCH_V2.size if batch.magic == 2 else (MESSAGE_V0, MESSAGE_V1)[batch.magic].size + 4
    packed = _bytes(data, batch)[header_bytes:]
    return bytes(decompress(Codec(batch.codec_id), packed, magic=batch.magic))


def _shown(data: bytes, batch: Batch) -> str:
    return str(
        [(record.offset, record.timestamp_ms, record.key, record.value) for record in decode_records(data, batch)]
    )
