"""How a place on the command line is told to be a broker's address, an object store's, or a path of this machine."""

from __future__ import annotations

import os
import re

from duralog.errors import DuralogError

_ADDRESS = re.compile(
    r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}(?:,(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})*"
)


def is_broker(place: str) -> bool:
    """Whether the place is an address. A directory of that name goes first."""
    return _ADDRESS.fullmatch(place) is not None and not os.path.isdir(place)


def is_url(place: str) -> bool:
    """Whether the place is an object store's, say. A directory of that name goes first."""
    return "://" in place and not os.path.isdir(place)


def check_directory(place: str) -> None:
    """Refuse a path of this machine that is no directory. What lies elsewhere is for others to look at."""
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
