"""`duralog console` as users start it: a process of its own, on loopback, on a free port."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from oracle.server_process import ServerProcess

_ADDRESS = re.compile(r"ready on (https?://\S+)")


class RunningConsole(ServerProcess):
    """A console. Use it as a context manager: the end of the block stops it, and it must end well."""

    def __init__(self, *target: str, allow_changes: bool = False, folder: Path | None = None) -> None:
        """`folder` is where the command is typed, if that is not here."""
        super().__init__("console")
        command = [sys.executable, "-m", "duralog", "console", *target, "--listen", "127.0.0.1:0", "--no-browser"]
        if allow_changes:
            command.append("--allow-changes")
        self.start(command, folder=folder or Path.cwd(), is_log_apart=True)
        self.address = self.wait_for(self._told_address)

    def _told_address(self) -> str | None:
        found = _ADDRESS.search(self.said)
        return None if found is None else found[1].rstrip("/")

    def stop(self) -> None:
        """As an operator ends it."""
        super().stop()
        self.check_ended_well()
