"""Open files, logs and locks belong to the process that opened them, and not to its forked children.

A fork copies descriptors, mapped files and the state of every log, but no threads. Two processes that append from the
same state overwrite each other's records. So in a forked child, inherited stores, logs and brokers raise `StorageError`
when they are used, and the child has to open the directory itself. This includes read-only ones: to read from shared
descriptors would be safe, but a lock that another thread of the parent held at the fork is never released in the child.

What must always be true in a child:
- Inherited objects change no file, however the child ends: `close`, the end of a `with` block, an exception, `atexit`
  and the garbage collector only free memory and close descriptors.
- Inherited objects do not wait: the threads of the parent do not exist in the child. Their locks are replaced.
- The descriptors of lock files and sockets are closed at the fork. POSIX drops all locks of a process on a file when it
  closes any descriptor of the file. Closed later, they would drop a lock that the child itself has taken meanwhile.

An object either registers with `belongs_here`, which calls its `on_fork` in the child, or keeps the value of `here` and
compares it later: each child has another one. This costs an append next to nothing and, unlike a process id, which the
system may reuse, it is unique.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Protocol
from weakref import WeakSet

from duralog.errors import StorageError


class Process:
    """One process. A forked child gets a new one."""

    __slots__ = ("id",)

    def __init__(self) -> None:
        self.id = os.getpid()

    @property
    def refusal(self) -> str:
        """Why a forked child cannot use what this process has opened, and what to do instead."""
        return (
            f"process {self.id} opened it, and this process, {os.getpid()}, was forked from it: open the directory in"
            " this process. One process at a time may write to a directory, any number may open it with read_only=True"
        )

    def check(self, what: str) -> None:
        """Raise `StorageError` in a forked child of this process."""
        if self is not here:
            raise StorageError(f"{what}: {self.refusal}")


class Owned(Protocol):
    """An object that belongs to one process."""

    def on_fork(self) -> None:
        """Called in a forked child before anything else runs there. It must neither wait nor change a file."""


here = Process()
"""The current process."""
_owned: WeakSet[Owned] = WeakSet()
_calls: list[Callable[[], None]] = []


def belongs_here(thing: Owned) -> None:
    """Call `thing.on_fork` in a forked child if the object still exists then."""
    _owned.add(thing)


def call_in_child(work: Callable[[], None]) -> None:
    """Call a function in every forked child: for state of a module."""
    _calls.append(work)


def _on_fork() -> None:
    global here, _owned
    here = Process()
    inherited, _owned = list(_owned), WeakSet()
    failure: Exception | None = None
    for work in (*_calls, *(thing.on_fork for thing in inherited)):
        try:
            work()
        except Exception as error:  # The remaining objects must be disabled all the same.
            failure = failure or error
    if failure is not None:
        raise failure


os.register_at_fork(after_in_child=_on_fork)


class HeldLock(Protocol):
    """A lock of `threading`, or what replaces it in a child."""

    def acquire(self, blocking: bool = True, /) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None, /
    ) -> None: ...


class RefusingLock:
    """Replaces a lock in a child: entering it raises the error."""

    def __init__(self, what: str, owner: Process) -> None:
        self._what = what
        self._owner = owner

    def acquire(self, _: bool = True, /) -> bool:
        self._owner.check(self._what)
        return False

    def release(self) -> None:
        """Nothing to do: it was never acquired."""

    def __enter__(self) -> None:
        self._owner.check(self._what)

    def __exit__(self, *_: object) -> None:
        """Nothing to do: it was never entered."""
