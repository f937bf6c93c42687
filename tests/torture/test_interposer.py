"""The calls by which duralog works on files fail in a process with the interposer, below its folder only."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.interposer import Interposer, is_available
from tests.torture.journal import Journal

pytestmark = pytest.mark.skipif(not is_available(), reason="gcc is not installed")
CALLS = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def allocate(file):
    if libc.fallocate(file, 1, ctypes.c_int64(0), ctypes.c_int64(4096)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")

one, _other = socket.socketpair()
calls = {
    "fallocate": allocate,
    "posix_fallocate": lambda file: os.posix_fallocate(file, 0, 4096),
    "pread": lambda file: os.pread(file, 4, 0),
    "preadv": lambda file: os.preadv(file, [bytearray(4)], 0),
    "pwrite": lambda file: os.pwrite(file, b"four", 0),
    "pwritev": lambda file: os.pwritev(file, [b"four"], 0),
    "read": lambda file: os.read(file, 4),
    "sendfile": lambda file: os.sendfile(one.fileno(), file, 0, 4),
    "write": lambda file: os.write(file, b"four"),
}
for path in sys.argv[1:]:
    file = os.open(path, os.O_RDWR)
    for name, call in calls.items():
        try:
            print(name, call(file))
        except OSError as error:
            print(name, "failed", error.errno)
"""


def results(interposer: Interposer, path: Path) -> dict[str, str]:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(8192))
    environment = {**os.environ, **interposer.environment}
    run = subprocess.run(
        [sys.executable, "-c", CALLS, path], env=environment, capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in run.stdout.splitlines())


def test_calls_fail_below_the_folder(tmp_path: Path) -> None:
    interposer = Interposer(tmp_path, tmp_path / "data", seed=1, journal=Journal())
    interposer.fail(errno.EIO, {"write": 1, "read": 1, "allocate": 1})
    elsewhere = results(interposer, tmp_path / "elsewhere")
    assert not [name for name, found in elsewhere.items() if "failed" in found]
    assert set(results(interposer, tmp_path / "data" / "file").values()) == {f"failed {errno.EIO}"}
    assert interposer.failed == {"write": 3, "read": 4, "allocate": 2}


def test_writes_are_cut_short(tmp_path: Path) -> None:
    interposer = Interposer(tmp_path, tmp_path / "data", seed=1, journal=Journal())
    interposer.fail(errno.EIO, {"short write": 1})
    found = results(interposer, tmp_path / "data" / "file")
    assert {name: found[name] for name in ("write", "pwrite", "pwritev")} == dict.fromkeys(
        ("write", "pwrite", "pwritev"), "2"
    )
