"""`duralog console` as users start it: a process of its own, on loopback, on a free port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

_START_SECONDS = 60
_STOP_SECONDS = 30
_TICKS = os.sysconf("SC_CLK_TCK")
_ADDRESS = re.compile(r"ready on (http://\S+)")


class RunningConsole:
    """A console. Use it as a context manager: the end of the block stops it, and it must end well."""

    def __init__(self, *target: str, allow_changes: bool = False, folder: Path | None = None) -> None:
        """`folder` is where the command is typed, if that is not here."""
        self._work = tempfile.TemporaryDirectory(prefix="duralog-console-")
        self._said = Path(self._work.name) / "stdout"
        self._log = Path(self._work.name) / "stderr"
        command = [sys.executable, "-m", "duralog", "console", *target, "--listen", "127.0.0.1:0", "--no-browser"]
        if allow_changes:
            command.append("--allow-changes")
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=log, cwd=folder)
        self.address = self._wait_until_ready()

    def _wait_until_ready(self) -> str:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if found := _ADDRESS.search(self.said):
                return found[1].rstrip("/")
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(f"duralog console did not start:\n{self.said}{self.log}")

    def __enter__(self) -> RunningConsole:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if error is not None:
                error.add_note(f"the console's log:\n{self.log[-4000:]}")
            self._work.cleanup()

    @property
    def said(self) -> str:
        """What it wrote to standard output."""
        return self._said.read_text(encoding="utf-8", errors="replace")

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def peak_bytes(self) -> int:
        """The most that it has had in memory so far."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the console has ended")

    def stop(self) -> None:
        """As an operator ends it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        if self._process.returncode != 0:
            raise RuntimeError(f"the console ended with {self._process.returncode}:\n{self.log[-4000:]}")

    def kill(self) -> None:
        """In the middle of whatever it does."""
        self._process.kill()
        self._process.wait()
