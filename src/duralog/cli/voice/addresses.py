"""Tells apart the places of a command line: the address of a broker, a URL of an object store, a local path."""

from __future__ import annotations

import os
import re

from duralog.errors import DuralogError

_ADDRESS = re.compile(
    r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}(?:,(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})*"
)


def is_broker(place: str) -> bool:
    """Whether the place is HOST:PORT[,HOST:PORT...]. A directory of that name takes precedence."""
    return _ADDRESS.fullmatch(place) is not None and not os.path.isdir(place)


def is_url(place: str) -> bool:
    """Whether the place is a URL, such as of an object store. A directory of that name takes precedence."""
    return "://" in place and not os.path.isdir(place)


def check_directory(place: str) -> None:
    """Raise if a local path is not a directory. Brokers and URLs are not checked."""
    if is_url(place) or os.path.isdir(place) or is_broker(place):
        return
    check_no_file(place)
    raise DuralogError(
        f"{place}: there is no such directory: check the path, or make one with"
        f" duralog topic create {place} --topic NAME"
    )


def check_no_file(place: str) -> None:
    if os.path.exists(place) and not os.path.isdir(place):
        raise DuralogError(
            f"{place}: this is a file, not a directory: give the log directory, or the folder that the file is in"
        )
