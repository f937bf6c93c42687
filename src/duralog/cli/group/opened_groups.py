"""The groups that `duralog group reset` and `delete` change: of a directory, or of a running broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import WrongUsage
from duralog.cli.voice.options import HOW
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.client.groups import BrokerGroups
    from duralog.operations.groups.stored_groups import StoreGroups

_LONGEST_NAME = 32_767
"""In a key of `__consumer_offsets`."""

Evict = Annotated[
    bool,
    typer.Option("--evict", help="Remove members that have not left the group (directory only).", rich_help_panel=HOW),
]


def check_group_name(group: str) -> None:
    try:
        size = len(group.encode())
    except UnicodeEncodeError:  # The command line is not UTF-8.
        size = 0
    if not 0 < size <= _LONGEST_NAME:
        raise WrongUsage(f"--group: a group's name is a text of 1 to {_LONGEST_NAME:,} bytes")


@contextmanager
def opened_groups(place: str, *, evicts: bool, read_only: bool, quiet: bool) -> Iterator[BrokerGroups | StoreGroups]:
    if is_broker(place):
        from duralog.client.groups import BrokerGroups

        yield BrokerGroups(place)
        return
    from duralog.cli.voice.logs import say_warnings
    from duralog.cli.voice.opened_store import opened_store
    from duralog.operations.groups.stored_groups import StoreGroups

    say_warnings(wanted=not quiet)
    with opened_store(place, read_only=read_only, server_properties=None, quiet=quiet) as store:
        yield StoreGroups(place, store, evicts=evicts)
