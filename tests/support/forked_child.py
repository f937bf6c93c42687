"""A forked child of this process, for tests of what it may do with what it has inherited."""

from __future__ import annotations

import os
import select
import signal
import sys
import warnings
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""A child that hangs is ended after this."""


def fork() -> int:
    """`os.fork`, without the warning of newer Pythons that other threads are running: that is what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        sys.stdout.flush()
        sys.stderr.flush()
        return os.fork()


def in_child(work: Callable[[], object]) -> str:
    """Run this in a forked child, which ends without any clean-up. Returns the result, or the error, as text."""
    receiving, sending = os.pipe()
    child = fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(sending, text.encode())
        os._exit(0)
    os.close(sending)
    parts: list[bytes] = []
    try:
        while select.select([receiving], [], [], PATIENCE_SECONDS)[0]:
            part = os.read(receiving, 1 << 16)
            if not part:
                break
            parts.append(part)
        else:
            os.kill(child, signal.SIGKILL)
            parts.append(b"the child hangs")
    finally:
        os.close(receiving)
        status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return b"".join(parts).decode() or f"the child ended with status {status}"
