"""Where a log directory is: a local path or a URL, and how its file system is reached.

| URL                                        | file system    | path in it       |
|--------------------------------------------|----------------|------------------|
| a plain path, `file:/path`                 | the local disk | made absolute    |
| `s3://bucket/key`, also `s3a:`, `s3n:`     | S3             | `bucket/key`     |
| `gs://bucket/key`, also `gcs:`             | Google Cloud   | `bucket/key`     |
| `hdfs://host:port/path`, also `viewfs:`    | HDFS           | `/path`          |
| `abfs://container@account.../path`, `abfss:`| Azure         | `container/path` |

Keys, an endpoint, a region and the like are storage options, named as in `pyarrow.fs`; without them, the environment
counts. A `Location` is created on the driver, sent in slices, and connected where it is used; a process connects to
each place once.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from duralog.config import BrokerConfig
from duralog.errors import InvalidConfig, StorageError
from duralog.format.filenames import PartitionFolder
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.remembered_objects import ExportedObjects, RememberedObjects
from duralog.scanning.remote_files import RemoteFileSystem
from duralog.storage.disk.file_system import FileSystem, LocalFileSystem
from duralog.storage.store import Store

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/]*))?(/.*)?")


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


Parse = Callable[[str], object]

_S3: Mapping[str, Parse] = {
    "access_key": str,
    "secret_key": str,
    "session_token": str,
    "anonymous": _flag,
    "role_arn": str,
    "session_name": str,
    "external_id": str,
    "load_frequency": int,
    "region": str,
    "request_timeout": float,
    "connect_timeout": float,
    "scheme": str,
    "endpoint_override": str,
    "proxy_options": str,
    "force_virtual_addressing": _flag,
    "tls_ca_file_path": str,
}
_GCS: Mapping[str, Parse] = {
    "anonymous": _flag,
    "access_token": str,
    "target_service_account": str,
    "scheme": str,
    "endpoint_override": str,
    "project_id": str,
}
_HDFS: Mapping[str, Parse] = {"user": str, "buffer_size": int, "kerb_ticket": str}
_AZURE: Mapping[str, Parse] = {
    "account_name": str,
    "account_key": str,
    "sas_token": str,
    "tenant_id": str,
    "client_id": str,
    "client_secret": str,
    "blob_storage_authority": str,
    "blob_storage_scheme": str,
    "dfs_storage_authority": str,
    "dfs_storage_scheme": str,
}

_FAMILIES: Mapping[str, tuple[str, Mapping[str, Parse]]] = {
    "file": ("file", {}),
    **dict.fromkeys(("s3", "s3a", "s3n"), ("s3", _S3)),
    **dict.fromkeys(("gs", "gcs"), ("gs", _GCS)),
    **dict.fromkeys(("hdfs", "viewfs"), ("hdfs", _HDFS)),
    **dict.fromkeys(("abfs", "abfss"), ("abfs", _AZURE)),
}

_OBJECT_STORES = ("s3", "gs", "abfs")
"""Of these families. They charge for requests, and their objects do not grow."""

STORAGE_OPTIONS: Mapping[str, tuple[str, ...]] = {scheme: tuple(options) for scheme, (_, options) in _FAMILIES.items()}
"""The names of the storage options that each scheme takes."""


@dataclass(frozen=True, slots=True)
class Location:
    """A log directory and its storage options. REQUIRES: made by `Location.of`."""

    url: str
    """A local one is an absolute path: the process that reads it may run in another directory."""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """May hold secrets, so it is not shown."""

    @classmethod
    def of(cls, path: str, storage_options: Mapping[str, str] | None = None) -> Location:
        """A location from user input, validated."""
        options = tuple(sorted((storage_options or {}).items()))
        scheme, authority, inner = _split(path)
        if scheme == "file":
            if not inner:
                raise InvalidConfig(f"path: {path!r} names no directory")
            location = cls(os.path.abspath(inner), options)
        else:
            location = cls(f"{scheme}://{authority}{inner.rstrip('/')}", options)
        location.address()
        return location

    @property
    def is_remote(self) -> bool:
        return is_url(self.url)

    def address(self) -> FileSystemAddress:
        """The URL taken apart; nothing is connected."""
        scheme, authority, inner = _split(self.url)
        family, allowed = _FAMILIES[scheme]
        arguments: dict[str, object] = {}
        for name, text in self.options:
            if name not in allowed:
                known = ", ".join(sorted(STORAGE_OPTIONS[scheme])) or "none"
                raise InvalidConfig(f"fs.{name}: no such storage option for {scheme}: there are {known}")
            try:
                arguments[name] = allowed[name](text)
            except ValueError:
                raise InvalidConfig(f"fs.{name}: {text!r} is not allowed") from None
        if family == "file":
            return FileSystemAddress(family, inner, "", ())
        if family == "hdfs":
            host, _, port = authority.partition(":")
            if port and not port.isdecimal():
                raise InvalidConfig(f"path: {self.url!r}: {port!r} is not a port")
            # Without a host, or with viewfs, it comes from Hadoop's own configuration.
            arguments["host"] = f"viewfs://{host}" if scheme == "viewfs" else host or "default"
            arguments["port"] = int(port or 0)
            return FileSystemAddress(family, inner or "/", f"{scheme}://{authority}", tuple(sorted(arguments.items())))
        container, account = authority, ""
        if family == "abfs" and "@" in authority:
            container, _, account = authority.partition("@")
            arguments.setdefault("account_name", account.partition(".")[0])
        if not container:
            raise InvalidConfig(f"path: {self.url!r} names no bucket")
        if family == "abfs" and "account_name" not in arguments:
            raise InvalidConfig(
                f"path: {self.url!r} names no account: write abfs://container@account..., or set fs.account_name"
            )
        return FileSystemAddress(family, f"{container}{inner}", f"{scheme}://", tuple(sorted(arguments.items())))

    def connect(self) -> tuple[FileSystem, str]:
        """The file system, and the directory's path in it. Each open file has the size that it has now."""
        address = self.address()
        if address.family == "file":
            return LocalFileSystem(), address.path
        return RemoteFileSystem(_connected(address.family, address.arguments), address.prefix), address.path

    def open_store(self, config: BrokerConfig | None = None, *, only_to_plan: bool = False) -> Store:
        """The directory, for reading. `config` is what the broker's `server.properties` sets.

        `only_to_plan` is for slices whose tasks find out that a folder belongs to another topic (`planned_parts`). On
        an object store, the ids of the folders are then not read.
        """
        address = self.address()
        if address.family not in _OBJECT_STORES:
            files, path = self.connect()
            return LocatedStore(self, path, files, config)
        below, remembered = (
            _connected(address.family, address.arguments),
            _remembered(address.family, address.arguments),
        )
        objects = RemoteFileSystem(below, address.prefix, remembered)
        objects.list_as_before(address.path)
        store = LocatedStore(self, address.path, objects, config)
        if only_to_plan:
            store.trust_folders()
        return store

    def remembered_objects(self) -> ExportedObjects | None:
        """The objects that this process has read to open the directory; None if it is not on an object store."""
        address = self.address()
        if address.family not in _OBJECT_STORES:
            return None
        return _remembered(address.family, address.arguments).export(posixpath.normpath(address.path))

    def remember(self, objects: ExportedObjects | None) -> None:
        """Use objects that another process has read."""
        if objects is not None:
            address = self.address()
            _remembered(address.family, address.arguments).take(objects)


@dataclass(frozen=True, slots=True)
class FileSystemAddress:
    family: str
    path: str
    """In the file system."""
    prefix: str
    """Before a path, it makes a URL."""
    arguments: tuple[tuple[str, Any], ...] = field(repr=False)


class LocatedStore(Store):
    """A store that knows how other processes open the same directory."""

    _warns_of_absent = False  # Each task opens its own, and those of a cluster are one directory of many.

    def __init__(self, location: Location, path: str, files: FileSystem, config: BrokerConfig | None = None) -> None:
        self.location = location
        self._located_files = files
        super().__init__(path, config=config, read_only=True, file_system=files)

    def trust_folders(self) -> None:
        """Take every folder for one of the topic that it is named after."""
        self._opened.loader.checks_folders = False

    def list_ahead(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepare for reading these partitions: on an object store, list their folders with few requests."""
        if isinstance(self._located_files, RemoteFileSystem):
            folders = [f"{self.path}/{PartitionFolder(*partition).name}" for partition in partitions]
            self._located_files.list_ahead(self.path, folders)


def open_store(
    path: str, storage_options: Mapping[str, str] | None = None, config: BrokerConfig | None = None
) -> Store:
    """The log directory at a path or URL, for reading. `config` is what the broker's `server.properties` sets."""
    return Location.of(path, storage_options).open_store(config)


def arrow_file_system(path: str, storage_options: Mapping[str, str] | None = None) -> tuple[pafs.FileSystem, str]:
    """For writing to a path or URL: pyarrow's file system, and the path in it."""
    address = Location.of(path, storage_options).address()
    if address.family == "file":
        return pafs.LocalFileSystem(), address.path
    return _connected(address.family, address.arguments), address.path


def location_of(store: Store) -> Location:
    """How other processes open the directory of this store."""
    if len(store.paths) > 1:
        raise StorageError(
            f"{', '.join(store.paths)}: a store of several directories is read by its own methods: to scan or count"
            " them, give the list of directories instead of the store"
        )
    return store.location if isinstance(store, LocatedStore) else Location.of(store.path)


def is_url(path: str) -> bool:
    """Whether this is a URL of a file system that is not the local disk."""
    return _split(path)[0] != "file"


def is_same_file_system(path: str, other: str) -> bool:
    """Whether the storage options of the one are those of the other, too."""
    return _FAMILIES[_split(path)[0]] == _FAMILIES[_split(other)[0]]


def _split(path: str) -> tuple[str, str, str]:
    """Scheme, authority and path."""
    match = _URL.fullmatch(path)
    if match is None or (match[2] is None and match[1].lower() != "file"):
        return "file", "", path
    scheme, authority, inner = match[1].lower(), match[2] or "", match[3] or ""
    if scheme not in _FAMILIES:
        raise InvalidConfig(f"path: {path!r}: no such file system: there are {', '.join(_FAMILIES)}")
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise InvalidConfig(f"path: {path!r}: a file on another host, {authority}, cannot be reached")
        inner = unquote(inner)
    return scheme, authority, inner


@lru_cache(maxsize=8)
def _connected(family: str, arguments: tuple[tuple[str, Any], ...]) -> pafs.FileSystem:
    kinds = {
        "s3": "S3FileSystem",
        "gs": "GcsFileSystem",
        "hdfs": "HadoopFileSystem",
        "abfs": "AzureFileSystem",
    }
    try:
        # By name: if a build of pyarrow lacks one, the error is raised here.
        return getattr(pafs, kinds[family])(**dict(arguments))
    except (ImportError, OSError, pa.ArrowException, ValueError) as error:
        raise StorageError(f"{family}: cannot connect: {error}") from error


@lru_cache(maxsize=8)
def _remembered(family: str, arguments: tuple[tuple[str, Any], ...]) -> RememberedObjects:
    """Of the connection that `_connected` returns."""
    del family, arguments
    return RememberedObjects()
