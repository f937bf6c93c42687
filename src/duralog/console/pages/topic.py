"""`/topic/{topic}`: its partitions, the distribution of bytes over them, all its configs, and changes of them."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import run, ui

from duralog.config import TOPIC_CONFIGS
from duralog.config.entries import TOPIC_SOURCE
from duralog.config.error_text import describe, printable
from duralog.console.changes.forms import Form
from duralog.console.changes.record_forms import produce_form
from duralog.console.changes.topic_forms import add_partitions_form, delete_topic_form, topic_config_form
from duralog.console.drawing.config_rows import ConfigRow, config_rows
from duralog.console.drawing.shown_bytes import visible
from duralog.console.drawing.words import (
    UNKNOWN,
    byte_rate_text,
    bytes_text,
    counted,
    number_text,
    partition_path,
    record_rate_text,
    share_text,
    subject_path,
    topic_records_path,
)
from duralog.console.facts.overview import PartitionRow, TopicFacts
from duralog.console.facts.schemas import topic_of
from duralog.console.ui.change_dialog import change_button, open_change, typed_time_here
from duralog.console.ui.charts import BarChart
from duralog.console.ui.config_table import ConfigTable
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows, age_column, number_column
from duralog.console.ui.elements import Tile, block, heading, section, text
from duralog.console.ui.layout import Console, live
from duralog.errors import DuralogError

_MOST_SUBJECTS = 6
_CONFIGS_SECONDS = 30.0
"""For what others change: it opens the directory, or asks the broker."""


def register(console: Console) -> None:
    @console.page("/topic/{topic}")
    def topic_page(topic: str) -> None:
        console.source.topic(topic)
        with console.frame(topic, marker="page-topic", here="overview", crumbs=[("Topics", "/")]):
            _TopicPage(console, topic)


class _TopicPage:
    def __init__(self, console: Console, topic: str) -> None:
        self._console = console
        self._source = console.source
        self._topic = topic
        self._shown: tuple[PartitionRow, ...] = ()
        self._largest = 1
        self._about = heading(topic, self._policy())
        self._buttons()
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
            self._configs_note = text(
                "p", "Reading the configs …", "about loading", marker="configs-note", role="status"
            )
            self._configs = ConfigTable("topic-configs", "Configs", self._edit_config)
            self._configs.set_visibility(False)
        self.refresh()
        live(self.refresh)
        ui.timer(0, self._load_configs, once=True)
        ui.timer(0, self._load_subjects, once=True)
        live(self._load_configs, _CONFIGS_SECONDS)

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

    def _buttons(self) -> None:
        with block("div", "actions"):
            text("a", "Records", "quiet-button", marker="topic-records", href=topic_records_path(self._topic))
            self._subjects = block("span", "subject-links", marker="topic-subjects")
            change_button(self._console, "Produce …", "produce", self._produce)
            change_button(self._console, "Add partitions …", "add-partitions", self._add_partitions)
            change_button(self._console, "Delete …", "delete-topic", self._delete)

    def _produce(self) -> Form:
        names = [topic.name for topic in self._source.overview().topics if not topic.is_internal]
        return produce_form(self._topic, names, parse_when=typed_time_here())

    def _add_partitions(self) -> Form:
        return add_partitions_form(self._topic, len(self._source.topic(self._topic)))

    async def _delete(self) -> Form:
        rows = self._source.topic(self._topic)
        sizes = [row.size_bytes for row in rows if row.size_bytes is not None]
        about = counted(len(rows), "partition") + (f", {bytes_text(sum(sizes))}" if sizes else "")
        topic_id = await run.io_bound(self._console.changer.topic_id, self._topic)
        return delete_topic_form(self._topic, topic_id, about)

    async def _edit_config(self, row: ConfigRow) -> None:
        await open_change(
            self._console,
            self._configs_part,
            lambda: topic_config_form(self._topic, row.name, row.typed, row.explanation, is_set=row.is_set_here),
            self._load_configs,
        )

    async def _load_configs(self) -> None:
        try:
            entries = await run.io_bound(self._console.changer.topic_configs, self._topic)
        except (DuralogError, OSError) as error:
            self._say_of_configs(printable(describe(error)))
            return
        if entries is None or self._configs_part.is_deleted:
            return  # The console is being stopped.
        rows = config_rows(entries, TOPIC_CONFIGS, stored=frozenset({TOPIC_SOURCE}))
        changed = sum(not row.is_default for row in rows)
        self._say_of_configs(f"{counted(len(rows), 'config')}, {changed} of them not at Kafka's default.")
        self._configs.show(rows)
        self._configs.set_visibility(True)

    async def _load_subjects(self) -> None:
        view = await run.io_bound(self._source.payloads.subjects)
        if view is None or self._subjects.is_deleted:
            return
        topics = frozenset(topic.name for topic in self._source.overview().topics)
        names = [name for name in view.catalogue.subjects() if topic_of(name, topics) == self._topic]
        with self._subjects:
            for name in names[:_MOST_SUBJECTS]:
                text("a", f"Schema {visible(name)}", "quiet-button", href=subject_path(name))

    def _say_of_configs(self, sentence: str) -> None:
        self._configs_note.classes(remove="loading")
        self._configs_note.text = sentence

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


def _partition_cell(row: PartitionRow) -> Cell:
    cell: dict[str, str] = {"text": str(row.partition), "href": partition_path(row.topic, row.partition)}
    if row.trouble:
        cell["sub"] = row.trouble
    return cell


def _segments_text(rows: Sequence[PartitionRow]) -> str:
    counts = [row.segments for row in rows if row.segments is not None]
    return counted(sum(counts), "segment") if counts else ""
