"""A table of one topic, in any format: what is in it, and how a run commits its files.

The three kinds behave alike. `state` is what was committed last; `commit` takes the files of a run in and others out,
with the state that holds from then on, all or nothing where the format allows it:

- Delta and Iceberg: one commit of the table. Readers see all of a run or nothing of it.
- Plain Parquet has no commit. Files appear one by one while tasks write them, and a run counts when the state file says
  so. What a run that died has left is removed before the next one begins. A table that is replaced by each run is
  written to a new folder every time, so that readers of the previous one are not disturbed.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from duralog.errors import DuralogError
from duralog.scanning.locations import Location
from duralog.spark.lake.columns import without
from duralog.spark.lake.evolution import Evolution, SchemaConflict
from duralog.spark.lake.parquet_files import EXTENSION, DataFile
from duralog.spark.lake.stored_schema import stored_schema
from duralog.spark.lake.table_state import TableState, read_state, write_state
from duralog.spark.lake.targets import LakeTarget

_CATALOG = "catalog."


class TableRefused(DuralogError):
    """The target is something else than the table to write."""


def check_apart(target: LakeTarget, directories: Iterable[Location]) -> None:
    """Refuse a table within a log directory: Kafka does not start on one that has a folder it does not know."""
    for directory in directories:
        table, logs = (url if "://" in url else os.path.realpath(url) for url in (target.location, directory.url))
        if f"{table.rstrip('/')}/".startswith(f"{logs.rstrip('/')}/"):
            raise TableRefused(
                f"{target.location}: the table would lie in the log directory {directory.url}: give a target outside of"
                " it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a table is to be."""

    job: str
    topic: str
    target: LakeTarget
    """The table's own folder."""
    schema: pa.Schema
    """Of a table of records as they are: all columns, the one it is partitioned by included."""
    partition_column: str
    catalog: Mapping[str, str] = field(default_factory=dict)
    """For Iceberg: pyiceberg's own settings."""
    is_replaced: bool = False
    """Whether a run changes what the table holds, and does not only add to it."""

    @property
    def state_name(self) -> str:
        return f"_duralog_{self.job}.json"

    @property
    def where(self) -> str:
        return self.target.location


class LakeTable(ABC):
    """One table, for the one run that writes to it."""

    data_folder = ""
    """Where in the table's folder data files go; it ends with a slash, unless it is empty."""
    has_partition_column = False
    """Whether the files themselves hold the column that the table is partitioned by."""
    _why_not_wider: str | None = None
    """Why the files of before cannot be read with a wider type, if so."""
    has_commits = True
    """Whether only files count that were committed. Otherwise all do that lie in the folder."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.state = self._load()
        self.schema = self._stored_schema(self.state)
        """Of all columns, the one it is partitioned by included: those that the next commit writes."""
        self._evolution = Evolution(self.schema)

    @abstractmethod
    def _load(self) -> TableState | None:
        """What was committed last. Refuses anything else than such a table."""

    @abstractmethod
    def files(self) -> list[str]:
        """The data files of the table as it was committed last, relative to its folder."""

    @abstractmethod
    def _commit(self, state: TableState, added: Sequence[DataFile], removed: Sequence[str]) -> None: ...

    @property
    def path(self) -> str:
        """What a reader opens."""
        return self.spec.target.location

    @property
    def file_schema(self) -> pa.Schema:
        """Of the columns that the files themselves hold."""
        return self.schema if self.has_partition_column else without(self.schema, self.spec.partition_column)

    def _stored_schema(self, state: TableState | None) -> pa.Schema:
        found = stored_schema(state, self.spec.where)
        return self.spec.schema if found is None else found

    def _check_columns(self, state: TableState | None, found: Sequence[str]) -> None:
        """A table that others have made, or changed, must have the columns that were written to it."""
        expected = self._stored_schema(state).names
        # A run may have died after it had added columns, and before it had written to them.
        is_typed = stored_schema(state, self.spec.where) is not None
        if list(found) != expected and not (is_typed and set(expected) <= set(found)):
            raise TableRefused(
                f"{self.spec.where}: the table has other columns: expected {', '.join(expected)}, found"
                f" {', '.join(found)}"
            )

    def evolve(self, evolution: Evolution, *, is_rewritten: bool) -> None:
        """Write these columns from now on. `is_rewritten` says whether no file of before stays.

        Raises `SchemaConflict`, with nothing changed, where the format does not have such a change.
        """
        if evolution.widened and not is_rewritten and self._why_not_wider is not None:
            raise SchemaConflict(
                f"{self.spec.where}: column {evolution.widened[0]}: {self._why_not_wider}. The table stays as it was;"
                " give another target, or write it as Iceberg, which has wider types"
            )
        self.schema = evolution.schema
        self._evolution = evolution

    def begin(self, state: TableState) -> None:
        """Before the first file of the first run is written. `state` is one in which nothing is in the table.

        From here on it is known that the files in the folder are ours. Without it, a state file that went missing would
        look like a first run that died, and the only copy of old records would be taken for its leftovers.
        """
        spec = self.spec
        if self.state is not None:
            return
        found = self._state_file()
        if found is None and (strangers := [file.path for file in spec.target.files() if _is_data(file.path)]):
            raise TableRefused(
                f"{spec.where}: expected an empty folder, or a table that job {spec.job} wrote, found {strangers[0]}"
                f" and no {spec.state_name}"
            )
        if found is not None and found.run > 0:
            raise TableRefused(
                f"{spec.where}: {spec.state_name} is that of a table of format {found.table_format}, which is not there"
            )
        write_state(spec.target, spec.state_name, state)

    def commit(self, state: TableState, added: Sequence[DataFile], removed: Sequence[str] = ()) -> None:
        """Take files in and out. `state` holds from then on."""
        self._commit(state, added, removed)
        write_state(self.spec.target, self.spec.state_name, state)
        self.state = state
        self._evolution = Evolution(self.schema)
        self._clean_up()

    def _clean_up(self) -> None:
        """Remove files that no reader needs any more. Delta and Iceberg have commands for that."""
        return

    def _state_file(self) -> TableState | None:
        return read_state(self.spec.target, self.spec.state_name)


def split_options(target_options: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the target's file system, and those of an Iceberg catalog, `catalog.*`, without that prefix."""
    given = target_options or {}
    catalog = {name.removeprefix(_CATALOG): value for name, value in given.items() if name.startswith(_CATALOG)}
    return {name: value for name, value in given.items() if not name.startswith(_CATALOG)}, catalog


def first_line(error: Exception) -> str:
    """What went wrong, without the stack that some libraries put into their messages."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _is_data(path: str) -> bool:
    return path.endswith(EXTENSION) and not path.rpartition("/")[2].startswith((".", "_"))
