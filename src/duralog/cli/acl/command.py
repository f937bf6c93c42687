"""`duralog acl`: who may do what, in a log directory or on a running broker.

This module is the command line; `entries` makes entries and filters of its options. In a directory they are records of
the metadata log, as a broker writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.completions import topic_names
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import (
    WHAT,
    WHICH,
    AsJson,
    Quiet,
    Yes,
    check_can_ask,
    check_text,
    confirm,
    standard_output,
)
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.cli.acl.entries import Choice
    from duralog.cli.voice.output import Output
    from duralog.operations.acls import Acls
    from duralog.storage.metadata.acls import Acl

acl_app = typer.Typer(
    name="acl",
    cls=CommandGroup,
    help="List, add and remove access control lists.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _texts(param: typer.CallbackParam, texts: list[str] | None) -> list[str]:
    for text in texts or ():
        check_text(param.opts[0], text)
    return texts or []


Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="A topic, or * for all; may be given again.",
        rich_help_panel=WHICH,
        autocompletion=topic_names,
        callback=_texts,
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        help="A group, or * for all; may be given again.",
        rich_help_panel=WHICH,
        callback=_texts,
    ),
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option(
        "--transactional-id",
        metavar="NAME",
        help="A transactional id, or * for all; may be given again.",
        rich_help_panel=WHICH,
        callback=_texts,
    ),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.", rich_help_panel=WHICH)]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--resource-pattern-type",
        metavar="NAME",
        help="How names match: literal or prefixed; to list or remove also any or match.",
        rich_help_panel=WHICH,
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME",
        help="An operation: read, write, describe, ...; may be given again.",
        rich_help_panel=WHAT,
        callback=_texts,
    ),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-principal",
        metavar="NAME",
        help="Who is allowed, as User:NAME; User:* for everyone. May be given again.",
        rich_help_panel=WHAT,
        callback=_texts,
    ),
]
Denied = Annotated[
    list[str] | None,
    typer.Option(
        "--deny-principal",
        metavar="NAME",
        help="Who is denied, as User:NAME; overrides allowed. May be given again.",
        rich_help_panel=WHAT,
        callback=_texts,
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="An address from which it is allowed; all if none is given.",
        rich_help_panel=WHAT,
        callback=_texts,
    ),
]
DeniedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--deny-host",
        metavar="NAME",
        help="An address from which it is denied; all if none is given.",
        rich_help_panel=WHAT,
        callback=_texts,
    ),
]
Producer = Annotated[
    bool,
    typer.Option(
        "--producer", help="What a producer of the topics needs, instead of --operation.", rich_help_panel=WHAT
    ),
]
Consumer = Annotated[
    bool,
    typer.Option("--consumer", help="What a consumer of the topics in the groups needs.", rich_help_panel=WHAT),
]
Idempotent = Annotated[
    bool,
    typer.Option("--idempotent", help="With --producer: also the right to be idempotent.", rich_help_panel=WHAT),
]


@acl_app.command("list")
def list_acls(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    pattern: Pattern = None,
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="Only entries for this principal; may be given again.",
            rich_help_panel=WHICH,
            callback=_texts,
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List access control entries.

    All entries, or those of some resources. --resource-pattern-type match finds every entry that applies to a name:
    literal, prefixed and *. Nothing is changed.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown():
        from duralog.cli.acl.entries import filters_of

        filters = filters_of(_choice((topic, group, transactional_id, cluster, pattern)), "any")
        if principal:
            filters = [each._replace(principal=name) for each in filters for name in principal]
        with _opened(place, read_only=True, quiet=quiet) as acls:
            found = dict.fromkeys(acl for each in filters for acl in acls.find(each))
        output = standard_output(as_json=as_json, quiet=quiet)
        _write(list(found), output)
        if not found and not as_json:
            output.columns("(no entries)")
        output.flush()


@acl_app.command("add")
def add_acls(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    pattern: Pattern = None,
    operation: Operations = None,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add access control entries.

    Adds one for each resource, principal, host and operation. Without --operation: all. Existing entries are kept. A
    broker checks them if authorizer.class.name is set.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown():
        from duralog.cli.acl.entries import new_acls

        wanted = new_acls(
            _choice(
                (topic, group, transactional_id, cluster, pattern),
                (operation, allow_principal, deny_principal, allow_host, deny_host),
                (producer, consumer, idempotent),
            )
        )
        with _opened(place, read_only=False, quiet=quiet) as acls:
            acls.add(wanted)
        output = standard_output(as_json=as_json, quiet=quiet)
        _write(wanted, output)
        output.flush()


@acl_app.command("remove")
def remove_acls(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    pattern: Pattern = None,
    operation: Operations = None,
    allow_principal: Allowed = None,
    deny_principal: Denied = None,
    allow_host: AllowedHosts = None,
    deny_host: DeniedHosts = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    yes: Yes = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Remove access control entries.

    Removes those of the named resources. Principals, hosts and operations narrow the choice; without them, all entries
    of the resources are removed. The removed entries are shown.

    Exit code: 0 done, 1 it could not be done or was not wanted, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    check_can_ask("remove the entries", yes=yes)
    with errors_shown():
        from duralog.cli.acl.entries import filters_of
        from duralog.cli.voice.tables import plural

        choice = _choice(
            (topic, group, transactional_id, cluster, pattern),
            (operation, allow_principal, deny_principal, allow_host, deny_host),
            (producer, consumer, idempotent),
        )
        if not choice.resources:
            raise WrongUsage("of what? Give --topic, --group, --transactional-id or --cluster")
        filters = filters_of(choice, "literal")
        with _opened(place, read_only=False, quiet=quiet) as acls:
            if not yes:
                found = dict.fromkeys(acl for each in filters for acl in acls.find(each))
                confirm(f"Remove {plural(len(found), 'entry')}?", yes=yes)
            removed = acls.remove(filters)
        output = standard_output(as_json=as_json, quiet=quiet)
        _write(removed, output)
        if not removed and not as_json:
            output.columns("(no entries)")
        output.flush()


@contextmanager
def _opened(place: str, *, read_only: bool, quiet: bool) -> Iterator[Acls]:
    if is_broker(place):
        from duralog.client.acls import BrokerAcls

        yield BrokerAcls(place)
        return
    from duralog.cli.voice.opened_store import opened_store
    from duralog.operations.acls import DirectoryAcls

    with opened_store(place, read_only=read_only, server_properties=None, quiet=quiet) as store:
        yield DirectoryAcls(store)


def _choice(
    resources: tuple[list[str] | None, list[str] | None, list[str] | None, bool, str | None],
    permissions: tuple[list[str] | None, ...] = (None,) * 5,
    shortcuts: tuple[bool, bool, bool] = (False,) * 3,
) -> Choice:
    from duralog.cli.acl.entries import Choice

    topics, groups, transactional_ids, is_cluster, pattern = resources
    operations, allowed, denied, allowed_hosts, denied_hosts = (each or () for each in permissions)
    is_producer, is_consumer, is_idempotent = shortcuts
    return Choice(
        topics=topics or (),
        groups=groups or (),
        transactional_ids=transactional_ids or (),
        is_cluster=is_cluster,
        pattern=pattern,
        operations=operations,
        allowed=allowed,
        denied=denied,
        allowed_hosts=allowed_hosts,
        denied_hosts=denied_hosts,
        is_producer=is_producer,
        is_consumer=is_consumer,
        is_idempotent=is_idempotent,
    )


def _write(acls: Sequence[Acl], output: Output) -> None:
    from duralog.cli.acl.entries import NAMES, cells_of, in_order, object_of
    from duralog.cli.voice.tables import write_table
    from duralog.config.error_text import printable

    ordered = in_order(acls)
    if output.as_json:
        for acl in ordered:
            output.object(object_of(acl))
    elif ordered and not output.quiet:
        rows = [[printable(cell) for cell in cells_of(acl)] for acl in ordered]
        write_table(output, NAMES, rows, cut=("name", "principal"))
