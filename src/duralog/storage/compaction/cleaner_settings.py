"""What the configs `log.cleaner.*` mean for one of the cleaner's threads.

Some values that Kafka takes make its cleaner fail at the start or sleep for ever. A directory that has them must open,
and be compacted, all the same: such a value is not used, and a warning says so.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.kernels.offset_map import SLOT_BYTES

_INT32_MAX = 2**31 - 1
_LOAD_FACTOR = "log.cleaner.io.buffer.load.factor"
_LIMIT = "log.cleaner.io.max.bytes.per.second"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    is_enabled: bool
    threads: int
    memory_bytes: int
    """For the map of keys of one thread. Kafka's are Java arrays, and end where those do."""
    load_factor: float
    buffer_bytes: int
    """To read with; Kafka writes with as much again."""
    bytes_per_second: float
    """Of all threads together."""
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        threads = config.log_cleaner_threads
        memory_bytes = min(config.log_cleaner_dedupe_buffer_size // threads, _INT32_MAX)
        load_factor: float = config.log_cleaner_io_buffer_load_factor
        if load_factor > 1 or memory_bytes // SLOT_BYTES * load_factor <= 1:
            default: float = BROKER_CONFIGS[_LOAD_FACTOR].default
            _logger.warning("%s is %s, which no map could be filled to: %s is used", _LOAD_FACTOR, load_factor, default)
            load_factor = default
        bytes_per_second: float = config.log_cleaner_io_max_bytes_per_second
        if bytes_per_second <= 0:
            _logger.warning("%s is %s, by which nothing could be compacted: it is not used", _LIMIT, bytes_per_second)
            bytes_per_second = math.inf
        return cls(
            is_enabled=config.log_cleaner_enable,
            threads=threads,
            memory_bytes=memory_bytes,
            load_factor=load_factor,
            buffer_bytes=config.log_cleaner_io_buffer_size // threads // 2,
            bytes_per_second=bytes_per_second,
            backoff_ms=max(config.log_cleaner_backoff_ms, 1),
        )
