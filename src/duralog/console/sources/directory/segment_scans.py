"""The results of reading whole segments: codecs, compression, tombstones. Cached until the file changes.

At most two scans run at a time, and a segment is scanned by one thread only.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from duralog.columnar.measured_records import decode_measured
from duralog.columnar.pieces import Piece, read_pieces
from duralog.config.error_text import describe, printable
from duralog.console.facts.partitions import SegmentScan
from duralog.console.source import always_wanted
from duralog.errors import CorruptRecord, StorageError, UnknownTopic
from duralog.format.compression import Codec
from duralog.format.layout import CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT
from duralog.storage.disk.file_source import FileSource

_MOST_KEPT = 4_096
_AT_A_TIME = 2
_MOST_UNPACKED_BYTES = 256 << 20
_NOT_UNPACKED = "unknown"


class _Version(NamedTuple):
    """Identifies the contents of a file."""

    inode: int
    size: int
    modified_ns: int


class SegmentScans:
    """Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[_Version, SegmentScan]] = OrderedDict()
        self._scanning: dict[str, threading.Lock] = {}
        self._slots = threading.BoundedSemaphore(_AT_A_TIME)
        self._is_stopping = threading.Event()

    def known(self, path: str) -> SegmentScan | None:
        """The cached result, if the file has not changed."""
        version = _version(path)
        with self._lock:
            kept = self._kept.get(path)
        return kept[1] if kept is not None and kept[0] == version else None

    def scan(self, path: str, base_offset: int, is_wanted: Callable[[], bool] = always_wanted) -> SegmentScan:
        """Raises `UnknownTopic` if the segment does not exist, `StorageError` if it cannot be read or is not wanted."""
        with self._lock:
            alone = self._scanning.setdefault(path, threading.Lock())
        try:
            with alone:
                return self.known(path) or self._scan(path, base_offset, is_wanted)
        finally:
            with self._lock:
                self._scanning.pop(path, None)

    def stop(self) -> None:
        self._is_stopping.set()

    def _scan(self, path: str, base_offset: int, is_wanted: Callable[[], bool]) -> SegmentScan:
        version = _version(path)
        tally = _Tally(base_offset)
        try:
            with self._slots, FileSource(path) as source:
                for piece in read_pieces(source):
                    if self._is_stopping.is_set():
                        raise StorageError(f"{printable(path)}: the console is closing")
                    if not is_wanted():
                        raise StorageError(f"{printable(path)}: it is not wanted any more")
                    tally.add(piece)
        except FileNotFoundError:
            raise UnknownTopic(f"the segment at offset {base_offset} is gone: it was deleted or compacted") from None
        except OSError as error:
            raise StorageError(describe(error)) from error
        except CorruptRecord as error:
            tally.trouble = tally.trouble or printable(str(error))
        scan = tally.finish()
        if version is not None:
            with self._lock:
                self._kept[path] = version, scan
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return scan


def _version(path: str) -> _Version | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _Version(status.st_ino, status.st_size, status.st_mtime_ns)


@dataclass(slots=True)
class _Tally:
    base_offset: int
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    codec_bytes: Counter[str] = field(default_factory=Counter)
    formats: Counter[int] = field(default_factory=Counter)
    stored_bytes: int = 0
    unpacked_bytes: int = 0
    tombstones: int = 0
    keyless: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    trouble: str | None = None
    is_all_unpacked: bool = True

    def add(self, piece: Piece) -> None:
        batches = piece.batches
        if len(batches):
            attributes = np.where(batches["magic"] >= 2, batches["attributes"], 0)
            is_control = attributes & CONTROL_BIT != 0
            self.batches += len(batches)
            self.control_batches += int(is_control.sum())
            self.transactional_batches += int((attributes & TRANSACTIONAL_BIT != 0).sum())
            self.stored_bytes += int(batches["size"].sum(dtype=np.int64))
            for codec in np.unique(batches["attributes"] & CODEC_MASK).tolist():
                in_codec = batches["attributes"] & CODEC_MASK == codec
                self.codec_bytes[_label(codec)] += int(batches["size"].sum(where=in_codec, dtype=np.int64))
            for magic, count in zip(*np.unique(batches["magic"], return_counts=True), strict=True):
                self.formats[int(magic)] += int(count)
            self._decode(piece, np.flatnonzero(~is_control))
            self.last_offset = int(batches["last_offset"][-1])
        if piece.fault is not None:
            self._refuse(piece.fault, 0)

    def _decode(self, piece: Piece, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> None:
        sizes, chunks = decode_measured(
            piece, rows, max_decompressed_bytes=_MOST_UNPACKED_BYTES, on_corrupt=self._refuse
        )
        for chunk in chunks:
            columns = chunk.columns
            has_key = columns.key_length >= 0
            self.records += len(columns)
            self.tombstones += int((has_key & (columns.value_length < 0)).sum())
            self.keyless += int((~has_key).sum())
            if self.first_offset is None and len(columns):
                self.first_offset = int(columns.offset[0])
        self.unpacked_bytes += int(sizes.sum(dtype=np.int64))

    def _refuse(self, error: CorruptRecord, _row: int) -> None:
        self.is_all_unpacked = False
        self.trouble = self.trouble or printable(str(error))

    def finish(self) -> SegmentScan:
        total = sum(self.codec_bytes.values())
        is_known = self.is_all_unpacked
        return SegmentScan(
            base_offset=self.base_offset,
            batches=self.batches,
            records=self.records,
            control_batches=self.control_batches,
            transactional_batches=self.transactional_batches,
            codecs={codec: size / total for codec, size in self.codec_bytes.most_common() if total},
            formats=dict(sorted(self.formats.items())),
            stored_bytes=self.stored_bytes,
            unpacked_bytes=self.unpacked_bytes if is_known else None,
            compression_ratio=self.unpacked_bytes / self.stored_bytes if is_known and self.stored_bytes else None,
            tombstones=self.tombstones if is_known else None,
            keyless=self.keyless if is_known else None,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            trouble=self.trouble,
        )


def _label(codec: int) -> str:
    return Codec(codec).label if codec in set(Codec) else _NOT_UNPACKED
