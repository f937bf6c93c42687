"""The store that a command works on (`duralog.operations.opened_store`): checked, and with a bar for its recovery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duralog.cli.server_properties import read_server_properties
from duralog.cli.voice.addresses import check_directory, check_no_file
from duralog.cli.voice.progress import ProgressBar
from duralog.config import BrokerConfig
from duralog.errors import DuralogError
from duralog.operations.opened_store import check_log_directory, opened_for_writing
from duralog.storage.disk.found_files import directory_of
from duralog.storage.store import Store


@contextmanager
def opened_store(
    path: str,
    *,
    read_only: bool,
    server_properties: str | None,
    create: bool = False,
    quiet: bool = False,
    load_on_use: bool = False,
) -> Iterator[Store]:
    """With `create`, a missing directory is made. `load_on_use` is for a command that writes to a few partitions."""
    check_no_partition(path)
    if create:
        check_no_file(path)
    else:
        check_directory(path)
        if not read_only:
            check_log_directory(path)
    config = broker_config(server_properties)
    if read_only:
        with Store(path, config=config, read_only=True) as store:
            yield store
        return
    with (
        ProgressBar(wanted=not quiet) as bar,
        opened_for_writing(path, config, on_progress=bar.show, load_on_use=load_on_use) as store,
    ):
        bar.hide()
        yield store


def check_no_partition(path: str) -> None:
    """For a command that works on a whole directory."""
    _, partition = directory_of(path)
    if partition is not None:
        raise DuralogError(f"{path}: this is one partition: give the log directory that it is in, and --topic")


def broker_config(server_properties: str | None) -> BrokerConfig:
    if server_properties is None:
        return BrokerConfig()
    return BrokerConfig.from_properties(read_server_properties(server_properties))
