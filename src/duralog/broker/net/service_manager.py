"""Notifies systemd of the state of the process (`sd_notify`): one datagram to the socket in NOTIFY_SOCKET.

Without that variable nothing happens. A service manager that is gone does not affect the broker.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """REQUIRES: `state` is one of the assignments that sd_notify(3) lists."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    # A name that begins with @ is in the abstract namespace.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.sendto(state.encode(), target)
