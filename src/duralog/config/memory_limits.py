"""The memory limits of this process: those of its cgroups, as in containers and services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

_CGROUPS = "/sys/fs/cgroup"
_UNLIMITED_BYTES = 1 << 60
"""Cgroups of version 1 say "no limit" with a number that no machine has."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    file: str
    limit_bytes: int
    used_bytes: int | None


def memory_limits(read: Callable[[str], str | None]) -> Iterator[MemoryLimit]:
    """The limits of all cgroups that this process is in. `read` returns a file of the system, or None."""
    for line in (read("/proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, limit_name, usage_name = _CGROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            root, limit_name, usage_name = f"{_CGROUPS}/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # In a container the path may be that of the host, and the limit be set at the root.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            folder = "/".join([root, *parts[:depth]])
            limit = _number(read(f"{folder}/{limit_name}"))
            if limit is not None and limit < _UNLIMITED_BYTES:
                yield MemoryLimit(f"{folder}/{limit_name}", limit, _number(read(f"{folder}/{usage_name}")))


def _number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdecimal() else None
