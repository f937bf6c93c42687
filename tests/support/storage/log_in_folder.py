"""A partition's log in a folder of the real disk, with a clock that stands and work that waits to be asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from duralog.config import TopicConfig
from duralog.format.record import Record
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.log.loaded_log import LogEnvironment
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.recovery.recovery import LoadOptions, load_partition

NOW_MS = 1_700_000_000_000


class LogInFolder:
    def __init__(self, folder: Path, *, files: FileSystem | None = None, **configs: object) -> None:
        """Configs under Kafka's names, with underscores for the dots."""
        self.path = folder
        self.files = files or LocalFileSystem()
        self.now_ms = NOW_MS
        self.config = TopicConfig().with_overrides({name.replace("_", "."): value for name, value in configs.items()})
        self.waiting: list[tuple[int, str, Callable[[], None]]] = []
        """What the log has left for later: delay, name, work."""

    def open(
        self,
        *,
        clean: bool = True,
        read_only: bool = False,
        recovery_point: int = 0,
        leader_epoch: int = 0,
        **options: Any,
    ) -> PartitionLog:
        self.path.mkdir(exist_ok=True)
        loaded = load_partition(
            self.files,
            str(self.path),
            LoadOptions(
                config=self.config,
                clean=clean,
                recovery_point=recovery_point,
                clock=lambda: self.now_ms,
                read_only=read_only,
            ),
        )
        return PartitionLog(
            loaded,
            topic="orders",
            partition=3,
            config=self.config,
            environment=LogEnvironment(
                file_system=self.files,
                clock=lambda: self.now_ms,
                run_later=lambda delay_ms, name, work: self.waiting.append((delay_ms, name, work)),
                **options,
            ),
            read_only=read_only,
            leader_epoch=leader_epoch,
        )

    def catch_up(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, _, work in waiting:
            work()

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())

    def contents(self) -> dict[str, bytes]:
        return {name: (self.path / name).read_bytes() for name in self.names}


def values(records: Any) -> list[bytes | None]:
    return [record.value for record in records]


def numbered(first: int, end: int, **fields: Any) -> list[Record]:
    """Records whose values are their numbers."""
    return [Record(value=b"%d" % number, **fields) for number in range(first, end)]
