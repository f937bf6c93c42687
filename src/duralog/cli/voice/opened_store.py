"""The store that a command works on (`duralog.operations.opened_store`): checked, and with a bar for its recovery."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duralog.cli.server_properties import read_server_properties
from duralog.cli.voice.progress import ProgressBar
from duralog.config import BrokerConfig
from duralog.errors import DuralogError, StoreLocked
from duralog.operations.addresses import check_directory, check_no_file, directories_in
from duralog.operations.opened_store import check_log_directory, is_log_directory, opened_for_writing
from duralog.storage.disk.found_files import directory_of
from duralog.storage.disk.log_directories import log_directories
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
    """`path` is a directory, or several with commas between them. With `create`, a missing one is made.

    `load_on_use` is for a command that writes to a few partitions.
    """
    config = broker_config(server_properties)
    paths = log_directories(directories_in(path), config.log_dirs)
    for each in paths:
        check_no_partition(each)
        if create:
            check_no_file(each)
        elif len(paths) == 1 or each in directories_in(path):
            check_directory(each)
    if not (create or read_only or any(is_log_directory(each) for each in paths)):
        check_log_directory(paths[0])
    if read_only:
        with Store(paths, config=config, read_only=True) as store:
            yield store
        return
    with (
        _broker_suggested(),
        ProgressBar(wanted=not quiet) as bar,
        opened_for_writing(paths, config, on_progress=bar.show, load_on_use=load_on_use) as store,
    ):
        bar.hide()
        yield store


@contextmanager
def _broker_suggested() -> Iterator[None]:
    """All commands that open a directory so take a broker, too: the error says so if another process has it open."""
    try:
        yield
    except StoreLocked as error:
        raise StoreLocked(f"{error}. To do this through the running broker, give its HOST:PORT") from None


def check_no_partition(path: str) -> None:
    """For a command that works on a whole directory."""
    _, partition = directory_of(path)
    if partition is not None:
        raise DuralogError(f"{path}: this is one partition: give the log directory that it is in, and --topic")


def broker_config(server_properties: str | None) -> BrokerConfig:
    if server_properties is None:
        return BrokerConfig()
    return BrokerConfig.from_properties(read_server_properties(server_properties))
