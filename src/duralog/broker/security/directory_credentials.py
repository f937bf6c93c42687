"""The SCRAM credentials of a log directory, for a process that reads it while a broker may change them.

They are read again when a file of the metadata log has changed, by name, size or time: comparing these costs little.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping

from duralog.errors import DuralogError
from duralog.format.filenames import CLUSTER_METADATA_FOLDER
from duralog.storage.metadata.scram import ScramCredential, ScramUser

_logger = logging.getLogger(__name__)

Credentials = Mapping[ScramUser, ScramCredential]
_CHECK_SECONDS = 2.0


class DirectoryCredentials:
    """Any thread may ask."""

    def __init__(
        self, directory: str, read: Callable[[], Credentials], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`read` reads them from the directory. It may take long."""
        self._folder = os.path.join(directory, CLUSTER_METADATA_FOLDER)
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._files: object = None
        self._known: Credentials = {}
        self._checked_at = clock()
        self._is_checking = False
        self._last_error = ""

    def read(self) -> Credentials:
        """As they are now. It may take long, and fail if the directory cannot be read."""
        with self._lock:
            # Before reading: what changes meanwhile is seen the next time.
            files = self._state()
            if files is None or files != self._files:
                self._known, self._files = self._read(), files
            return self._known

    def known(self) -> Credentials:
        """As they were last read. This does not wait: another thread checks for changes, every few seconds."""
        if not self._is_checking and self._clock() - self._checked_at >= _CHECK_SECONDS:
            self._is_checking, self._checked_at = True, self._clock()
            threading.Thread(target=self._check, name="duralog-credentials", daemon=True).start()
        return self._known

    def _check(self) -> None:
        try:
            self.read()
            self._last_error = ""
        except (DuralogError, OSError) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _logger.error("SCRAM credentials cannot be read, and stay as they were: %s", error)
        finally:
            self._is_checking = False

    def _state(self) -> object:
        try:
            with os.scandir(self._folder) as entries:
                found = [(entry.name, entry.stat()) for entry in entries]
        except OSError:
            return None
        return sorted((name, status.st_size, status.st_mtime_ns) for name, status in found)
