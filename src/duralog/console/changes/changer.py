"""Makes changes: opens the broker, or the directory for as long as a change takes, one change at a time.

A console with a broker makes all changes through it, even if it also has the directory: the broker holds the lock,
checks, and audits. Without a broker, the directory is locked during a change.
"""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from duralog.config.entries import Entry
from duralog.config.error_text import describe, printable
from duralog.console.changes.acls import acls_view
from duralog.console.changes.change import Change, Preview
from duralog.console.facts.acls import AclsView
from duralog.console.source import Busy, ChangesNotAllowed
from duralog.errors import StorageError, StoreLocked
from duralog.operations.target import Target, opened_broker, opened_directory

_logger = logging.getLogger(__name__)

_LONGEST_INPUT = 32_000
"""A command line of this length works in every shell."""
_NOT_ALLOWED = "This console was started without --allow-changes. The command does the same:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedPlace:
    """Where changes are made."""

    directory: str | None
    broker: str | None = None
    """If there is one, changes are made through it."""
    config_file: str | None = None
    """How a command would log in to the broker."""

    @property
    def words(self) -> list[str]:
        """The place as arguments of a command."""
        if self.broker is None:
            assert self.directory is not None
            return [self.directory]
        return [self.broker, *([] if self.config_file is None else ["--config-file", self.config_file])]


class Changer:
    """Any thread may call any method, but the event loop only `why_not`: the others open files or call a broker."""

    def __init__(
        self, place: ChangedPlace, *, is_allowed: bool = False, after: Callable[[], None] = lambda: None
    ) -> None:
        """`after` is called after each change, so that the pages show it."""
        self.place = place
        self._is_allowed = is_allowed
        self._after = after
        self._changing = threading.Lock()

    def command(self, change: Change) -> str:
        """The command that does the same, quoted for a shell. A large record would be in a file."""
        command = shlex.join(["duralog", *change.arguments(self.place.words)])
        given = change.input()
        if given is None:
            return command
        if len(given) > _LONGEST_INPUT:
            return f"{command} --file record.json"
        return f"printf '%s\\n' {shlex.quote(given)} | {command}"

    def why_not(self, held_by: str | None) -> str | None:
        """Why no change can be made now. `held_by` is the process that has the directory open."""
        if not self._is_allowed:
            return _NOT_ALLOWED
        if self.place.broker is None and held_by is not None and not self._changing.locked():
            return (
                f"The directory is open for writing by {held_by}. To change it through its broker, start"
                f" duralog console HOST:PORT --data {shlex.quote(self.place.directory or '')}"
            )
        return None

    def preview(self, change: Change) -> Preview:
        """What it would do. Nothing is changed."""
        with self._opened(read_only=True) as target:
            return change.preview(target)

    def carry_out(self, change: Change, *, user: str | None) -> str:
        """Returns what was done. Raises `Busy` while another change is made, and what the change raises.

        REQUIRES: the user has the role of the change.
        """
        if not self._is_allowed:
            raise ChangesNotAllowed(_NOT_ALLOWED)
        if not self._changing.acquire(blocking=False):
            raise Busy("another change is being made: try again when it is done")
        try:
            with self._opened(read_only=False) as target:
                done = change.carry_out(target)
        finally:
            self._changing.release()
        # Not the command: it has the contents of records and the values of configs.
        _logger.info("changed from the page%s: %s", f" by {printable(user)}" if user else "", printable(done))
        self._after()
        return done

    def topic_configs(self, topic: str) -> list[Entry]:
        """All configs of a topic, with where each value comes from."""
        with self._opened(read_only=True) as target:
            return target.topic_configs(topic)

    def topic_id(self, topic: str) -> str | None:
        with self._opened(read_only=True) as target:
            return target.topic_id(topic)

    def broker_configs(self) -> list[Entry]:
        """All configs of the broker, or those that one would have that is started on the directory."""
        with self._opened(read_only=True) as target:
            configs = target.configs()
            return list(configs.entries(configs.own))

    def acls(self) -> AclsView:
        """The access control entries of the broker, or those in the directory."""
        with self._opened(read_only=True) as target:
            return acls_view(target)

    @contextmanager
    def _opened(self, *, read_only: bool) -> Iterator[Target]:
        try:
            if self.place.broker is not None:
                with opened_broker(self.place.broker) as target:
                    yield target
            else:
                assert self.place.directory is not None
                with opened_directory(self.place.directory, read_only=read_only) as of_directory:
                    yield of_directory
        except StoreLocked as error:
            if f"process {os.getpid()} " in str(error):
                raise Busy("a compaction or another change of this console is under way: try again later") from None
            raise
        except OSError as error:
            raise StorageError(describe(error)) from error
