"""`/topic/{topic}`: its partitions, how its bytes are spread over them, and which configs are not Kafka's defaults."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nicegui import run, ui

from duralog.config.error_text import describe
from duralog.console.drawing.config_rows import ConfigRow, changed_configs
from duralog.console.drawing.words import (
    UNKNOWN,
    byte_rate_text,
    bytes_text,
    counted,
    number_text,
    partition_path,
    record_rate_text,
    share_text,
)
from duralog.console.facts.overview import PartitionRow, TopicFacts
from duralog.console.ui.charts import BarChart
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows, age_column, number_column
from duralog.console.ui.elements import Tile, block, command_line, heading, section, text
from duralog.console.ui.layout import Console, live
from duralog.console.ui.standing import commands_place
from duralog.errors import DuralogError


def register(console: Console) -> None:
    @console.page("/topic/{topic}")
    def topic_page(topic: str) -> None:
        console.source.topic(topic)
        with console.frame(topic, marker="page-topic", here="overview", crumbs=[("Topics", "/")]):
            _TopicPage(console, topic)


class _TopicPage:
    def __init__(self, console: Console, topic: str) -> None:
        self._source = console.source
        self._topic = topic
        self._shown: tuple[PartitionRow, ...] = ()
        self._largest = 1
        self._about = heading(topic, self._policy())
        with block("dl", "tiles"):
            self._partitions_tile = Tile("Partitions", "total-partitions")
            self._size_tile = Tile("Size", "total-size")
            self._records_tile = Tile("Records", "total-records")
            self._rate_tile = Tile("Coming in", "rate-records", below="rate-bytes")
        with section("Size by partition") as self._sizes_part:
            self._sizes = BarChart("Size by partition", marker="chart-partition-sizes")
        with section("Partitions", marker="partitions-part"):
            self._partitions = self._partitions_table()
        with section("Configs", marker="configs-part") as self._configs_part:
            self._configs_note = text("p", "Reading the configs …", "about", marker="configs-note")
            self._configs = _configs_table()
            self._configs.set_visibility(False)
        self.refresh()
        live(self.refresh)
        ui.timer(0, self._load_configs, once=True)

    def refresh(self) -> None:
        facts = self._facts()
        self._about.text = self._policy()
        if facts is not None:
            self._rate_tile.show(
                record_rate_text(facts.records_in_per_second), byte_rate_text(facts.bytes_in_per_second)
            )
        rows = self._source.topic(self._topic)
        if rows == self._shown:
            return
        self._shown = rows
        sizes = [row.size_bytes for row in rows if row.size_bytes is not None]
        records = [row.records for row in rows if row.records is not None]
        troubled = sum(row.trouble is not None for row in rows)
        self._largest = max(sizes, default=1) or 1
        self._partitions_tile.show(
            number_text(len(rows)), f"{troubled} cannot be read" if troubled else _segments_text(rows)
        )
        self._size_tile.show(
            bytes_text(sum(sizes)) if sizes else UNKNOWN,
            f"the largest has {bytes_text(max(sizes))}" if len(sizes) > 1 else "",
        )
        self._records_tile.show(number_text(sum(records)) if records else UNKNOWN, "offsets in the logs")
        self._partitions.show(rows)
        self._sizes_part.set_visibility(len(sizes) > 1)
        self._sizes.show([str(row.partition) for row in rows], [row.size_bytes or 0 for row in rows])

    def _policy(self) -> str:
        facts = self._facts()
        if facts is None:
            return ""
        policy = f"cleanup.policy={facts.policy}" if facts.policy else ""
        return ", ".join(part for part in ("internal" if facts.is_internal else "", policy) if part)

    def _facts(self) -> TopicFacts | None:
        return next((topic for topic in self._source.overview().topics if topic.name == self._topic), None)

    async def _load_configs(self) -> None:
        """From a partition that can be read: the configs of a topic are the same for all."""
        number = next((row.partition for row in self._shown if row.trouble is None), 0)
        try:
            facts = await run.io_bound(self._source.partition, self._topic, number)
        except (DuralogError, OSError) as error:
            self._configs_note.text = describe(error)
            return
        if facts is None:
            return  # The console is being stopped.
        rows = changed_configs(facts.configs)
        self._configs_note.text = (
            "Those in force that are not Kafka's defaults."
            if rows
            else "Kafka's defaults hold for everything. To set one:"
        )
        if not rows:
            with self._configs_part:
                command_line(
                    f"duralog topic alter {commands_place(self._source.overview())} --topic {shlex.quote(self._topic)}"
                    " --config retention.ms=604800000"
                )
        self._configs.show(rows)
        self._configs.set_visibility(bool(rows))

    def _partitions_table(self) -> DataTable[PartitionRow]:
        return DataTable(
            "partitions",
            "Partitions",
            (
                Column(
                    name="partition",
                    label="Partition",
                    cell=_partition_cell,
                    sort=lambda row: row.partition,
                ),
                Column(
                    name="size",
                    label="Size",
                    cell=self._size_cell,
                    sort=lambda row: row.size_bytes,
                    numeric=True,
                ),
                number_column(
                    "start",
                    "Start",
                    lambda row: row.start_offset,
                    hint="Log start offset: the first that can be read",
                    wide=True,
                ),
                number_column("end", "End", lambda row: row.end_offset, hint="The offset that the next record gets"),
                number_column("segments", "Segments", lambda row: row.segments, wide=True),
                Column(
                    name="rate",
                    label="Records in",
                    cell=lambda row: record_rate_text(row.records_in_per_second),
                    sort=lambda row: row.records_in_per_second,
                    numeric=True,
                ),
                Column(
                    name="dirty",
                    label="Dirty",
                    cell=lambda row: share_text(row.dirty_ratio),
                    sort=lambda row: row.dirty_ratio,
                    numeric=True,
                    hint="Of a compacted log: the share of bytes that the cleaner has not compacted yet",
                    wide=True,
                ),
                age_column("newest", "Newest record", lambda row: row.latest_timestamp_ms, wide=True),
            ),
            TableRows(
                key=lambda row: str(row.partition),
                search=lambda row: f"{row.partition} {row.trouble or ''}",
                search_from=10,
                sort="partition",
                tone=lambda row: "bad-row" if row.trouble else "",
            ),
        )

    def _size_cell(self, row: PartitionRow) -> Cell:
        return {"text": bytes_text(row.size_bytes), "bar": (row.size_bytes or 0) / self._largest}


def _configs_table() -> DataTable[ConfigRow]:
    return DataTable(
        "topic-configs",
        "Configs",
        (
            Column(
                name="name",
                label="Config",
                cell=lambda row: {"text": row.name, "title": row.about},
                sort=lambda row: row.name,
                mono=True,
            ),
            Column(
                name="value",
                label="Value",
                cell=lambda row: {"text": row.value, "sub": row.in_words},
                mono=True,
            ),
            Column(
                name="default",
                label="Kafka's default",
                cell=lambda row: {"text": row.default, "tone": "quiet"},
                mono=True,
            ),
        ),
        TableRows(key=lambda row: row.name, sort="name"),
    )


def _partition_cell(row: PartitionRow) -> Cell:
    cell: dict[str, str] = {"text": str(row.partition), "href": partition_path(row.topic, row.partition)}
    if row.trouble:
        cell["sub"] = row.trouble
    return cell


def _segments_text(rows: Sequence[PartitionRow]) -> str:
    counts = [row.segments for row in rows if row.segments is not None]
    return counted(sum(counts), "segment") if counts else ""
