"""Distinguishes the places on a command line: the address of a broker, a URL of an object store, a local path."""

from __future__ import annotations

import os
import re

from duralog.errors import DuralogError

_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:\d{0,5})?")
_HOST = re.compile(r"localhost|\d{1,3}(\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\]")
"""Hosts that need no port. Any other name may be a directory."""
DEFAULT_PORT = 9092


def is_broker(place: str) -> bool:
    """Whether the place is HOST:PORT[,HOST:PORT...]. A directory of that name takes precedence.

    One port is enough, or a colon; localhost and an IP address need none.
    """
    found = [_ADDRESS.fullmatch(part) for part in place.split(",")]
    is_address = any(each is not None and (each["port"] or _HOST.fullmatch(each["host"])) for each in found)
    return is_address and None not in found and not os.path.isdir(place)


def with_ports(addresses: str) -> str:
    """The addresses of brokers. One without a port has Kafka's, 9092."""
    return ",".join(
        address if address.rstrip(":").rpartition("]")[2].count(":") else f"{address.rstrip(':')}:{DEFAULT_PORT}"
        for address in addresses.split(",")
    )


def is_url(place: str) -> bool:
    """Whether the place is a URL, such as of an object store. A directory of that name takes precedence."""
    return "://" in place and not os.path.isdir(place)


def check_directory(place: str) -> None:
    """Raise if a local path is not a directory. Brokers and URLs are not checked."""
    if is_url(place) or os.path.isdir(place) or is_broker(place):
        return
    check_no_file(place)
    raise DuralogError(
        f"{place}: there is no such directory: check the path, or create one with duralog topic create {place} "
        f"--topic NAME"
    )


def directories_in(place: str) -> list[str]:
    """The directories of an argument: one, or several with commas between them, as in `log.dirs`."""
    if "," not in place or os.path.exists(place):
        return [place]
    return [each.strip() for each in place.split(",") if each.strip()]


def check_no_file(place: str) -> None:
    if os.path.exists(place) and not os.path.isdir(place):
        raise DuralogError(
            f"{place}: this is a file, not a directory: give the log directory, or the folder that the file is in"
        )
