"""duralog's broker as users start it: `duralog serve` in a process of its own, on loopback, on a free port."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

_START_SECONDS = 60
_STOP_SECONDS = 60


class ServedDirectory:
    """A running broker. Use it as a context manager: the end of the block stops it, and it must end well."""

    def __init__(self, directory: Path, *, configs: Mapping[str, object] | None = None, port: int = 0) -> None:
        self._work = tempfile.TemporaryDirectory(prefix="duralog-serve-")
        ready = Path(self._work.name) / "ready"
        self._log = Path(self._work.name) / "serve.log"
        command = [sys.executable, "-m", "duralog", "serve", "--data", str(directory), "--ready-file", str(ready)]
        command += ["--listen", f"127.0.0.1:{port}"]
        for name, value in (configs or {}).items():
            command += ["--override", f"{name}={value}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.bootstrap = self._wait_until_ready(ready)
        host, _, listening = self.bootstrap.rpartition(":")
        self.address = host, int(listening)

    def _wait_until_ready(self, ready: Path) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if ready.exists() and (text := ready.read_text().strip()):
                return text
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"duralog serve did not start:\n{self.log}")

    def __enter__(self) -> ServedDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if error is not None:
                error.add_note(f"duralog's log:\n{self.log[-4000:]}")
            self._work.cleanup()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def errors(self) -> list[str]:
        return [line for line in self.log.splitlines() if " ERROR " in line or line.startswith("Traceback")]

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """As an operator ends it, so that the directory is left clean."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            assert self._process.returncode == 0, f"exit code {self._process.returncode}:\n{self.log[-4000:]}"

    def kill(self) -> None:
        """In the middle of whatever it does."""
        self._process.kill()
        self._process.wait()
