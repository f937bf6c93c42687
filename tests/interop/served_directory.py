"""duralog's broker as users start it: `duralog serve` in a process of its own, on loopback, on a free port."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from oracle.server_process import ServerProcess

_START_SECONDS = 60


class ServedDirectory(ServerProcess):
    """A running broker. Use it as a context manager: the end of the block stops it, and it must end well."""

    def __init__(self, directory: Path, *, configs: Mapping[str, object] | None = None, port: int = 0) -> None:
        super().__init__("duralog")
        ready = self.folder / "ready"
        command = [sys.executable, "-m", "duralog", "serve", "--data", str(directory.absolute())]
        command += ["--ready-file", str(ready), "--listen", f"127.0.0.1:{port}"]
        for name, value in (configs or {}).items():
            command += ["--override", f"{name}={value}"]
        self.start(command)
        self.bootstrap = self._wait_until_ready(ready)
        host, _, listening = self.bootstrap.rpartition(":")
        self.address = host, int(listening)

    def _wait_until_ready(self, ready: Path) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while self.is_running and time.monotonic() < deadline:
            if ready.exists() and (text := ready.read_text().strip()):
                return text
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"duralog serve did not start:\n{self.log}")

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
            code = self.process.returncode
            assert code == 0, f"exit code {code}:\n{self.end_of_log}"
