"""Checks memory and the kernel settings of the page cache, which appends go to.

Settings are compared with the memory of the machine, not with a list of preferred values. A setting that cannot be read
is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from duralog.cli.doctor.check import Check, Subject, sysctl
from duralog.cli.doctor.machine import Machine
from duralog.cli.voice.tables import plural, size_text
from duralog.config.memory_limits import memory_limits

_VM = "/proc/sys/vm"

_LITTLE_MEMORY = 512 << 20
_MOST_SWAPPINESS = 10
_MOST_IN_BACKGROUND = 2 << 30
_LEAST_BEFORE_WAITING = 128 << 20
_LONGEST_EXPIRY_SECONDS = 60
_MUCH_OF_A_LIMIT = 0.9

_MEMORY = Subject("memory", "consumers read from memory as long as the page cache is large enough")
_LIMIT = Subject("memory limit", "page cache counts against the limit of a container: below it, reads come from disk")
_SWAP = Subject("swap", "a broker whose pages were swapped out responds in seconds, not milliseconds")
_DIRTY = Subject(
    "dirty pages",
    "appended records wait there for the disk: late write-back comes in bursts, and every flush waits for it",
)
_EXPIRY = Subject("write-back", "a loss of power loses unflushed records up to this age")
_MAPS = Subject("vm.max_map_count", "both indexes of every segment in use are mapped: more maps than this are refused")

_SPARE_MAPS = 2_000
"""Libraries, threads and buffers."""
_MAPS_OF_A_SEGMENT = 2


def memory_checks(machine: Machine, *, segments: int, log_bytes: int) -> Iterator[Check]:
    memory = _meminfo(machine)
    total = memory.get("MemTotal")
    if total is not None:
        yield _memory(memory, total, log_bytes)
    limit = min(memory_limits(machine.read), key=lambda found: found.limit_bytes, default=None)
    if limit is not None:
        yield _limit(limit.file, limit.limit_bytes, limit.used_bytes)
    if "SwapTotal" in memory:
        yield _swap(machine, memory)
    yield from _dirty(machine, memory.get("MemAvailable", total))
    yield from _write_back(machine)
    yield from _maps(machine, segments)


def _memory(memory: dict[str, int], total: int, log_bytes: int) -> Check:
    available = memory.get("MemAvailable", total)
    cached = memory.get("Cached", 0)
    found = f"{size_text(total)}, {size_text(available)} of it available; page cache {size_text(cached)}"
    if available < _LITTLE_MEMORY:
        return _MEMORY.warn(found, "stop other processes, or add memory: at least 1 GiB should be available")
    if log_bytes > available:
        found += f"; the logs have {size_text(log_bytes)}: consumers that lag far behind read from disk"
    return _MEMORY.ok(found)


def _limit(file: str, limit: int, used: int | None) -> Check:
    found = f"{size_text(limit)}" + ("" if used is None else f", {size_text(used)} of it in use") + f" ({file})"
    change = "docker run --memory, MemoryMax= of the unit, or resources.limits.memory of the pod: 1 GiB or more"
    if limit < _LITTLE_MEMORY:
        return _LIMIT.warn(found, change)
    if used is not None and used > limit * _MUCH_OF_A_LIMIT:
        return _LIMIT.ok(f"{found}: page cache fills it, and is freed when memory is needed")
    return _LIMIT.ok(found)


def _swap(machine: Machine, memory: dict[str, int]) -> Check:
    total = memory["SwapTotal"]
    used = total - memory.get("SwapFree", total)
    if not total:
        return _SWAP.ok("there is none")
    swappiness = _setting(machine, "swappiness")
    found = f"{size_text(used)} of {size_text(total)} in use"
    if swappiness is None:
        return _SWAP.ok(found)
    found += f", vm.swappiness is {swappiness}"
    if swappiness > _MOST_SWAPPINESS:
        return _SWAP.warn(found, sysctl("vm.swappiness=1"))
    return _SWAP.ok(found)


def _dirty(machine: Machine, memory: int | None) -> Iterator[Check]:
    waiting, waiting_name = _threshold(machine, "dirty_bytes", "dirty_ratio", memory)
    background, background_name = _threshold(machine, "dirty_background_bytes", "dirty_background_ratio", memory)
    if waiting is None or background is None:
        return
    found = (
        f"write-back begins at {size_text(background)} ({background_name}),"
        f" writers wait at {size_text(waiting)} ({waiting_name})"
    )
    if waiting < _LEAST_BEFORE_WAITING:
        yield _DIRTY.warn(f"{found}: appends wait for the disk very soon", sysctl("vm.dirty_ratio=40"))
    elif background >= waiting:
        yield _DIRTY.warn(
            f"{found}: write-back begins no earlier than writers wait",
            sysctl("vm.dirty_background_ratio=5", "vm.dirty_ratio=40"),
        )
    elif background > _MOST_IN_BACKGROUND:
        yield _DIRTY.warn(
            f"{found}: a flush may have to write that much", sysctl(f"vm.dirty_background_bytes={256 << 20}")
        )
    else:
        yield _DIRTY.ok(found)


def _threshold(machine: Machine, in_bytes: str, as_ratio: str, memory: int | None) -> tuple[int | None, str]:
    """The setting in bytes takes precedence if it is not 0. The ratio is of available memory."""
    size = _setting(machine, in_bytes)
    if size:
        return size, f"vm.{in_bytes}"
    ratio = _setting(machine, as_ratio)
    if ratio is None or memory is None:
        return None, ""
    return memory * ratio // 100, f"vm.{as_ratio}={ratio}"


def _write_back(machine: Machine) -> Iterator[Check]:
    expiry = _setting(machine, "dirty_expire_centisecs")
    interval = _setting(machine, "dirty_writeback_centisecs")
    if expiry is None or interval is None:
        return
    if not interval:
        yield _EXPIRY.warn(
            "vm.dirty_writeback_centisecs is 0: pages are not written by age",
            sysctl("vm.dirty_writeback_centisecs=500"),
        )
        return
    seconds = (expiry + interval) / 100
    found = f"after {seconds:.0f} s at most (vm.dirty_expire_centisecs={expiry})"
    if seconds > _LONGEST_EXPIRY_SECONDS:
        yield _EXPIRY.warn(found, sysctl("vm.dirty_expire_centisecs=3000"))
    else:
        yield _EXPIRY.ok(f"{found}; flush.messages and flush.ms shorten it for a topic")


def _maps(machine: Machine, segments: int) -> Iterator[Check]:
    most = _setting(machine, "max_map_count")
    if most is None:
        return
    needed = segments * _MAPS_OF_A_SEGMENT + _SPARE_MAPS
    enough = plural(max(0, most - _SPARE_MAPS) // _MAPS_OF_A_SEGMENT, "segment")
    found = f"{most:,}, enough for {enough}" + (f"; there are {segments:,}" if segments else "")
    if most < needed:
        yield _MAPS.fail(found, sysctl(f"vm.max_map_count={max(262_144, 2 * needed)}"))
    else:
        yield _MAPS.ok(found)


def _meminfo(machine: Machine) -> dict[str, int]:
    text = machine.read("/proc/meminfo") or ""
    return {name: int(size) << 10 for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}


def _setting(machine: Machine, name: str) -> int | None:
    return _number(machine.read(f"{_VM}/{name}"))


def _number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdecimal() else None
