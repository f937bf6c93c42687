"""What `duralog doctor` says about the limits of this process and of those that are started like it."""

from __future__ import annotations

from collections.abc import Iterator

from duralog.cli.common.tables import plural
from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine

_FILES_OF_A_PARTITION = 3
_FILES_OF_A_SEGMENT = 3
_OTHER_FILES = 100
_CONNECTIONS = 1_000
_ZONE_FILES = "/usr/share/zoneinfo"

_FILES = Subject("open files", "every segment that is read takes up to three, and every connection one")
_CORE = Subject("core dumps", "a dump of a process has records in it, and may fill the disk of the log")
_ZONE = Subject("time zone", "logs and commands have UTC; the zone of the machine is what its other logs are in")


def process_checks(machine: Machine, *, partitions: int, segments: int) -> Iterator[Check]:
    yield from _open_files(machine, partitions, segments)
    yield from _core_dumps(machine)
    yield _time_zone(machine)


def _open_files(machine: Machine, partitions: int, segments: int) -> Iterator[Check]:
    limit = machine.limit("nofile")
    if limit is None:
        return
    if limit.hard is None:
        yield _FILES.ok("no limit")
        return
    least = partitions * _FILES_OF_A_PARTITION + _OTHER_FILES
    most = segments * _FILES_OF_A_SEGMENT + _OTHER_FILES + _CONNECTIONS
    # duralog serve raises the soft limit to the hard one by itself.
    enough = max(0, limit.hard - _OTHER_FILES - _CONNECTIONS) // _FILES_OF_A_SEGMENT
    found = f"{limit.hard:,} at most, enough for {plural(enough, 'segment')} and a thousand connections"
    found += f"; there are {segments:,}" if segments else ""
    value = max(65_536, 2 * most)
    change = (
        f"LimitNOFILE={value} in the unit, docker run --ulimit nofile={value},"
        f" or `* hard nofile {value}` in /etc/security/limits.d/duralog.conf"
    )
    if limit.hard < least:
        yield _FILES.fail(found, change)
    elif limit.hard < most:
        yield _FILES.warn(found, change)
    else:
        yield _FILES.ok(found)


def _core_dumps(machine: Machine) -> Iterator[Check]:
    limit = machine.limit("core")
    pattern = (machine.read("/proc/sys/kernel/core_pattern") or "").strip()
    if limit is None:
        return
    if limit.soft == 0:
        yield _CORE.ok("off")
    elif pattern.startswith("|"):
        yield _CORE.ok("on, and handed to a program")
    elif limit.soft is None and not pattern.startswith("/"):
        yield _CORE.warn(
            "without a limit, into the folder that a process works in", "ulimit -c 0, or LimitCORE=0 in the unit"
        )
    else:
        yield _CORE.ok(f"on, as {pattern or 'core'}")


def _time_zone(machine: Machine) -> Check:
    name, offset = machine.zone
    chosen = machine.environment.get("TZ", "").lstrip(":")
    if "/" in chosen and not offset and machine.read(f"{_ZONE_FILES}/{chosen}") is None:
        return _ZONE.warn(f"TZ={chosen} is not known here, and counts as UTC", "apt-get install tzdata")
    hours, minutes = divmod(abs(offset) // 60, 60)
    return _ZONE.ok(f"{name}, UTC{'-' if offset < 0 else '+'}{hours:02}:{minutes:02}")
