"""A server in a process of its own, with a folder for its log: how it is ended, and what it has said.

The end of the block stops it as an operator does, so that its directory is left clean; an error in the block gets the
end of the server's log as a note.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_STOP_SECONDS = 60
_NOTED_CHARACTERS = 4000


class ServerProcess:
    """`start` begins it. Use it as a context manager."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work = tempfile.TemporaryDirectory(prefix=f"duralog-{name.lower()}-")
        self.folder = Path(self._work.name)
        """For what it needs while it runs."""
        self._log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if error is not None:
                error.add_note(f"{self._name}'s log:\n{self.end_of_log}")
            self._work.cleanup()

    @property
    def log(self) -> str:
        """What the server said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def end_of_log(self) -> str:
        return self.log[-_NOTED_CHARACTERS:]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """REQUIRES: it was started."""
        assert self._process is not None
        return self._process

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """End it as an operator does."""
        if self.is_running:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def kill(self) -> None:
        """In the middle of whatever it does."""
        self.process.kill()
        self.process.wait()
