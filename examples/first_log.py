"""Writes a log with the store, then looks at it with the commands.

A topic of orders in three segments, each with another codec. A new folder may be given for it; without one it is
`build/sample`, which is made anew.
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

import duralog

DEFAULT_FOLDER = os.path.relpath(Path(__file__).parent.parent / "build" / "sample")
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


def show(*arguments: str) -> None:
    print(f"\n$ duralog {shlex.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "duralog", *arguments], check=True)


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_FOLDER
    if folder == DEFAULT_FOLDER:
        shutil.rmtree(folder, ignore_errors=True)
    elif os.path.exists(folder):
        sys.exit(f"{folder} is there already: give a folder that is new")
    chance = random.Random(7)
    codecs = ("none", "lz4", "zstd")
    print(f"Writing {len(codecs) * ORDERS_PER_SEGMENT:,} orders to {folder}")
    with duralog.open(folder) as store:
        # Records of long ago: without a limit, retention would be right to delete them.
        store.create_topic("orders", partitions=1, config={"retention.ms": -1})
        log = store.partition("orders", 0)
        for number, codec in enumerate(codecs):
            if number:
                log.roll()
            log.append_arrow(orders(number * ORDERS_PER_SEGMENT, ORDERS_PER_SEGMENT, chance), codec=codec)

    partition = os.path.join(folder, "orders-0")
    of_orders = (folder, "--topic", "orders", "--partition", "0")
    show("dump", partition, "--summary")
    show("dump", partition, "--limit", "3")
    show("dump", partition, "--records", "--offsets", "60000:60005")
    show("dump", partition, "--records", "--json", "--key", "customer-17", "--limit", "3")
    show("lookup", *of_orders, "--time", "2023-11-15T05:00:00Z")
    show("verify", folder)


if __name__ == "__main__":
    main()
