"""`duralog group`: consumer groups of a directory or of a running broker, their offsets and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.group.opened_groups import Evict, check_group_name, opened_groups
from duralog.cli.group.reset import reset
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import (
    WHICH,
    AsJson,
    DryRun,
    NoProgress,
    Quiet,
    Yes,
    as_text,
    check_can_ask,
    confirm,
    standard_output,
)
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.client.groups import GroupView

group_app = typer.Typer(
    name="group",
    cls=CommandGroup,
    help="List, describe, reset and delete consumer groups.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

GroupName = Annotated[
    str, typer.Option("--group", "-g", metavar="NAME", help="The group.", rich_help_panel=WHICH, show_default=False)
]


@group_app.command("list")
def list_groups(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """List groups with their state, kind, members and lag.

    Groups of a directory are read from __consumer_offsets. Nothing is changed.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown():
        from duralog.cli.group.views import write_groups

        output = standard_output(as_json=as_json, quiet=quiet)
        write_groups(_views(place, is_shown=not (no_progress or quiet)), output)
        output.flush()


@group_app.command()
def describe(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", help="Only this group.", rich_help_panel=WHICH, callback=as_text),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """Show committed offsets, lag and members of groups.

    Nothing is changed.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown():
        from duralog.cli.group.views import write_group, write_no_groups
        from duralog.client.unknown_names import unknown_group

        output = standard_output(as_json=as_json, quiet=quiet)
        views = _views(place, group, is_shown=not (no_progress or quiet))
        if group is not None and not any(view.group == group and view.state != "dead" for view in views):
            raise unknown_group(group, place)
        if not views:
            write_no_groups(output)
        for view in views:
            write_group(view, output)
        output.flush()


group_app.command()(reset)


@group_app.command()
def delete(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    group: GroupName,
    evict: Evict = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Delete a group and its offsets permanently.

    The group must have no members. In a directory, no broker may be running.

    Exit code: 0 done, 1 it could not be done or was not wanted, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    check_group_name(group)
    if evict and is_broker(place):
        raise WrongUsage("--evict is for a directory: a broker knows its members. Stop the consumers instead")
    check_can_ask("delete the group", yes=yes or dry_run)
    with errors_shown(), opened_groups(place, evicts=evict, read_only=dry_run, quiet=quiet) as groups:
        from duralog.cli.voice.tables import plural
        from duralog.config.error_text import printable

        count = groups.check(group)
        what = f"group {printable(group)} with {plural(count, 'offset')}"
        if not dry_run:
            confirm(f"Delete {what}?", yes=yes)
            groups.delete(group)
        output = standard_output(as_json=as_json, quiet=quiet)
        if as_json:
            output.object({"kind": "deleted", "group": group, "offsets": count, "dry_run": dry_run})
        elif not quiet:
            output.line(f"{'would delete' if dry_run else 'deleted'} {what}")
        output.flush()


def _views(target: str, group: str | None = None, *, is_shown: bool) -> list[GroupView]:
    if is_broker(target):
        from duralog.client.groups import BrokerGroups

        return BrokerGroups(target).views(None if group is None else [group])
    from duralog.cli.voice.opened_store import opened_store
    from duralog.cli.voice.progress import ProgressBar
    from duralog.operations.groups.stored_groups import groups_of_store

    with (
        opened_store(target, read_only=True, server_properties=None) as store,
        ProgressBar(wanted=is_shown) as bar,
    ):
        return [view for view in groups_of_store(store, on_progress=bar.show) if group in (None, view.group)]
