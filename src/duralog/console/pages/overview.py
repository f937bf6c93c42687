"""`/`: topics with sizes and rates, groups with their lag, and charts over time."""

from __future__ import annotations

from nicegui.events import GenericEventArguments

from duralog.console.changes.topic_forms import create_topic_form
from duralog.console.drawing.words import (
    UNKNOWN,
    byte_rate_text,
    bytes_text,
    counted,
    group_path,
    number_text,
    record_rate_text,
    topic_path,
)
from duralog.console.facts.overview import GroupFacts, Overview, SourceKind, TopicFacts
from duralog.console.ui.change_dialog import change_button
from duralog.console.ui.charts import TimeChart, sparkline
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows, age_column, number_column
from duralog.console.ui.elements import Tile, block, empty_state, heading, section, text
from duralog.console.ui.layout import Console, OverviewNotes, live
from duralog.console.ui.standing import commands_place


def register(console: Console) -> None:
    @console.page("/")
    def overview_page(q: str = "") -> None:
        with console.frame("Overview", marker="page-overview", here="overview"):
            _OverviewPage(console, q)


class _OverviewPage:
    def __init__(self, console: Console, query: str) -> None:
        self._source = console.source
        self._shown: Overview | None = None
        overview = self._source.overview()
        self._about = heading("Overview", _about(overview))
        with block("div", "actions"):
            change_button(console, "Create topic …", "create-topic", create_topic_form)
        with block("dl", "tiles"):
            self._topics_tile = Tile("Topics", "total-topics", below="total-partitions")
            self._size_tile = Tile("Size", "total-size")
            self._records_tile = Tile("Records", "total-records")
            self._rate_tile = Tile("Coming in", "rate-records", below="rate-bytes")
            self._lag_tile = Tile("Lag of all groups", "total-lag", below="groups-summary")
        self._notes = OverviewNotes()
        with block("div", "two-charts") as self._charts:
            with section("Records coming in"):
                self._rate_chart = TimeChart("Records a second", per_second=True, marker="chart-rate")
            with section("Size"):
                self._size_chart = TimeChart("Size of all logs", unit="size", marker="chart-size")
        with section("Topics", marker="topics-part"):
            self._no_topics = empty_state(
                "No topics yet. Create one:",
                f"duralog topic create {commands_place(overview)} --topic orders --partitions 3",
                marker="no-topics",
            )
            self._topics = topics_table(query)
            with self._topics, block("label", "switch"):
                self._internal = block("input", type="checkbox", marker="internal-topics")
                text("span", "Internal topics")
        self._with_internal = False
        self._internal.on("change", self._toggle, js_handler="(event) => emit(event.target.checked)")
        with section("Groups", marker="groups-part"):
            self._no_groups = empty_state("No consumer groups have committed offsets here.", marker="no-groups")
            self._groups = groups_table(overview, search_from=10)
        self.refresh()
        live(self.refresh)

    def refresh(self) -> None:
        overview = self._source.overview()
        if overview is self._shown:
            return
        self._shown = overview
        self._about.text = _about(overview)
        internal = sum(topic.is_internal for topic in overview.topics)
        self._topics_tile.show(
            number_text(len(overview.topics) - internal),
            counted(overview.partitions, "partition")
            + (f", {counted(internal, 'internal topic')}" if internal else ""),
        )
        self._size_tile.show(bytes_text(overview.size_bytes), "log files")
        self._records_tile.show(number_text(overview.records), "offsets in the logs")
        self._rate_tile.show(
            record_rate_text(overview.records_in_per_second),
            byte_rate_text(overview.bytes_in_per_second),
        )
        lags = [group.lag for group in overview.groups if group.lag is not None]
        self._lag_tile.show(number_text(sum(lags)) if lags else UNKNOWN, counted(len(overview.groups), "group"))
        self._notes.show(overview)
        self._rate_chart.show([(sample.at_ms, sample.records_in_per_second) for sample in overview.history])
        self._size_chart.show([(sample.at_ms, sample.size_bytes) for sample in overview.history])
        self._charts.set_visibility(bool(overview.topics))
        self._show_topics(overview)
        self._groups.show(overview.groups)
        self._groups.set_visibility(bool(overview.groups))
        self._no_groups.set_visibility(not overview.groups)

    def _show_topics(self, overview: Overview) -> None:
        self._topics.show([topic for topic in overview.topics if self._with_internal or not topic.is_internal])
        self._topics.set_visibility(bool(overview.topics))
        self._no_topics.set_visibility(not overview.topics)

    def _toggle(self, event: GenericEventArguments) -> None:
        self._with_internal = bool(event.args)
        self._show_topics(self._source.overview())


def topics_table(query: str) -> DataTable[TopicFacts]:
    return DataTable(
        "topics",
        "Topics",
        (
            Column(name="name", label="Topic", cell=_topic_cell, sort=lambda topic: topic.name),
            number_column("partitions", "Partitions", lambda topic: topic.partitions, wide=True),
            Column(
                name="size",
                label="Size",
                cell=lambda topic: bytes_text(topic.size_bytes),
                sort=lambda topic: topic.size_bytes,
                numeric=True,
            ),
            number_column(
                "records",
                "Records",
                lambda topic: topic.records,
                hint="End offsets less start offsets; a compacted log has fewer",
                wide=True,
            ),
            Column(
                name="rate",
                label="Records in",
                cell=_rate_cell,
                sort=lambda topic: topic.records_in_per_second,
                numeric=True,
            ),
            Column(name="policy", label="Policy", cell=lambda topic: topic.policy or UNKNOWN, wide=True),
            age_column("newest", "Newest record", lambda topic: topic.latest_timestamp_ms, wide=True),
        ),
        TableRows(
            key=lambda topic: topic.name,
            search=lambda topic: f"{topic.name} {topic.policy}",
            query=query,
            sort="name",
            tone=lambda topic: "bad-row" if topic.trouble else "",
            on_a_page=25,
        ),
        empty="Only internal topics are here.",
    )


def groups_table(overview: Overview, *, query: str | None = None, search_from: int = 0) -> DataTable[GroupFacts]:
    """Without a broker, columns that only a running broker can fill are left out."""
    columns = _group_columns()
    if overview.kind == SourceKind.DIRECTORY:
        columns = tuple(column for column in columns if column.name not in ("state", "members"))
    return DataTable(
        "groups",
        "Groups",
        columns,
        TableRows(
            key=lambda group: group.name,
            search=lambda group: f"{group.name} {group.state or ''} {' '.join(group.topics)}",
            query=query,
            search_from=search_from,
            sort="name",
            on_a_page=25,
        ),
        empty="No groups.",
    )


def _group_columns() -> tuple[Column[GroupFacts], ...]:
    return (
        Column(
            name="name",
            label="Group",
            cell=lambda group: {"text": group.name or "(empty name)", "href": group_path(group.name)},
            sort=lambda group: group.name,
        ),
        Column(name="state", label="State", cell=_state_cell, sort=lambda group: group.state),
        Column(
            name="lag",
            label="Lag",
            cell=_lag_cell,
            sort=lambda group: group.lag,
            numeric=True,
            hint="Records that it has not consumed yet, of the partitions with a committed offset",
        ),
        Column(
            name="members",
            label="Members",
            cell=lambda group: number_text(group.members) if group.state is not None else UNKNOWN,
            sort=lambda group: group.members,
            numeric=True,
            wide=True,
        ),
        Column(name="protocol", label="Protocol", cell=lambda group: group.protocol, wide=True),
        Column(name="topics", label="Topics", cell=_topics_of_group, wide=True),
    )


def _about(overview: Overview) -> str:
    parts = ["A broker" if overview.kind == SourceKind.BROKER else "A log directory"]
    if overview.kind == SourceKind.BOTH:
        parts = ["A broker and its log directory"]
    if overview.node_id is not None:
        parts.append(f"node {overview.node_id}")
    if overview.cluster_id:
        parts.append(f"cluster {overview.cluster_id}")
    parts.append(f"served by {overview.held_by}" if overview.held_by else "")
    return ", ".join(part for part in parts if part)


def _topic_cell(topic: TopicFacts) -> Cell:
    cell: dict[str, str] = {"text": topic.name, "href": topic_path(topic.name)}
    if topic.trouble:
        cell["sub"] = topic.trouble
    return cell


def _rate_cell(topic: TopicFacts) -> Cell:
    return {
        "text": record_rate_text(topic.records_in_per_second),
        "title": byte_rate_text(topic.bytes_in_per_second),
        "tone": "quiet" if not topic.records_in_per_second else "",
        "spark": sparkline(topic.recent) if any(topic.recent) else "",
    }


def _lag_cell(group: GroupFacts) -> Cell:
    if not group.without_commit:
        return number_text(group.lag)
    return {"text": number_text(group.lag), "sub": f"{counted(group.without_commit, 'partition')} without a commit"}


def _state_cell(group: GroupFacts) -> Cell:
    if group.state is None:
        return {"text": UNKNOWN, "title": "Only a running broker knows it"}
    tone = {"stable": "good", "empty": "quiet", "dead": "quiet"}.get(group.state.lower(), "warn")
    return {"text": group.state, "tone": tone}


def _topics_of_group(group: GroupFacts) -> Cell:
    shown = ", ".join(group.topics[:3])
    more = len(group.topics) - 3
    return {"text": f"{shown} and {more} more" if more > 0 else shown, "title": ", ".join(group.topics[:50])}
