"""How logs are compacted: the settings of one compaction, and those of the cleaner, from the configs `log.cleaner.*`.

Kafka accepts some values that make its cleaner fail at the start or sleep forever. A directory with such a value must
still open and be compacted: the value is not used, and a warning says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from duralog.columnar.pieces import PIECE_BYTES
from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.kernels.offset_map import DEFAULT_LOAD_FACTOR, SLOT_BYTES, MakeMap, OffsetMap
from duralog.storage.compaction.report import ShowCompaction

DEFAULT_MAP_BYTES = 128 << 20
LARGEST_MAP_BYTES = 2**31 - 1

_LOAD_FACTOR = "log.cleaner.io.buffer.load.factor"
_LIMIT = "log.cleaner.io.max.bytes.per.second"

_logger = logging.getLogger(__name__)


def ignore(*_: object) -> None:
    """The callback that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """How a log is compacted. Every callback may raise: that ends the compaction, and groups already swapped in stay.

    Callbacks run in the thread that compacts.
    """

    memory_bytes: int = DEFAULT_MAP_BYTES
    """For the offset map. Kafka's map is a Java array, at most 2 GiB."""
    load_factor: float = DEFAULT_LOAD_FACTOR
    """How full the offset map may become, 0 to 1."""
    buffer_bytes: int = 0
    """How much of the log to read at a time, if that is more than a piece. Kafka writes with as much again."""
    workers: int = 1
    """Threads that compact pieces."""
    on_bytes: Callable[[int], None] = ignore
    """Called with the number of bytes after each read and write. It may wait, to throttle."""
    check_stop: Callable[[], None] = ignore
    """Raises `CompactionStopped` to end the compaction."""
    on_round: Callable[[int], None] = ignore
    """Called after each round with the first dirty offset of the next compaction."""
    on_progress: ShowCompaction = ignore
    make_map: MakeMap = OffsetMap

    @property
    def piece_bytes(self) -> int:
        return max(PIECE_BYTES, self.buffer_bytes)


DEFAULT_SETTINGS = CompactionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The cleaner's threads, and how each of them compacts a log. In Kafka: `CleanerConfig`."""

    is_enabled: bool
    threads: int
    compaction: CompactionSettings
    """Of one thread: its share of the memory."""
    bytes_per_second: float
    """Of all threads together."""
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        threads = config.log_cleaner_threads
        memory_bytes = min(config.log_cleaner_dedupe_buffer_size // threads, LARGEST_MAP_BYTES)
        load_factor: float = config.log_cleaner_io_buffer_load_factor
        if load_factor > 1 or memory_bytes // SLOT_BYTES * load_factor <= 1:
            default: float = BROKER_CONFIGS[_LOAD_FACTOR].default
            _logger.warning(
                "%s is %s, which is not a valid load factor: %s is used", _LOAD_FACTOR, load_factor, default
            )
            load_factor = default
        bytes_per_second: float = config.log_cleaner_io_max_bytes_per_second
        if bytes_per_second <= 0:
            _logger.warning("%s is %s, which would stop all compactions: it is ignored", _LIMIT, bytes_per_second)
            bytes_per_second = math.inf
        return cls(
            is_enabled=config.log_cleaner_enable,
            threads=threads,
            compaction=CompactionSettings(
                memory_bytes=memory_bytes,
                load_factor=load_factor,
                buffer_bytes=config.log_cleaner_io_buffer_size // threads // 2,
            ),
            bytes_per_second=bytes_per_second,
            backoff_ms=max(config.log_cleaner_backoff_ms, 1),
        )

    def on_request(
        self, *, workers: int | None = None, memory_bytes: int | None = None, on_progress: ShowCompaction = ignore
    ) -> CompactionSettings:
        """For a compaction that a caller waits for: with as many workers as the cleaner has threads, by default."""
        return replace(
            self.compaction,
            workers=self.threads if workers is None else workers,
            memory_bytes=self.compaction.memory_bytes if memory_bytes is None else memory_bytes,
            on_progress=on_progress,
        )
