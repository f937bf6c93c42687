"""Writes a partition as Kafka would have left it, then looks at it with `duralog dump`.

Three segments of orders, each with another codec, with their indexes and a checkpoint. The folder may be given; it is
made anew. `make run` calls this.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from duralog.columnar.encode import encode_batches
from duralog.format.batches import scan
from duralog.format.checkpoints import EpochStart, encode_leader_epoch_checkpoint
from duralog.format.compression import Codec
from duralog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, SegmentFile
from duralog.format.index_entries import (
    OffsetIndexEntry,
    TimeIndexEntry,
    encode_offset_index,
    encode_time_index,
    index_entries,
)

DEFAULT_FOLDER = os.path.relpath(Path(__file__).parent.parent / "build" / "sample" / "orders-0")
FIRST_ORDER_MS = 1_700_000_000_000
ORDERS_PER_SEGMENT = 50_000
CUSTOMERS = 2_000
STATES = ("placed", "paid", "packed", "sent", "delivered")


def orders(first: int, count: int, chance: random.Random) -> pa.Table:
    """Changes of orders; now and then one is deleted, by a value of null."""
    rows = []
    for number in range(first, first + count):
        customer = f"customer-{int(CUSTOMERS * chance.random() ** 2)}"
        order = {"order": number, "state": chance.choice(STATES), "cents": chance.randrange(100, 90_000)}
        rows.append(
            {
                "key": customer.encode(),
                "value": None if chance.random() < 0.01 else json.dumps(order).encode(),
                "timestamp": FIRST_ORDER_MS + number * 250 + chance.randrange(100),
                "headers": [{"key": "source", "value": b"web"}] if number % 10 == 0 else [],
            }
        )
    fields = {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.int64()}
    headers = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    return pa.Table.from_pylist(rows, pa.schema({**fields, "headers": headers}))


def write_segment(folder: Path, base_offset: int, table: pa.Table, codec: Codec) -> None:
    log = encode_batches(table, base_offset=base_offset, codec=codec, leader_epoch=0).data.tobytes()
    entries = list(index_entries(scan(log)))
    offsets = [entry for entry in entries if isinstance(entry, OffsetIndexEntry)]
    times = [entry for entry in entries if isinstance(entry, TimeIndexEntry)]
    files = {
        FileKind.LOG: log,
        FileKind.OFFSET_INDEX: encode_offset_index(offsets, base_offset),
        FileKind.TIME_INDEX: encode_time_index(times, base_offset),
    }
    for kind, content in files.items():
        (folder / SegmentFile(base_offset, kind).name).write_bytes(content)


def show(*arguments: str) -> None:
    print(f"\n$ duralog {shlex.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "duralog", *arguments], check=True)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chance = random.Random(7)
    codecs = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
    print(f"Writing {len(codecs) * ORDERS_PER_SEGMENT:,} orders to {folder}")
    for number, codec in enumerate(codecs):
        base_offset = number * ORDERS_PER_SEGMENT
        write_segment(folder, base_offset, orders(base_offset, ORDERS_PER_SEGMENT, chance), codec)
    (folder / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epoch_checkpoint([EpochStart(0, 0)]))

    show("dump", str(folder), "--summary")
    show("dump", str(folder), "--limit", "3")
    show("dump", str(folder), "--records", "--offsets", "60000:60005")
    show("dump", str(folder), "--records", "--json", "--key", "customer-17", "--limit", "3")
    show("dump", str(folder), "--verify")


if __name__ == "__main__":
    main()
