"""Object stores and HDFS as a file system of the store, for reading, over `pyarrow.fs`.

A request to such a store costs milliseconds and money, large or small. So sizes and times of files come from the last
listing of their folder, small reads of a file fetch a window around them, and a file that is read from end to end is
read through `ReadAhead`, which fetches large blocks before they are needed (`remote_file`).

A store that is opened on an object store saves more (`RememberedObjects`). All folders are listed by one request for a
thousand objects, if that takes fewer requests. A file is opened when the first bytes of it are fetched; bytes of
unchanged objects are not fetched again. A file whose size is not that of the listing was replaced: `StorageError`.

What must always be true:
- Nothing is ever written: every operation that would change something raises `StorageError`.
- An error of the object store raises `StorageError` with the URL, the operation and the reason.
- A broken response never counts as a smaller file or an empty folder (see below).
- Memory is bounded: one window for each open file, and a few blocks for each `ReadAhead`.

A listed file may have been deleted or replaced since. Opening it, or the first read, detects that, and the caller loads
the log again (`storage.recovery`). For that, `list` returns a prefetched listing once, and then lists again.

If a connection ends inside the headers of a response, pyarrow's S3 client reports success, with the headers so far. The
client retries every other broken response. This module handles the rest:

| request | what pyarrow returns | how it is detected |
|---|---|---|
| HEAD | size 0 | the size is compared with the listing; without one, 0 is not trusted |
| GET | as many bytes as requested, the rest of them never written | a mark in the last byte is still there |
| LIST, first page | no such folder; of a bucket, no entries | the folder is listed again |
| LIST, a later page | the entries of the pages before | large folders are listed until two listings agree |

Each request is retried a few times; then it is an error with the URL.
"""

# ruff: noqa: ARG002 (refused methods have the arguments of the protocol)

from __future__ import annotations

import errno
import posixpath
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow.fs as pafs

from duralog.errors import StorageError
from duralog.format.filenames import parse_partition_folder
from duralog.format.varint import Bytes
from duralog.scanning.remembered_objects import ObjectIdentity, RememberedObjects, Tree
from duralog.scanning.remote_file import ListedFile, RemoteFile, refused, remote_refusals
from duralog.scanning.remote_work import side_by_side
from duralog.storage.disk.file_system import Entry, Lock, MappedFile, check_small

LISTED_AT_ONCE = 1000
"""The most entries in one response of an object store; a folder with more takes several requests."""

_ATTEMPTS = 3
"""For a listing or a size that cannot be right."""

_FILES_IN_A_FOLDER = 16
"""Of a directory that was not listed as a whole yet: a few segments and the files of the partition."""
_OTHER_LISTINGS = 2
"""The directory itself and the folder of the metadata."""


class RemoteFileSystem:
    """`below`, whose paths are `bucket/key` or the like; `prefix` makes URLs of them, for errors.

    With `remembered`, `below` must be an object store: nothing is appended to a file of it.
    """

    def __init__(self, below: pafs.FileSystem, prefix: str, remembered: RememberedObjects | None = None) -> None:
        self._below = below
        self._prefix = prefix
        self._remembered = remembered
        self._listings: dict[str, dict[str, Entry]] = {}
        self._ahead: set[str] = set()
        """The folders of listings that `list` has not returned yet."""

    def url(self, path: str) -> str:
        return f"{self._prefix}{path}"

    def open(self, path: str, *, writable: bool = False, create: bool = False) -> RemoteFile:
        if writable or create:
            raise self._refused("open for writing", path)
        listed = self._listed(path)
        if self._remembered is not None and listed is not None and not listed.is_folder:
            identity = ObjectIdentity(path, listed.size, listed.modified_ms)
            open_file = partial(self._open_as_listed, path, listed)
            return ListedFile(self.url(path), identity, open_file, self._remembered)
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.list(posixpath.dirname(path))
            file, size = self._open_below(path)
            listed = self._listed(path)
            # It may have grown since it was listed.
            if size >= listed.size if listed is not None else size > 0:
                return RemoteFile(self.url(path), file, size)
            file.close()
        raise self._other_size(path, size, listed)

    def _open_as_listed(self, path: str, listed: Entry) -> Any:
        """Called when the first bytes of a file are fetched, which may be long after its folder was listed."""
        for _ in range(_ATTEMPTS):
            file, size = self._open_below(path)
            if size == listed.size:
                return file
            file.close()
        raise self._other_size(path, size, listed)

    def _open_below(self, path: str) -> tuple[Any, int]:
        with remote_refusals("open", self.url(path)):
            file = self._below.open_input_file(path)
            return file, file.size()

    def _other_size(self, path: str, size: int, listed: Entry | None) -> StorageError:
        expected = "does not have it" if listed is None else f"has it with {listed.size} bytes"
        return StorageError(
            f"{self.url(path)}: cannot open: the object store says that it has {size} bytes, but the listing of its"
            f" folder {expected}: if it was replaced since, open the directory again"
        )

    def read_all(self, path: str) -> bytes:
        if self._remembered is not None and self._listed(path) is not None:
            with suppress(StorageError):
                return self._read_all(path)
            # It may have been replaced since it was listed.
            self.list(posixpath.dirname(path))
        return self._read_all(path)

    def _read_all(self, path: str) -> bytes:
        file = self.open(path)
        try:
            check_small(file.name, file.size)
            return file.read(0, file.size)
        finally:
            file.close()

    # Listings

    def list(self, folder: str) -> list[Entry]:
        path = posixpath.normpath(folder)
        if path in self._ahead:
            self._ahead.discard(path)
        else:
            self._listings[path] = self._list_whole(folder)
        return [*self._listings[path].values()]

    def list_names(self, folder: str) -> set[str]:
        if self._remembered is None:
            return {entry.name for entry in self.list(folder)}
        # One response of an object store is of one moment: unlike that of a disk, it need not be compared with another.
        path = posixpath.normpath(folder)
        if path not in self._listings:
            self._listings[path] = self._list_whole(folder)
            self._ahead.add(path)
        return set(self._listings[path])

    def list_ahead(self, directory: str, folders: Sequence[str]) -> None:
        """Fetch the listings of these folders, which are in the directory, by as few requests as possible.

        The directory may hold folders of another use with millions of objects: then it is not listed as a whole.
        """
        if self._remembered is None:
            return
        trees, directory = self._remembered.trees, posixpath.normpath(directory)
        listing = self._listings.get(directory, {})
        tree = trees.pop(directory, None) or Tree(len(listing) * _FILES_IN_A_FOLDER, 0)
        wanted = [path for folder in folders if (path := posixpath.normpath(folder)) not in self._listings]
        if all(parse_partition_folder(entry.name) for entry in listing.values() if entry.is_folder):
            trees[directory] = tree = tree._replace(folders=len(folders))
            if len(wanted) > 1 and _is_tree_cheaper(tree):
                self._list_tree(directory)
                return
        for path, found in zip(wanted, side_by_side(self._list_whole, wanted, is_remote=True), strict=True):
            self._listings[path] = found
            self._ahead.add(path)

    def list_as_before(self, directory: str) -> None:
        """List the directory and its folders at once, if the stores that were opened before needed many of them."""
        tree = None if self._remembered is None else self._remembered.trees.get(posixpath.normpath(directory))
        if tree is not None and _is_tree_cheaper(tree):
            self._list_tree(posixpath.normpath(directory))

    def _list_tree(self, directory: str) -> None:
        assert self._remembered is not None
        before = self._remembered.trees.get(directory, Tree(0, 0))
        found = self._list_whole(directory, is_tree=True, names_before=before.names)
        listings: dict[str, dict[str, Entry]] = {directory: {}}
        for path, entry in found.items():
            folder, name = posixpath.split(path)
            listings.setdefault(folder, {})[name] = entry
            if entry.is_folder:
                listings.setdefault(path, {})
        self._listings, self._ahead = listings, set(listings)
        self._remembered.trees[directory] = before._replace(keys=len(found), names=hash(frozenset(found)))

    def _list_whole(self, folder: str, *, is_tree: bool = False, names_before: int = 0) -> dict[str, Entry]:
        """By name; of a tree, by path."""
        found = self._list_some(folder, is_tree=is_tree)
        # An object with the name of the folder itself is in the response, but not in what pyarrow returns.
        if len(found) + 1 < LISTED_AT_ONCE or names_before == hash(frozenset(found)):
            return found
        for _ in range(_ATTEMPTS):
            before, found = found, self._list_some(folder, is_tree=is_tree)
            if found.keys() == before.keys():
                return found
        raise StorageError(f"{self.url(folder)}: cannot list: {_ATTEMPTS + 1} listings in a row differ")

    def _list_some(self, folder: str, *, is_tree: bool) -> dict[str, Entry]:
        with remote_refusals("list", self.url(folder)):
            for _ in range(_ATTEMPTS - 1):
                with suppress(FileNotFoundError):
                    return self._list_once(folder, is_tree=is_tree)
            return self._list_once(folder, is_tree=is_tree)

    def _list_once(self, folder: str, *, is_tree: bool) -> dict[str, Entry]:
        found = self._below.get_file_info(pafs.FileSelector(folder, recursive=is_tree))
        # Of a bucket without objects, pyarrow returns an empty list and no error.
        if not found and "/" not in folder:
            raise FileNotFoundError(errno.ENOENT, "the bucket is empty")
        entries = {info.path if is_tree else info.base_name: _entry(info) for info in found}
        if self._remembered is not None:
            self._remembered.see(max((entry.modified_ms for entry in entries.values()), default=0))
        return entries

    def entry(self, path: str) -> Entry | None:
        folder, name = posixpath.split(posixpath.normpath(path))
        if folder not in self._listings:
            with remote_refusals("stat", self.url(path)):
                info = self._below.get_file_info(path)
            if info.type == pafs.FileType.NotFound:
                return None
            if info.type != pafs.FileType.File or info.size:
                return _entry(info)
            self.list(folder)
        return self._listings[folder].get(name)

    def _listed(self, path: str) -> Entry | None:
        folder, name = posixpath.split(posixpath.normpath(path))
        return self._listings.get(folder, {}).get(name)

    def exists(self, path: str) -> bool:
        return self.entry(path) is not None

    def write(self, path: str, data: Bytes, *, sync: bool) -> None:
        raise self._refused("write", path)

    def replace(self, path: str, data: Bytes) -> None:
        raise self._refused("replace", path)

    def rename(self, source: str, target: str) -> None:
        raise self._refused("rename", source)

    def remove(self, path: str) -> None:
        raise self._refused("remove", path)

    def make_folder(self, path: str) -> None:
        raise self._refused("make the folder", path)

    def remove_folder(self, path: str) -> None:
        raise self._refused("remove the folder", path)

    def sync_folder(self, path: str) -> None:
        raise self._refused("sync the folder", path)

    def map(self, path: str, size: int) -> MappedFile:
        raise self._refused("map", path)

    def truncate(self, path: str, size: int) -> None:
        raise self._refused("truncate", path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        raise self._refused("set the time of", path)

    def lock(self, path: str) -> Lock:
        raise self._refused("lock", path)

    def _refused(self, operation: str, path: str) -> StorageError:
        return refused(operation, self.url(path))


def _is_tree_cheaper(tree: Tree) -> bool:
    return tree.keys // LISTED_AT_ONCE < tree.folders + _OTHER_LISTINGS


def _entry(info: pafs.FileInfo) -> Entry:
    modified_ms = 0 if info.mtime_ns is None else info.mtime_ns // 1_000_000
    return Entry(info.base_name, info.size or 0, modified_ms, info.type == pafs.FileType.Directory)
