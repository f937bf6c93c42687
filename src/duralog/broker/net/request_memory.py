"""The memory that requests and answers hold, over all connections: `queued.max.request.bytes`.

Counted are the buffers of requests that have not arrived completely, requests that wait for their answer, batches that
wait for a worker thread, and answers that have not been sent. A small request is received into the shared buffer and
holds nothing. Records that a Fetch sends are files, not memory.

A buffer for a large request grows with what arrives, as long as the total stays within seven eighths of the limit: the
rest of it is for small requests, which must not wait for large ones. Above the limit lies a reserve for one request
of the largest size, or several smaller ones.

| a connection | what happens |
|---|---|
| finds no memory for its buffer to grow | it waits, unread, until the rest of its request fits into the reserve |
| wants to send a small request | it is read as long as the limit has room |
| waits already | it continues when memory is free; the one that needs least is first |
| is slow while another one waits | it is closed: it has not moved a quarter of what it holds within five seconds |

What must always be true: the total is the sum of what connections and worker threads hold. The reserve is only held by
requests that have room for all of themselves, and are read. So it becomes free again, at the latest when their clients
are found to be slow, and connections with half a request never wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Protocol

from duralog.broker.net.event_loop import EventLoop
from duralog.broker.wire.frames import SHARED_BUFFER_BYTES, FrameReader
from duralog.config import BrokerConfig
from duralog.config.memory_limits import memory_limits

_SHARE = 8
"""The limit is this part of the machine's memory, unless it is given."""
_SHARE_FOR_SMALL = 8
_LEAST_FOR_SMALL_BYTES = 4 * SHARED_BUFFER_BYTES
_CHECK_MS = 1000
_PACE_MS = 5000
_PACE_SHARE = 4
"""While memory is short, a connection has to move this part of what it holds within `_PACE_MS`."""
_GRANTED_PER_TURN = 16


class Holder(Protocol):
    """A connection, as far as its memory is concerned."""

    number: int
    memory_bytes: int
    """What it holds."""
    moved_bytes: int
    """Received and sent so far."""
    last_active_ms: float
    reserved_bytes: int
    """What it has of the reserve."""
    pace: tuple[float, int] | None
    """When it was last quick enough, and how many bytes it had moved then; None if that was not checked yet."""

    @property
    def is_held_up(self) -> bool:
        """Whether it waits for this broker, not for its client."""

    @property
    def wanted_bytes(self) -> int:
        """The memory that it needs to receive its request completely; 0 if it holds nothing yet."""

    def take_memory(self) -> bool:
        """Continue to receive, if there is memory now."""

    def close_as_slow(self, why: str) -> None: ...


class RequestMemory:
    """Only the loop's thread uses it."""

    def __init__(
        self,
        loop: EventLoop,
        limit_bytes: int,
        largest_request_bytes: int,
        holders: Callable[[], Iterable[Holder]],
    ) -> None:
        self.limit_bytes = limit_bytes
        self._most_large_bytes = limit_bytes - limit_bytes // _SHARE_FOR_SMALL
        self._most_small_bytes = max(limit_bytes, _LEAST_FOR_SMALL_BYTES)
        self._reserve_bytes = largest_request_bytes
        self._reserved_bytes = 0
        """What is taken of the reserve. It is part of what is used."""
        self.used_bytes = 0
        self.is_short = False
        """Whether even a connection that holds nothing has to be asked about (`admits`)."""
        self._loop = loop
        self._holders = holders
        self._waiting: dict[int, Holder] = {}
        self._is_checking = False
        self._is_granting = False

    @property
    def waiting_count(self) -> int:
        """Connections that are not read because memory is short."""
        return len(self._waiting)

    def admits(self, holder: Holder, reader: FrameReader) -> bool:
        """Whether a connection may be read into its buffer, which gets memory of the reserve if it needs that."""
        growth_bytes = reader.growth_bytes
        used_bytes = self.used_bytes - self._reserved_bytes
        if used_bytes + growth_bytes <= self._most_large_bytes:
            return True
        if not reader.has_large_frame:
            return used_bytes + SHARED_BUFFER_BYTES <= self._most_small_bytes
        if growth_bytes:
            missing_bytes = reader.missing_bytes
            if self._reserved_bytes + missing_bytes > self._reserve_bytes:
                return False
            holder.reserved_bytes += missing_bytes
            self._reserved_bytes += missing_bytes
            reader.own_whole_frame()
        return True

    def change(self, more_bytes: int) -> None:
        """Change the memory in use by this number of bytes."""
        self.used_bytes += more_bytes
        self.is_short = self.used_bytes - self._reserved_bytes > self._most_large_bytes
        if more_bytes <= 0 and self._waiting:
            self._grant_soon()

    def give_back(self, holder: Holder) -> None:
        """Return the reserve of a connection that has its request, or is closed."""
        self._reserved_bytes -= holder.reserved_bytes
        holder.reserved_bytes = 0
        self.change(0)

    def wait(self, holder: Holder) -> None:
        """Let a connection wait until `take_memory` succeeds."""
        self._waiting[holder.number] = holder
        if not self._is_checking:
            self._is_checking = True
            self._loop.timers.after(_CHECK_MS, self._check)

    def forget(self, holder: Holder) -> None:
        """A connection is closed."""
        self._waiting.pop(holder.number, None)

    def _grant_soon(self) -> None:
        if not self._is_granting:
            self._is_granting = True
            self._loop.call_soon(self._grant)

    def _grant(self) -> None:
        self._is_granting = False
        by_need = sorted(self._waiting.values(), key=lambda holder: holder.wanted_bytes)
        for holder in by_need[:_GRANTED_PER_TURN]:
            # First: if it fails, it does not come here again.
            del self._waiting[holder.number]
            if not holder.take_memory():
                self._waiting[holder.number] = holder
                return
        if self._waiting:
            self._grant_soon()

    def _check(self) -> None:
        self._is_checking = bool(self._waiting)
        if not self._waiting:
            return
        # First: the next check must happen even if this one fails.
        self._loop.timers.after(_CHECK_MS, self._check)
        self._close_slow()
        self._grant_soon()

    def _close_slow(self) -> None:
        slow = [holder for holder in self._holders() if holder.memory_bytes and self._is_slow(holder)]
        for holder in sorted(slow, key=lambda holder: -holder.memory_bytes):
            if self.used_bytes <= self.limit_bytes // 2 and not holder.reserved_bytes:
                continue
            holder.close_as_slow(f"memory is short: {self._in_words()}")

    def _is_slow(self, holder: Holder) -> bool:
        now_ms = self._loop.now_ms
        if holder.is_held_up:
            holder.pace = None
            return False
        if holder.pace is None:
            holder.pace = holder.last_active_ms, holder.moved_bytes
        since_ms, moved_bytes = holder.pace
        if (holder.moved_bytes - moved_bytes) * _PACE_SHARE >= holder.memory_bytes:
            holder.pace = now_ms, holder.moved_bytes
            return False
        return now_ms - since_ms >= _PACE_MS

    def _in_words(self) -> str:
        return (
            f"requests and answers hold {self.used_bytes} bytes, queued.max.request.bytes is {self.limit_bytes},"
            f" {len(self._waiting)} connections wait"
        )


def request_memory_limit(config: BrokerConfig) -> int:
    """`queued.max.request.bytes`, or a share of the memory if it is not set, but at least one request."""
    if config.queued_max_request_bytes > 0:
        return config.queued_max_request_bytes
    return default_limit_bytes(config.socket_request_max_bytes, machine_memory_bytes())


def default_limit_bytes(largest_request_bytes: int, memory_bytes: int) -> int:
    return max(memory_bytes // _SHARE, largest_request_bytes)


def machine_memory_bytes(root: str = "") -> int:
    """The memory of this machine, or of the container if that has less. `root` is where its file system begins."""

    def read(path: str) -> str | None:
        try:
            with open(f"{root}{path}", encoding="ascii", errors="replace") as file:
                return file.read()
        except OSError:
            return None  # There is no such limit.

    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine_bytes, *(limit.limit_bytes for limit in memory_limits(read))])
