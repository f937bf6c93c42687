"""`duralog group reset`: the scenarios and plans of Kafka's `kafka-consumer-groups --reset-offsets`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.group.opened_groups import Evict, check_group_name, opened_groups
from duralog.cli.voice.completions import topic_names
from duralog.cli.voice.failures import FAILURE, WrongUsage, errors_shown, say
from duralog.cli.voice.options import (
    HOW,
    WHICH,
    AsJson,
    DryRun,
    PartitionChoice,
    Quiet,
    check_text,
    parsed,
    parsed_time,
    standard_output,
)
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.config.times import now_ms
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.operations.groups.reset_offsets import GroupReset, ResetTo

_SCENARIOS = (
    *("--to-earliest", "--to-latest", "--to-current", "--to-offset", "--shift-by", "--to-datetime", "--by-duration"),
    "--from-file",
)


def reset(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="NAME", help="The group; may be given again.", rich_help_panel=WHICH),
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups.", rich_help_panel=WHICH)] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="The topic, or NAME:0,1 for some of its partitions; may be given again.",
            rich_help_panel=WHICH,
            autocompletion=topic_names,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets.", rich_help_panel=WHICH)
    ] = False,
    partition: PartitionChoice = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", "--earliest", help="To the first record.", rich_help_panel=HOW)
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", "--latest", help="To the end.", rich_help_panel=HOW)
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="To the committed offset, or to the end if there is none.", rich_help_panel=HOW
        ),
    ] = False,
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", "--offset", "-o", min=0, metavar="N", help="To this offset.", rich_help_panel=HOW),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="By N offsets; back if N is negative.", rich_help_panel=HOW),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            "--time",
            metavar="TIME",
            help="To the first record at or after this time.",
            rich_help_panel=HOW,
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="DURATION",
            help="To the first record since this long ago: P1DT2H30M, or 2h.",
            rich_help_panel=HOW,
        ),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from-file", metavar="FILE", help="To the offsets of a plan in CSV.", rich_help_panel=HOW),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Write the plan as CSV, for --from-file.", rich_help_panel=HOW)
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the plan. Without it, nothing is changed.", rich_help_panel=HOW)
    ] = False,
    evict: Evict = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Plan a change of committed offsets; --execute applies it.

    The group must have no members. Offsets are limited to the range of each partition. With --execute, no broker may
    have the directory open.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    groups = _groups_given(group, all_groups=all_groups)
    if evict and is_broker(place):
        raise WrongUsage("--evict is for a directory: a broker knows its members. Stop the consumers instead")
    given = (to_earliest, to_latest, to_current, to_offset, shift_by, to_datetime, by_duration, from_file)
    if sum(each is not None and each is not False for each in given) != 1:
        raise WrongUsage(f"give one of {', '.join(_SCENARIOS[:-1])} and {_SCENARIOS[-1]}")
    topics = _topics_given(topic, partition, all_topics=all_topics, is_plan=from_file is not None)
    if execute and dry_run:
        raise WrongUsage("--execute and --dry-run: give one of them")
    if export and as_json:
        raise WrongUsage("--export and --json: give one of them")
    time_ms = parsed_time("--to-datetime", to_datetime)
    if by_duration is not None:
        from duralog.config.times import parse_duration_ago

        time_ms = parsed("--by-duration", lambda text: parse_duration_ago(text, now_ms=now_ms()), by_duration)
    with (
        errors_shown(),
        opened_groups(place, evicts=evict, read_only=not execute, quiet=quiet) as opened,
    ):
        from duralog.operations.groups.reset_offsets import ResetRequest, ResetTo, Where, reset_offsets

        if from_file is not None:
            to = _plan(from_file, groups)
            groups = list(to.plan) if groups is None else groups
        elif to_offset is not None or shift_by is not None:
            where = Where.SHIFT if to_offset is None else Where.OFFSET
            to = ResetTo(where=where, value=(shift_by if to_offset is None else to_offset) or 0)
        elif time_ms is not None:
            to = ResetTo(where=Where.TIME, value=time_ms)
        else:
            to = ResetTo(where=Where.EARLIEST if to_earliest else Where.LATEST if to_latest else Where.CURRENT)
        request = ResetRequest(groups=groups, topics=topics, to=to, execute=execute)
        done = reset_offsets(opened, request)
        output = standard_output(as_json=as_json, quiet=quiet)
        if export:
            from duralog.operations.groups.reset_plans import plan_as_csv

            output.write(plan_as_csv(done, with_groups=all_groups or len(groups or ()) != 1).encode())
        else:
            _write(output, done, execute=execute)
            if not execute and not dry_run and not as_json:
                output.note("nothing was changed", "this is the plan; --execute applies it")
        output.flush()
        for each in done:
            if each.failure is not None:
                say(f"error: group {each.group}: {each.failure}")
    if any(each.failure is not None for each in done):
        raise typer.Exit(FAILURE)


def _groups_given(groups: list[str] | None, *, all_groups: bool) -> list[str] | None:
    """None for all."""
    if all_groups == bool(groups):
        raise WrongUsage("which group? Give --group NAME, or --all-groups")
    for name in groups or ():
        check_group_name(name)
    return None if all_groups else list(dict.fromkeys(groups or ()))


def _topics_given(
    topics: list[str] | None, partition: int | None, *, all_topics: bool, is_plan: bool
) -> dict[str, Collection[int] | None] | None:
    """The partitions by topic, None for all of a topic; None for all topics."""
    if is_plan:
        if topics or all_topics or partition is not None:
            raise WrongUsage("--from-file: the plan names the topics and partitions: leave out the options for them")
        return None
    if all_topics == bool(topics):
        raise WrongUsage("which topic? Give --topic NAME, or --all-topics")
    if all_topics and partition is not None:
        raise WrongUsage("--partition is of a topic: give --topic")
    chosen: dict[str, Collection[int] | None] = {}
    for text in topics or ():
        check_text("--topic", text)
        name, colon, numbers = text.partition(":")
        if colon and not all(number.isascii() and number.isdecimal() for number in numbers.split(",")):
            raise WrongUsage(f"--topic: {text!r} is not NAME, or NAME:0,1 with the numbers of partitions")
        if colon and partition is not None:
            raise WrongUsage(f"--topic {text} and --partition both choose partitions: give one of them")
        if partition is not None:
            chosen[name] = [partition]
        elif not colon or chosen.get(name, ()) is None:
            chosen[name] = None
        else:
            chosen[name] = {*(chosen.get(name) or ()), *map(int, numbers.split(","))}
    return None if all_topics else chosen


def _plan(file: str, groups: list[str] | None) -> ResetTo:
    from duralog.operations.groups.reset_offsets import ResetTo, Where
    from duralog.operations.groups.reset_plans import plan_of_csv

    with open(file, encoding="utf-8-sig", newline="") as lines:
        return ResetTo(where=Where.PLAN, plan=plan_of_csv(lines, groups, file))


def _write(output: Output, done: list[GroupReset], *, execute: bool) -> None:
    from duralog.config.error_text import printable

    for each in done:
        for offset in each.offsets:
            if output.as_json:
                names = {"kind": "reset", "group": each.group, "topic": offset.topic, "partition": offset.partition}
                limited = {} if offset.wanted is None else {"wanted": offset.wanted}
                output.object({**names, "from": offset.before, "to": offset.after, **limited, "dry_run": not execute})
                continue
            place = printable(f"{offset.topic}-{offset.partition}")
            whose = f"{printable(each.group)}: " if len(done) > 1 else ""
            before = "nothing" if offset.before is None else offset.before
            output.line(f"{whose}{place}: {'reset' if execute else 'would be reset'} from {before} to {offset.after}")
            if offset.wanted is not None:
                output.note(place, f"offset {offset.wanted} is not in the partition: {offset.after} is the nearest")
