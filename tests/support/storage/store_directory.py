"""A log directory that a test opens again and again, with a clock that only the test moves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from duralog import Record
from duralog.config import BrokerConfig
from duralog.storage.disk.background import Scheduler
from duralog.storage.store import Store

NOW_MS = 1_800_000_000_000
MARKER = ".kafka_cleanshutdown"


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Directory:
    """Every opening has a scheduler of its own, without threads: `pass_time` runs what is due."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.opened: list[Store] = []
        self.scheduler = Scheduler(clock, threads=0)

    def open(self, config: dict[str, object] | None = None, **options: Any) -> Store:
        self.scheduler = Scheduler(self.clock, threads=0)
        store = Store(
            str(self.path),
            config=BrokerConfig.of({"log.index.size.max.bytes": 4096, **(config or {})}),
            clock=self.clock,
            scheduler=self.scheduler,
            **options,
        )
        self.opened.append(store)
        return store

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.scheduler.run_due()

    def copy(self, path: Path) -> Directory:
        """What would be on disk if the process were killed now."""
        shutil.copytree(self.path, path)
        return Directory(path, self.clock)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


def records(*values: str) -> list[Record]:
    return [Record(key=value.encode(), value=value.encode()) for value in values]


def values(store: Store, topic: str, partition: int = 0) -> list[str]:
    log = store.partition(topic, partition)
    return [(record.value or b"").decode() for record in log.read(log.start_offset)]


def tree(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its contents and its time."""
    return {
        str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


def contents(path: Path) -> dict[str, bytes]:
    return {name: content for name, (content, _) in tree(path).items()}
