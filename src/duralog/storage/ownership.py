"""Which node of which cluster owns the directories of a store, by their `meta.properties`.

All directories of a store belong to one node of one cluster, and each has an id of its own: the cluster metadata names
the directory of a partition by it. As in Kafka, a new directory next to others is given to their owner, and directories
of different owners are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from duralog.errors import InvalidConfig, StorageError
from duralog.format.properties import MetaProperties
from duralog.storage.disk.background import Clock
from duralog.storage.disk.log_directories import LogDirectories
from duralog.storage.disk.log_directory import LogDirectory

NO_META = MetaProperties(version=0, cluster_id=None, node_id=None, directory_id=None)


def read_owner(directories: LogDirectories) -> MetaProperties | None:
    """The owner of the directories, with the directory id of the metadata log's; None if they have none."""
    for directory in directories.owned:
        if directory.failure is None:
            try:
                directory.read_meta()
            except StorageError as error:
                directories.set_aside(directory, error)
    owned = [directory for directory in directories.owned if directory.meta is not None]
    _check_alike(owned, "cluster.id", lambda meta: meta.cluster_id)
    _check_alike(owned, "node.id", lambda meta: meta.node_id)
    _check_distinct_ids(owned)
    known = directories.metadata.meta or next((directory.meta for directory in owned), None)
    return None if known is None else replace(known, directory_id=directories.metadata.directory_id)


def take_over(directories: LogDirectories, node_id: int | None, clock: Clock) -> tuple[MetaProperties, bool]:
    """The owner of locked directories: those without one are given to that of the others, or to a new cluster.

    Returns whether it is a new cluster. `node_id` is the node that opens them, if that is known.
    """
    owner = read_owner(directories)
    is_new = owner is None
    if owner is not None and node_id not in (None, owner.node_id):
        raise InvalidConfig(f"node.id: {node_id} is not allowed, {directories.path} belongs to node {owner.node_id}")
    metadata = directories.metadata
    if owner is not None and metadata.meta is None and not directories.has_metadata_log:
        owned = next(directory.path for directory in directories.owned if directory.meta is not None)
        raise InvalidConfig(
            f"log.dirs: {metadata.path} has no metadata log, and {owned} belongs to node {owner.node_id} already: mount"
            " the disk that has the metadata log, or set metadata.log.dir to a directory of the node"
        )
    for directory in directories.owned:
        if directory.failure is not None:
            continue
        found = directory.meta
        # Of one directory, a `meta.properties` without an id is left as it is: nothing has to be distinguished.
        if found is None or (found.directory_id is None and directories.are_several):
            written = directory.write_meta(
                None if owner is None else owner.cluster_id, node_id if owner is None else owner.node_id, clock()
            )
            owner = owner or written
    assert owner is not None
    return replace(owner, directory_id=directories.metadata.directory_id), is_new


def _check_alike(owned: list[LogDirectory], name: str, value_of: Callable[[MetaProperties], Hashable]) -> None:
    known: LogDirectory | None = None
    for directory in owned:
        assert directory.meta is not None
        value = value_of(directory.meta)
        if value is None:
            continue
        if known is None:
            known = directory
            continue
        assert known.meta is not None
        other = value_of(known.meta)
        if other != value:
            raise InvalidConfig(
                f"log.dirs: {known.path} and {directory.path} belong to different owners: {name} is {other} and"
                f" {value}: open only directories of one node"
            )


def _check_distinct_ids(owned: list[LogDirectory]) -> None:
    known: dict[str, LogDirectory] = {}
    for directory in owned:
        directory_id = directory.directory_id
        if directory_id is not None and known.setdefault(directory_id, directory) is not directory:
            raise InvalidConfig(
                f"log.dirs: {known[directory_id].path} and {directory.path} have the same directory.id {directory_id}:"
                " one is a copy of the other: give only one of them"
            )
