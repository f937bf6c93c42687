"""An Iceberg table over the Parquet files that tasks wrote, committed by `pyiceberg`.

An Iceberg table lives in a catalog. The caller gives it as pyiceberg's own settings (`catalog.type`, `catalog.uri`,
...); without them, a target on a local disk has the catalog `iceberg-catalog.db` next to the tables.

A run is one commit: its files, and the state as a property of the table (`duralog.<job>`) and of the snapshot. That
property is what counts. If another program has committed in between, the catalog refuses the commit.

The files hold the column that the table is partitioned by, since that is where pyiceberg finds a file's value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, TableProperties, Transaction

from duralog.columnar.schema import OFFSET, PARTITION
from duralog.errors import DuralogError
from duralog.spark.lake.columns import DATE, name_of
from duralog.spark.lake.parquet_files import DataFile
from duralog.spark.lake.table_state import TableState
from duralog.spark.lake.tables import LakeTable, TableRefused, TableSpec, first_line
from duralog.spark.lake.targets import LakeTarget

CATALOG_FILE = "iceberg-catalog.db"
DEFAULT_NAMESPACE = "duralog"
_NAMESPACE = "namespace"
_NAME = "name"
_METRICS = "write.metadata.metrics"
_READERS = 8
"""The footer of every new file is read, which in an object store is mostly waiting."""


class IcebergTable(LakeTable):
    data_folder = "data/"
    has_partition_column = True

    def __init__(self, spec: TableSpec) -> None:
        self._catalog = _open_catalog(spec)
        self._identifier = (spec.catalog.get(_NAMESPACE, DEFAULT_NAMESPACE), spec.topic)
        self._table: Table | None = None
        super().__init__(spec)

    @property
    def _property(self) -> str:
        return f"duralog.{self.spec.job}"

    def _load(self) -> TableState | None:
        spec = self.spec
        try:
            with self._readable():
                table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            if spec.target.exists("metadata"):
                raise TableRefused(
                    f"{spec.where}: there is an Iceberg table, but the catalog has no {'.'.join(self._identifier)}"
                ) from None
            return None
        if _plain(table.location()) != _plain(self._uri):
            raise TableRefused(
                f"{spec.where}: the catalog has {'.'.join(self._identifier)} at another place, {table.location()}"
            )
        self._table = table
        text = table.properties.get(self._property)
        if text is None:
            raise TableRefused(f"{spec.where}: the Iceberg table was not written by job {spec.job}")
        state = TableState.from_json(text, f"{spec.where}: property {self._property}")
        self._check_columns(state, [field.name for field in table.schema().fields])
        return state

    @property
    def _uri(self) -> str:
        target = self.spec.target
        return f"file://{target.uri}" if target.is_local else target.uri

    def files(self) -> list[str]:
        return sorted(self._relative(file.file_path) for file in self._live_files())

    def _live_files(self) -> list[IcebergFile]:
        if self._table is None:
            return []
        with self._readable():
            return [task.file for task in self._table.scan().plan_files()]

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """For files that are damaged or missing, pyiceberg raises the errors of its decoders."""
        try:
            yield
        except (NoSuchTableError, DuralogError):
            raise
        except Exception as error:
            raise TableRefused(
                f"{self.spec.where}: it cannot be opened as an Iceberg table: {first_line(error)}"
            ) from error

    def _relative(self, path: str) -> str:
        return _plain(path).removeprefix(f"{_plain(self._uri)}/")

    def _commit(self, state: TableState, added: Sequence[DataFile], removed: Sequence[str]) -> None:
        spec = self.spec
        text = state.to_json()
        try:
            if self._table is None:
                transaction = self._create()
            else:
                # Of this process's copy only. A commit that lost against another one must be decided again:
                # its offsets may be in the table by now.
                self._table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
                transaction = self._table.transaction()
            with transaction:
                if self._table is not None and self._evolution.is_change:
                    with transaction.update_schema() as update:
                        update.union_by_name(self.schema)
                transaction.set_properties({self._property: text})
                self._exchange(transaction, text, added, removed)
        except (CommitFailedException, TableAlreadyExistsError) as error:
            raise TableRefused(f"{spec.where}: the commit was refused, run it again: {first_line(error)}") from error
        except DuralogError:
            raise
        except Exception as error:
            # Of the catalog, its database, or a manifest that cannot be read.
            raise TableRefused(
                f"{spec.where}: the commit failed: {first_line(error)}. The next run checks whether it was committed"
            ) from error
        self._table = self._catalog.load_table(self._identifier)

    def _create(self) -> Transaction:
        self._catalog.create_namespace_if_not_exists(self._identifier[0])
        transaction = self._catalog.create_table_transaction(
            self._identifier,
            schema=self.schema,
            location=self._uri,
            properties={"format-version": "2", **_metrics(self.schema)},
        )
        with transaction.update_spec() as partitioning:
            partitioning.add_identity(self.spec.partition_column)
        # Files without field ids: the columns are found by their names.
        mapping = transaction.table_metadata.schema().name_mapping.model_dump_json()
        return transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})

    def _exchange(self, transaction: Transaction, text: str, added: Sequence[DataFile], removed: Sequence[str]) -> None:
        if not added and not removed:
            return
        gone = set(removed)
        update = transaction.update_snapshot(snapshot_properties={self._property: text})
        io, metadata = transaction._table.io, transaction.table_metadata
        with update.overwrite() if gone else update.fast_append() as snapshot:
            for file in self._live_files() if gone else ():
                if self._relative(file.file_path) in gone:
                    snapshot.delete_data_file(file)
            with ThreadPoolExecutor(_READERS) as readers:
                paths = [f"{self._uri}/{new.path}" for new in added]
                for entry in readers.map(partial(parquet_file_to_data_file, io, metadata), paths):
                    snapshot.append_data_file(entry)


def _open_catalog(spec: TableSpec) -> Catalog:
    settings = {name: value for name, value in spec.catalog.items() if name not in (_NAMESPACE, _NAME)}
    if not settings:
        if not spec.target.is_local:
            raise DuralogError(
                f"{spec.where}: an Iceberg table in an object store needs a catalog: give its settings, as"
                " catalog.type=rest and catalog.uri=https://..."
            )
        folder = os.path.dirname(spec.target.uri)
        os.makedirs(folder, exist_ok=True)
        settings = {"type": "sql", "uri": f"sqlite:///{folder}/{CATALOG_FILE}", "warehouse": f"file://{folder}"}
    try:
        return load_catalog(spec.catalog.get(_NAME, "duralog"), **{**_io_settings(spec.target), **settings})
    except Exception as error:
        raise DuralogError(f"the Iceberg catalog cannot be opened: {first_line(error)}") from error


def _metrics(schema: pa.Schema) -> dict[str, str]:
    """Statistics of offsets and partitions only: of times, pyiceberg refuses those outside of the calendar."""
    counted = [name_of(schema, name) for name in (OFFSET, PARTITION, DATE)]
    return {f"{_METRICS}.default": "none", **{f"{_METRICS}.column.{name}": "full" for name in counted}}


def _io_settings(target: LakeTarget) -> Mapping[str, Any]:
    """The options of pyarrow's file systems by the names that pyiceberg has for them."""
    names = {
        "access_key": "s3.access-key-id",
        "secret_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
        "region": "s3.region",
    }
    settings = {names[name]: value for name, value in target.options.items() if name in names}
    if endpoint := target.options.get("endpoint_override"):
        scheme = target.options.get("scheme", "https")
        settings["s3.endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    return settings


def _plain(uri: str) -> str:
    """A URI of a local file as a path: catalogs give back one or the other."""
    parts = urlsplit(uri)
    return (parts.path if parts.scheme in ("", "file") else uri).rstrip("/")
