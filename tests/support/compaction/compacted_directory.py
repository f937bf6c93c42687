"""A log directory with compacted topics that a test fills; its clock stands three days ago."""

from __future__ import annotations

import time
from pathlib import Path

from duralog import PartitionLog, Record
from duralog.config import BrokerConfig
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store

DAY_MS = 86_400_000
KEYS = 5


def days_ago_ms(days: int) -> int:
    return time.time_ns() // 1_000_000 - days * DAY_MS


class CompactedDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.made_ms = days_ago_ms(3)

    def open(self) -> Store:
        return Store(
            str(self.path),
            config=BrokerConfig.of({"log.index.size.max.bytes": 4096, "log.cleaner.enable": False}),
            clock=lambda: self.made_ms,
            scheduler=Scheduler(lambda: 0, threads=0),
        )

    def log(self, store: Store, topic: str, **configs: object) -> PartitionLog:
        """A new topic: `delete_retention_ms=5` sets `delete.retention.ms`."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        store.create_topic(topic, 1, {"cleanup.policy": "compact", **settings})
        return store.partition(topic, 0)

    def log_files(self, topic: str) -> list[Path]:
        return sorted((self.path / f"{topic}-0").glob("*.log"))


def fill(log: PartitionLog, segments: int = 3, *, keys: int = KEYS, records: int = 10, value: bytes = b"value") -> None:
    """This many segments with repeated keys, and an empty active one."""
    for _ in range(segments):
        log.append([Record(key=b"k%d" % (place % keys), value=value) for place in range(records)])
        log.roll()


LARGE = bytes(60_000)
"""Ten records with such a value fill more than half a segment of `SMALL_SEGMENT`: then no two become one."""
SMALL_SEGMENT = 1 << 20


def damage(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
