"""duralog's broker as users start it: `duralog serve` in a process of its own, on loopback, on a free port."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from oracle.server_process import ServerProcess


class ServedDirectory(ServerProcess):
    """A running broker. Use it as a context manager: the end of the block stops it, and it must end well."""

    def __init__(
        self, directory: Path, *, configs: Mapping[str, object] | None = None, listen: str | None = "127.0.0.1:0"
    ) -> None:
        """Without `listen`, the configs have listeners; `bootstrap` is the first of them."""
        super().__init__("duralog")
        ready = self.folder / "ready"
        command = [sys.executable, "-m", "duralog", "serve", "--data", str(directory.absolute())]
        command += ["--ready-file", str(ready)]
        command += [] if listen is None else ["--listen", listen]
        for name, value in (configs or {}).items():
            command += ["--override", f"{name}={value}"]
        self.start(command)
        written = self.wait_for(lambda: (ready.read_text().strip() or None) if ready.exists() else None)
        self.bootstraps = written.split(",")
        self.bootstrap = self.bootstraps[0]
        host, _, listening = self.bootstrap.rpartition(":")
        self.address = host, int(listening)

    @property
    def errors(self) -> list[str]:
        return [line for line in self.log.splitlines() if " ERROR " in line or line.startswith("Traceback")]

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """As an operator ends it, so that the directory is left clean."""
        if self.is_running:
            super().stop()
            self.check_ended_well()
