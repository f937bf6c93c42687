"""Appending to a log: WRITER FILE FOLDER BYTES PASSES, with the first BYTES of the file's batches.

Every pass writes to a new file or a new store in the folder; opening and closing them is not timed, and nothing waits
for the disk.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.workers.passes import timed

_RECORDS_IN_A_BATCH = 1000


class Pass(NamedTuple):
    before: Callable[[], None]
    work: Callable[[], int]


def os_write(file: str, folder: Path, size_bytes: int) -> Pass:
    """The bytes alone, a batch at a time, as any log would have to write them."""
    batches = _batches(file, size_bytes)
    path = folder / "written"
    target = -1

    def before() -> None:
        nonlocal target
        if target >= 0:
            os.close(target)
            path.unlink()
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def work() -> int:
        return sum(os.write(target, batch) for batch in batches)

    return Pass(before, work)


def raw_batches(file: str, folder: Path, size_bytes: int) -> Pass:
    """The broker's way: each batch checked, stamped in place, written, indexed."""
    batches = _batches(file, size_bytes)
    copies: list[bytearray] = []
    stores = _Stores(folder)

    def before() -> None:
        stores.renew()
        # The last pass has stamped offsets into its copies.
        copies[:] = map(bytearray, batches)

    def work() -> int:
        append = stores.log.append_batches
        for batch in copies:
            append(batch)
        return sum(map(len, copies))

    return Pass(before, work)


def records(file: str, folder: Path, size_bytes: int) -> Pass:
    """Python records, a thousand at a time."""
    from duralog.format import batches as reference

    with open(file, "rb") as log:
        data = log.read(size_bytes)
    read = [record for batch in reference.scan(data) for record in reference.decode_records(data, batch)]
    chunks = [read[n : n + _RECORDS_IN_A_BATCH] for n in range(0, len(read), _RECORDS_IN_A_BATCH)]
    stores = _Stores(folder)

    def work() -> int:
        append = stores.log.append
        for chunk in chunks:
            append(chunk)
        return len(read)

    return Pass(stores.renew, work)


def arrow(file: str, folder: Path, size_bytes: int) -> Pass:
    """The same records as a table."""
    import pyarrow as pa

    from duralog.columnar.pieces import read_pieces
    from duralog.storage.disk.file_source import FileSource

    pa.set_cpu_count(1)
    with FileSource(file) as source:
        pieces = read_pieces(source, end=min(size_bytes, source.size))
        rows = [
            decoded.to_arrow(columns=["timestamp", "key", "value"]) for piece in pieces for decoded in piece.decode()
        ]
    stores = _Stores(folder)

    def work() -> int:
        for chunk in rows:
            stores.log.append_arrow(chunk)
        return sum(chunk.num_rows for chunk in rows)

    return Pass(stores.renew, work)


class _Stores:
    """A store with an empty log, again and again."""

    def __init__(self, folder: Path) -> None:
        import duralog

        self._open = duralog.open
        self._path = folder / "store"
        self._store: duralog.Store | None = None

    def renew(self) -> None:
        if self._store is not None:
            self._store.close()
            shutil.rmtree(self._path)
        self._store = self._open(self._path, {"log.retention.ms": -1})
        self._store.create_topic("orders", 1)
        self.log = self._store.partition("orders", 0)


def _batches(file: str, size_bytes: int) -> list[bytes]:
    """As a client sends them: each counts its offsets from 0."""
    from duralog.format.batches import scan

    with open(file, "rb") as log:
        data = log.read(size_bytes)
    return [bytes(8) + data[one.position + 8 : one.position + one.size_bytes] for one in scan(data)]


WRITERS = {writer.__name__: writer for writer in (os_write, raw_batches, records, arrow)}

if __name__ == "__main__":
    name, log, folder, size, passes = sys.argv[1:]
    before, work = WRITERS[name](log, Path(folder), int(size))
    timed(work, int(passes), before=before)
