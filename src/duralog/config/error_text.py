"""An error as a message for people: what happened, where and, if known, what to do next."""

from __future__ import annotations

import errno
import os

from duralog.errors import DuralogError, StorageError

_ADVICE = {
    errno.ENOENT: "check the path",
    errno.EACCES: "run it as the user who owns the files, usually the broker's",
    errno.EPERM: "run it as the user who owns the files, usually the broker's",
    errno.EROFS: "the file system is mounted read-only: copy the directory, or mount it for writing",
    errno.ENOTDIR: "give a directory, not a file",
    errno.EISDIR: "give a file, not a directory",
    errno.ENOSPC: "the disk is full: free some space or write elsewhere",
    errno.EADDRINUSE: "another process listens there: stop it, or give another port, such as --listen 127.0.0.1:0 for a"
    " free one",
    errno.EMFILE: "too many files are open: raise the limit with ulimit -n",
}
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EMFILE)
"""Errors of the disk or the process, not of one file: the advice holds for any operation of a store."""


def describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{printable(os.fsdecode(error.filename))}: " if error.filename else ""
        return f"{where}{error.strerror}{_advice(error)}"
    if isinstance(error, StorageError):
        cause: BaseException | None = error
        while isinstance(cause, StorageError):
            cause = cause.__cause__
        if isinstance(cause, OSError) and cause.errno in _REFUSALS:
            return f"{error}{_advice(cause)}"
    return str(error)


def describe_any(error: Exception) -> str:
    """The same for unexpected errors, with their type."""
    return describe(error) if isinstance(error, DuralogError | OSError) else repr(error)


def printable(text: str) -> str:
    """A name from a disk, without characters that could move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _advice(error: OSError) -> str:
    advice = _ADVICE.get(error.errno or 0)
    return f" ({advice})" if advice else ""
