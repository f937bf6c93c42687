"""A table that is a folder of Parquet files, and nothing else but the state file that says what counts."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow.parquet as pq

from duralog.spark.lake.parquet_files import EXTENSION, DataFile
from duralog.spark.lake.table_state import TableState
from duralog.spark.lake.tables import LakeTable

_FOLDER = re.compile(r"snapshot-\d{6,}/")


class ParquetTable(LakeTable):
    has_commits = False
    _why_not_wider = "Parquet files of one folder must have the same types, and those that are there stay"

    def _load(self) -> TableState | None:
        return self._state_file()

    def files(self) -> list[str]:
        return sorted(file.path for file in self.spec.target.files() if file.path.endswith(EXTENSION))

    def _commit(self, state: TableState, added: Sequence[DataFile], removed: Sequence[str]) -> None:
        """Nothing: the files are in their places, and count once the state says so."""


class ParquetVersions(ParquetTable):
    """A table that each run writes as a whole, into a folder with the number of the run. The last two are kept."""

    @property
    def data_folder(self) -> str:  # type: ignore[override]
        """Of the run that is to come."""
        return _folder(0 if self.state is None else self.state.run, 1)

    @property
    def path(self) -> str:
        return self.spec.target.location if self.state is None else self._target_of(self.state.run)

    def _target_of(self, run: int) -> str:
        return self.spec.target.child(_folder(run).rstrip("/")).location

    def files(self) -> list[str]:
        if self.state is None or self.state.run == 0:
            return []
        found = self.spec.target.files(_folder(self.state.run).rstrip("/"))
        return sorted(file.path for file in found if file.path.endswith(EXTENSION))

    def _commit(self, state: TableState, added: Sequence[DataFile], removed: Sequence[str]) -> None:
        """The state names the run, and with it the folder. One without rows has a file, too, for the columns."""
        del removed  # They are in the folder of another run.
        target, folder = self.spec.target, _folder(state.run)
        if not added and not target.files(folder.rstrip("/")):
            with target.create(f"{folder}{self.spec.partition_column}=0/part-empty{EXTENSION}") as file:
                pq.write_table(self.file_schema.empty_table(), file)

    def _clean_up(self) -> None:
        assert self.state is not None
        kept = {_folder(self.state.run), _folder(self.state.run, -1)}
        runs = {f"{file.path.partition('/')[0]}/" for file in self.spec.target.files()}
        for folder in sorted(runs):
            if _FOLDER.fullmatch(folder) and folder not in kept:
                self.spec.target.delete_folder(folder.rstrip("/"))


def _folder(run: int, later: int = 0) -> str:
    return f"snapshot-{run + later:06d}/"
