"""`/groups` and `/groups/{group}`: consumers, their offsets, and their lag over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from duralog.client.groups import GroupMember, GroupOffset
from duralog.config.times import now_ms
from duralog.console.changes.forms import Form
from duralog.console.changes.group_forms import delete_group_form, reset_group_form
from duralog.console.drawing.words import UNKNOWN, counted, number_text
from duralog.console.facts.overview import GroupDetails, Overview, PartitionRow, SourceKind
from duralog.console.pages.overview import groups_table
from duralog.console.ui.change_dialog import change_button, typed_time_here
from duralog.console.ui.charts import TimeChart
from duralog.console.ui.data_table import Cell, Column, DataTable, TableRows, number_column, partition_column
from duralog.console.ui.elements import Tile, block, empty_state, heading, section, text
from duralog.console.ui.layout import Console, live
from duralog.console.ui.standing import commands_place

_UNKNOWN_START = "Where the group would start is not known: its consumers decide, by auto.offset.reset."


def register(console: Console) -> None:
    @console.page("/groups")
    def groups_page(q: str = "") -> None:
        with console.frame("Groups", marker="page-groups", here="groups"):
            _GroupsPage(console, q)

    @console.page("/groups/{group:path}")
    def group_page(group: str) -> None:
        details = console.source.group(group)
        name = details.facts.name or "(empty name)"
        with console.frame(name, marker="page-group", here="groups", crumbs=[("Groups", "/groups")]):
            _GroupPage(console, group)


class _GroupsPage:
    def __init__(self, console: Console, query: str) -> None:
        self._source = console.source
        self._shown: Overview | None = None
        overview = self._source.overview()
        heading("Groups", "Consumer groups, and how many records they have not consumed yet.")
        self._empty = empty_state(
            "No consumer groups have committed offsets here. To be the first:",
            f"duralog consume {commands_place(overview)} --topic orders --group my-group",
            marker="no-groups",
        )
        self._groups = groups_table(overview, query=query)
        self.refresh()
        live(self.refresh)

    def refresh(self) -> None:
        overview = self._source.overview()
        if overview is self._shown:
            return
        self._shown = overview
        self._groups.show(overview.groups)
        self._groups.set_visibility(bool(overview.groups))
        self._empty.set_visibility(not overview.groups)


@dataclass(frozen=True, slots=True)
class _OffsetRow:
    offset: GroupOffset
    holder: GroupMember | None
    records: int | None = None
    """The records of a partition without a committed offset."""


class _GroupPage:
    def __init__(self, console: Console, group: str) -> None:
        self._console = console
        self._source = console.source
        self._group = group
        self._shown: GroupDetails | None = None
        self._largest_lag = 1
        details = self._source.group(group)
        self._about = heading(details.facts.name or "(empty name)")
        with block("div", "actions"):
            change_button(console, "Reset offsets …", "reset-group", self._reset)
            change_button(console, "Delete …", "delete-group", self._delete)
        with block("dl", "tiles"):
            self._state_tile = Tile("State", "group-state")
            self._lag_tile = Tile("Lag", "group-lag")
            self._members_tile = Tile("Members", "group-members")
            self._topics_tile = Tile("Topics", "group-topics")
        with section("Lag over time"):
            self._lag_chart = TimeChart("Lag", marker="chart-lag")
        with section("Offsets", marker="offsets-part"):
            self._offsets = self._offsets_table()
        with section("Members", marker="members-part"):
            with block("div", "empty", marker="no-members") as self._no_members:
                self._why_no_members = text("p", "")
            self._members = _members_table()
        self.refresh()
        live(self.refresh)

    def refresh(self) -> None:
        details = self._source.group(self._group)
        if details == self._shown:
            return
        self._shown = details
        self._about.text = f"{details.facts.protocol} group"
        view = details.view
        lags = [offset.lag for offset in view.offsets if offset.lag is not None]
        self._largest_lag = max(lags, default=0) or 1
        knows_members = self._source.overview().kind != SourceKind.DIRECTORY
        self._state_tile.show(view.state or UNKNOWN, "" if view.state else "only a running broker knows")
        without = details.facts.without_commit
        self._lag_tile.show(
            number_text(details.facts.lag),
            f"and {counted(without, 'partition')} without a commit"
            if without
            else f"the most in one partition: {number_text(max(lags))}"
            if lags
            else "",
        )
        self._members_tile.show(number_text(len(view.members)) if knows_members else UNKNOWN)
        self._topics_tile.show(number_text(len(details.facts.topics)), counted(len(view.offsets), "partition"))
        self._lag_chart.show([(sample.at_ms, sample.lag) for sample in details.history])
        holders = {place: member for member in view.members for place in member.partitions}
        committed = [offset for offset in view.offsets if offset.committed is not None]
        self._offsets.show(
            [
                *(_OffsetRow(each, holders.get((each.topic, each.partition))) for each in committed),
                *(_row_without_commit(row, holders) for row in details.without_commit),
            ]
        )
        self._members.show(view.members)
        self._members.set_visibility(bool(view.members))
        self._no_members.set_visibility(not view.members)
        self._why_no_members.text = (
            "This group has no members at the moment."
            if knows_members
            else "Only a running broker knows the members: duralog console HOST:PORT --data DIR."
        )

    def _reset(self) -> Form:
        details, source = self._source.group(self._group), self._source
        names = [topic.name for topic in source.overview().topics]
        committed = {offset.topic for offset in details.view.offsets if offset.committed is not None}
        return reset_group_form(
            self._group,
            {name: [row.partition for row in source.topic(name)] for name in names},
            committed=sorted(committed & set(names)),
            is_directory=self._console.changer.place.broker is None,
            parse_when=typed_time_here(),
            now_ms=now_ms,
        )

    def _delete(self) -> Form:
        return delete_group_form(self._group, is_directory=self._console.changer.place.broker is None)

    def _lag_cell(self, row: _OffsetRow) -> Cell:
        lag = row.offset.lag
        if lag is not None:
            return {"text": number_text(lag), "bar": lag / self._largest_lag}
        if row.records:
            return {"text": f"up to {number_text(row.records)}", "tone": "quiet", "title": _UNKNOWN_START}
        return UNKNOWN

    def _offsets_table(self) -> DataTable[_OffsetRow]:
        return DataTable(
            "group-offsets",
            "Offsets",
            (
                partition_column("topic", lambda row: (row.offset.topic, row.offset.partition)),
                Column(
                    name="lag",
                    label="Lag",
                    cell=self._lag_cell,
                    sort=lambda row: row.offset.lag,
                    numeric=True,
                ),
                Column(
                    name="committed",
                    label="Committed",
                    cell=_committed_cell,
                    sort=lambda row: row.offset.committed,
                    numeric=True,
                ),
                number_column("end", "End", lambda row: row.offset.end_offset),
                Column(
                    name="member",
                    label="Member",
                    cell=lambda row: row.holder.member_id if row.holder else UNKNOWN,
                    wide=True,
                ),
                Column(name="metadata", label="Metadata", cell=lambda row: row.offset.metadata or UNKNOWN, wide=True),
            ),
            TableRows(
                key=lambda row: f"{row.offset.topic}-{row.offset.partition}",
                search=_searched_text,
                search_from=10,
                sort="topic",
            ),
            empty="No offsets are committed.",
        )


def _committed_cell(row: _OffsetRow) -> Cell:
    if row.offset.committed is not None:
        return number_text(row.offset.committed)
    return {"text": "no commit", "tone": "warn" if row.records else "quiet", "title": _UNKNOWN_START}


def _row_without_commit(row: PartitionRow, holders: Mapping[tuple[str, int], GroupMember]) -> _OffsetRow:
    offset = GroupOffset(topic=row.topic, partition=row.partition, committed=None, end_offset=row.end_offset)
    return _OffsetRow(offset, holders.get((row.topic, row.partition)), row.records)


def _searched_text(row: _OffsetRow) -> str:
    return f"{row.offset.topic}-{row.offset.partition} {row.holder.member_id if row.holder else ''}"


def _members_table() -> DataTable[GroupMember]:
    return DataTable(
        "group-members-table",
        "Members",
        (
            Column(
                name="member",
                label="Member",
                cell=lambda member: {"text": member.member_id, "sub": member.instance_id or ""},
                sort=lambda member: member.member_id,
            ),
            Column(
                name="client",
                label="Client",
                cell=lambda member: member.client_id,
                sort=lambda member: member.client_id,
            ),
            Column(name="host", label="Host", cell=lambda member: member.host, sort=lambda member: member.host),
            Column(
                name="partitions",
                label="Partitions",
                cell=lambda member: {
                    "text": number_text(len(member.partitions)),
                    "title": ", ".join(f"{topic}-{number}" for topic, number in member.partitions[:30]),
                },
                sort=lambda member: len(member.partitions),
                numeric=True,
            ),
        ),
        TableRows(key=lambda member: member.member_id, sort="member"),
    )
