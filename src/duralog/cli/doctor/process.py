"""Checks the limit of open files, of this process and of those that are started like it."""

from __future__ import annotations

from collections.abc import Iterator

from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine
from duralog.cli.voice.tables import plural

_FILES_OF_A_PARTITION = 3
_FILES_OF_A_SEGMENT = 3
_OTHER_FILES = 100
_CONNECTIONS = 1_000

_FILES = Subject("open files", "every segment that is read takes up to three, and every connection one")


def process_checks(machine: Machine, *, partitions: int, segments: int) -> Iterator[Check]:
    limit = machine.most_open_files()
    if limit is None:
        yield _FILES.ok("no limit")
        return
    least = partitions * _FILES_OF_A_PARTITION + _OTHER_FILES
    most = segments * _FILES_OF_A_SEGMENT + _OTHER_FILES + _CONNECTIONS
    # duralog serve raises the soft limit to the hard limit.
    enough = max(0, limit - _OTHER_FILES - _CONNECTIONS) // _FILES_OF_A_SEGMENT
    found = f"{limit:,} at most, enough for {plural(enough, 'segment')} and a thousand connections"
    found += f"; there are {segments:,}" if segments else ""
    value = max(65_536, 2 * most)
    change = (
        f"LimitNOFILE={value} in the unit, docker run --ulimit nofile={value},"
        f" or `* hard nofile {value}` in /etc/security/limits.d/duralog.conf"
    )
    if limit < least:
        yield _FILES.fail(found, change)
    elif limit < most:
        yield _FILES.warn(found, change)
    else:
        yield _FILES.ok(found)
