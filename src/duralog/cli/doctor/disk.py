"""Checks the disk of a directory: file system, mount options, free space, and fsync."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from duralog.cli.doctor.check import Check, Subject
from duralog.cli.doctor.machine import Machine
from duralog.cli.voice.tables import size_text
from duralog.config.error_text import printable

_SYNCS = 10
_TOO_FAST_SECONDS = 20e-6
_SLOW_SECONDS = 50e-3
_LITTLE_SHARE = 0.1
_LITTLE_BYTES = 1 << 30
_NO_BYTES = 100 << 20
_FEW_INODES = 10_000
_NO_INODES = 100

_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "glusterfs", "fuse.glusterfs", "lustre"),
    *("afs", "gfs2", "ocfs2", "beegfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"),
}
_IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}
_COPY_ON_WRITE = {
    "btrfs": "chattr +C on the directory before its first file: files that are rewritten in place then do not fragment",
    "zfs": "zfs set atime=off recordsize=1M primarycache=all: it has a cache besides the page cache",
}

_FILE_SYSTEM = Subject(
    "file system", "a log is appended to, mapped and locked: that is fast and safe on a local disk, ext4 or xfs"
)
_MOUNT = Subject("mount options", "reads should not write access times, and fsync must reach the disk")
_SPACE = Subject("space", "a full disk takes a log offline; compaction needs space for the segments that it writes")
_INODES = Subject("inodes", "every segment has up to five files")
_SYNC = Subject("fsync", "flushes, clean stops, topics and transactions wait for it, and it must reach the disk")


class Mount(NamedTuple):
    point: str
    kind: str
    source: str
    options: frozenset[str]


def mounts(text: str) -> list[Mount]:
    """The mounts of `/proc/self/mountinfo`, in order: a later one hides an earlier one at the same place."""
    found: list[Mount] = []
    for line in text.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        after = fields.index("-", 6) + 1
        if len(fields) < after + 3:
            continue
        options = frozenset([*fields[5].split(","), *fields[after + 2].split(",")])
        found.append(Mount(_unescaped(fields[4]), fields[after], _unescaped(fields[after + 1]), options))
    return found


def mount_of(text: str, path: str) -> Mount | None:
    """The mount of an absolute path without links."""
    best: Mount | None = None
    for mount in mounts(text):
        point = mount.point.rstrip("/") + "/"
        if (path.rstrip("/") + "/").startswith(point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _unescaped(text: str) -> str:
    r"""The kernel writes spaces in names as `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def disk_checks(machine: Machine, path: str) -> Iterator[Check]:
    """`path` is an existing folder, without links in it."""
    mount = mount_of(machine.read("/proc/self/mountinfo") or "", path)
    if mount is not None:
        yield _file_system(mount)
        yield _options(mount)
    space = machine.space(path)
    if space is not None:
        yield _room(space.total_bytes, space.usable_bytes)
        if space.inodes:
            yield _inodes(space.inodes, space.free_inodes)
    yield _sync(machine, path, mount)


def _file_system(mount: Mount) -> Check:
    found = f"{mount.kind} on {printable(mount.point)}"
    if mount.kind in _NETWORK:
        return _FILE_SYSTEM.warn(
            f"{found}, from the network: locks and mapped files do not behave as on a local disk",
            "put the directory on a local disk, and copies of it on the network",
        )
    if mount.kind in _IN_MEMORY:
        return _FILE_SYSTEM.warn(f"{found}: it is in memory, and lost after a restart", "put the directory on a disk")
    if mount.kind == "overlay":
        return _FILE_SYSTEM.warn(
            f"{found}: the layer of a container, removed with it, and slow to append to",
            "mount a volume: docker run -v duralog:/var/lib/duralog",
        )
    if mount.kind in _COPY_ON_WRITE:
        return _FILE_SYSTEM.warn(f"{found}, which copies on write", _COPY_ON_WRITE[mount.kind])
    if mount.kind.startswith("fuse"):
        return _FILE_SYSTEM.warn(
            f"{found}: every call goes through another process", "put the directory on ext4 or xfs"
        )
    return _FILE_SYSTEM.ok(found)


def _options(mount: Mount) -> Check:
    options = mount.options
    interesting = [
        *("ro", "noatime", "relatime", "strictatime", "sync", "nobarrier", "barrier=0"),
        *("data=writeback", "data=journal", "data=ordered"),
    ]
    shown = ", ".join(name for name in interesting if name in options) or "rw"
    remount = f"mount -o remount,{{}} {mount.point}; to keep it, the same in /etc/fstab"
    if "ro" in options:
        return _MOUNT.fail(f"{shown}: nothing can be appended", remount.format("rw"))
    if options & {"nobarrier", "barrier=0"}:
        return _MOUNT.warn(
            f"{shown}: fsync returns before the data is on disk; safe only if the disk's cache has a battery",
            remount.format("barrier=1"),
        )
    if "sync" in options:
        return _MOUNT.warn(f"{shown}: every append waits for the disk", remount.format("async"))
    if "data=journal" in options:
        return _MOUNT.warn(
            f"{shown}: every byte is written twice",
            "data=ordered in /etc/fstab, then unmount and mount it: it cannot be remounted",
        )
    if not options & {"noatime", "relatime"}:
        return _MOUNT.warn(f"{shown}: every read writes the time of the file", remount.format("noatime"))
    if "data=writeback" in options:
        return _MOUNT.ok(
            f"{shown}: a crash may leave old bytes at the end of a log, which recovery detects and cuts off"
        )
    return _MOUNT.ok(shown)


def _room(total: int, usable: int) -> Check:
    share = usable / total if total else 0
    found = f"{size_text(usable)} of {size_text(total)} free ({share:.0%})"
    change = "duralog retain --dry-run and duralog compact --explain show what can be deleted; or use a larger disk"
    if usable < _NO_BYTES:
        return _SPACE.fail(found, change)
    if usable < _LITTLE_BYTES or share < _LITTLE_SHARE:
        return _SPACE.warn(found, change)
    return _SPACE.ok(found)


def _inodes(total: int, free: int) -> Check:
    found = f"{free:,} of {total:,} free"
    change = "remove small files, use larger segments (segment.bytes), or make the file system with more (mkfs -N)"
    if free < _NO_INODES:
        return _INODES.fail(found, change)
    return _INODES.warn(found, change) if free < _FEW_INODES else _INODES.ok(found)


def _sync(machine: Machine, path: str, mount: Mount | None) -> Check:
    taken = machine.sync_seconds(path, _SYNCS) if machine.may_write(path) else None
    if not taken:
        return _SYNC.ok("not measured: this user cannot write there")
    middle = statistics.median(taken)
    found = f"{_time_text(middle)} for 4 KiB, {_time_text(max(taken))} at most, of {len(taken)}"
    if middle < _TOO_FAST_SECONDS and (mount is None or mount.kind not in _IN_MEMORY):
        return _SYNC.warn(
            f"{found}: too fast to be true for a disk",
            "if that is a virtual disk, have its host write through (qemu: cache=none, not cache=unsafe)",
        )
    if middle > _SLOW_SECONDS:
        return _SYNC.warn(found, "use a separate SSD for the log; without one, leave flush.messages and flush.ms unset")
    return _SYNC.ok(found)


def _time_text(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
