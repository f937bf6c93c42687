"""Tables and JSON of consumer groups, of a directory or a running broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duralog.cli.voice.output import Output
from duralog.cli.voice.tables import plural, write_table
from duralog.client.groups import GroupMember, GroupOffset, GroupView
from duralog.config.error_text import printable

_LIST_NAMES = ("group", "state", "kind", "members", "partitions", "lag")
_OFFSET_NAMES = ("topic", "partition", "committed", "end_offset", "lag", "member", "metadata")
_MEMBER_NAMES = ("member", "instance", "client", "host", "partitions")


def write_groups(groups: Sequence[GroupView], output: Output) -> None:
    if output.as_json:
        for group in groups:
            output.object({"kind": "group", **_summary(group)})
        return
    rows = [
        [
            printable(group.group),
            group.state or "-",
            group.kind,
            f"{len(group.members):,}",
            f"{len(group.offsets):,}",
            f"{group.lag:,}",
        ]
        for group in groups
    ]
    if rows:
        write_table(output, _LIST_NAMES, rows, right=_LIST_NAMES[3:], cut=("group",), least=("kind", "partitions"))
        output.heading(plural(len(rows), "group"))
    else:
        write_no_groups(output)


def write_no_groups(output: Output) -> None:
    output.heading("no groups: none has committed offsets")


def write_group(group: GroupView, output: Output) -> None:
    holders = {place: member for member in group.members for place in member.partitions}
    if output.as_json:
        output.object({"kind": "group", **_summary(group)})
        for offset in group.offsets:
            output.object(_offset_object(group, offset, holders.get((offset.topic, offset.partition))))
        for member in group.members:
            output.object(_member_object(group, member))
        return
    state = "" if group.state is None else f", {group.state.lower()}"
    output.heading(
        f"{printable(group.group)}: {group.kind}{state}, {plural(len(group.members), 'member')}, lag {group.lag:,}"
    )
    rows = []
    for offset in group.offsets:
        holder = holders.get((offset.topic, offset.partition))
        rows.append(
            [
                printable(offset.topic),
                str(offset.partition),
                _number(offset.committed),
                _number(offset.end_offset),
                _number(offset.lag),
                "-" if holder is None else printable(holder.member_id),
                printable(offset.metadata) or "-",
            ]
        )
    write_table(output, _OFFSET_NAMES, rows, right=_OFFSET_NAMES[1:5], least=("metadata", "member"))
    if group.members:
        output.heading(plural(len(group.members), "member"))
        write_table(
            output,
            _MEMBER_NAMES,
            [
                [
                    printable(member.member_id),
                    printable(member.instance_id or "-"),
                    printable(member.client_id) or "-",
                    printable(member.host) or "-",
                    f"{len(member.partitions):,}",
                ]
                for member in group.members
            ],
            right=("partitions",),
            least=("instance", "host"),
        )


def _summary(group: GroupView) -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "type": group.kind,
        "members": len(group.members),
        "partitions": len(group.offsets),
        "lag": group.lag,
    }


def _offset_object(group: GroupView, offset: GroupOffset, holder: GroupMember | None) -> dict[str, Any]:
    return {
        "kind": "offset",
        "group": group.group,
        "topic": offset.topic,
        "partition": offset.partition,
        "committed": offset.committed,
        "end_offset": offset.end_offset,
        "lag": offset.lag,
        "member": None if holder is None else holder.member_id,
        "metadata": offset.metadata,
    }


def _member_object(group: GroupView, member: GroupMember) -> dict[str, Any]:
    return {
        "kind": "member",
        "group": group.group,
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [{"topic": topic, "partition": number} for topic, number in member.partitions],
    }


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value}"
