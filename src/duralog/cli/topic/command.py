"""`duralog topic`: the topics of a log directory, or of a running broker.

This module is the command line; `topics_of_store` and `topics_of_broker` show what it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.topic.move import move
from duralog.cli.voice.completions import topic_config_names, topic_config_settings
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import (
    HOW,
    WHAT,
    AsJson,
    NoProgress,
    Quiet,
    ServerProperties,
    TopicChoice,
    TopicName,
    Yes,
    check_can_ask,
    config_settings,
    confirm,
    standard_output,
)
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.cli.voice.unknown_names import names_checked
from duralog.errors import TopicExists
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.client.topics import BrokerTopics

topic_app = typer.Typer(
    name="topic",
    cls=CommandGroup,
    help="List, describe, create, alter, move and delete topics.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME=VALUE",
        help="A config of the topic; may be given again.",
        rich_help_panel=WHAT,
        autocompletion=topic_config_settings,
    ),
]


@topic_app.command("list")
def list_topics(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    topic: TopicChoice = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> None:
    """List topics.

    Each with its id, partitions, offsets, size and own configs. Nothing is changed.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown(), names_checked(place, topic):
        from duralog.cli.topic import topics_of_broker, topics_of_store
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import opened_store

        say_warnings(wanted=not quiet)
        output = standard_output(as_json=as_json, quiet=quiet)
        if is_broker(place):
            is_well = topics_of_broker.write_list(_of_broker(place).views(topic), place, output)
        else:
            with opened_store(place, read_only=True, server_properties=server_properties) as store:
                is_well = topics_of_store.write_list(store, topic, output, is_shown=not (no_progress or quiet))
        output.flush()
        if not is_well:
            raise typer.Exit(1)


@topic_app.command()
def describe(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    topic: TopicChoice = None,
    all_configs: Annotated[
        bool, typer.Option("--all", "-a", help="Also the configs that have their default.", rich_help_panel=HOW)
    ] = False,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show partitions with offsets and sizes, and configs.

    For each config, where its value comes from. Nothing is changed.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown(), names_checked(place, topic):
        from duralog.cli.topic import topics_of_broker, topics_of_store
        from duralog.cli.topic.views import write_no_topics
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import opened_store

        say_warnings(wanted=not quiet)
        output = standard_output(as_json=as_json, quiet=quiet)
        is_well = True
        if is_broker(place):
            topics = _of_broker(place).views(topic)
            is_well = topics_of_broker.write_descriptions(topics, place, output, all_configs=all_configs)
        else:
            with opened_store(place, read_only=True, server_properties=server_properties) as store:
                names = store.topics() if topic is None else [topic]
                if not names:
                    write_no_topics(store.path, output)
                for name in names:
                    is_well &= topics_of_store.write_description(store, name, output, all_configs=all_configs)
        output.flush()
        if not is_well:
            raise typer.Exit(1)


@topic_app.command()
def create(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    topic: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            min=1,
            help="The number of partitions; by default the broker's num.partitions.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            metavar="N",
            min=1,
            help="The number of copies: 1 in a directory and in a duralog broker.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    config: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.", rich_help_panel=HOW)
    ] = False,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Create a topic, and the directory if it does not exist.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    settings = config_settings(config)
    if replication_factor not in (None, 1) and not is_broker(place):
        raise WrongUsage(
            f"--replication-factor: {replication_factor} copies need {replication_factor} brokers, but a directory "
            f"belongs to one: give 1"
        )
    with errors_shown():
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import opened_store

        is_new = True

        say_warnings(wanted=not quiet)
        output = standard_output(as_json=as_json, quiet=quiet)
        if is_broker(place):
            topics = _of_broker(place)
            try:
                topic_id, count = topics.create(topic, partitions, settings, replication_factor=replication_factor)
            except TopicExists as error:
                if not if_not_exists:
                    raise _advised(error, place) from None
                is_new = False
                topic_id, count = topics.found(topic)
        else:
            with opened_store(
                place, read_only=False, server_properties=server_properties, create=True, quiet=quiet
            ) as store:
                is_new = topic not in store.topics()
                try:
                    topic_id = store.create_topic(topic, partitions, settings, exist_ok=if_not_exists)
                except TopicExists as error:
                    raise _advised(error, place) from None
                count = len(store.partitions(topic))
        if as_json:
            output.object(
                {"kind": "created" if is_new else "exists", "topic": topic, "topic_id": topic_id, "partitions": count}
            )
        elif not quiet:
            verb = f"created {topic}" if is_new else f"{topic} exists,"
            output.line(f"{verb} with {count:,} {'partition' if count == 1 else 'partitions'}, id {topic_id}")
        output.flush()


def _advised(error: TopicExists, place: str) -> TopicExists:
    advice = f"duralog topic describe {place} shows it, topic alter changes it"
    return TopicExists(f"{str(error).removesuffix('.')}: {advice}")


@topic_app.command()
def alter(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    topic: TopicName,
    config: Settings = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="NAME",
            help="Remove this config, so that its default applies; may be given again.",
            rich_help_panel=WHAT,
            autocompletion=topic_config_names,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="N",
            min=1,
            help="Add partitions up to this number.",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = None,
    server_properties: ServerProperties = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Set or remove configs, or add partitions.

    Shows the number of partitions and the configs that are set afterwards.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    changes: dict[str, object] = {**dict.fromkeys(delete_config or ()), **config_settings(config)}
    if not changes and partitions is None:
        raise WrongUsage("give --config, --delete-config or --partitions")
    if twice := set(delete_config or ()) & config_settings(config).keys():
        raise WrongUsage(f"{', '.join(sorted(twice))}: either set it or remove it")
    with errors_shown(), names_checked(place, topic):
        from duralog.cli.topic import topics_of_broker, topics_of_store
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import opened_store
        from duralog.operations.stored_topics import StoreTopics

        say_warnings(wanted=not quiet)
        output = standard_output(as_json=as_json, quiet=quiet)
        if is_broker(place):
            of_broker = _of_broker(place)
            of_broker.alter(topic, changes, partitions)
            topics_of_broker.write_descriptions(of_broker.views(topic), place, output, with_partitions=False)
            output.flush()
            return
        with opened_store(place, read_only=False, server_properties=server_properties, quiet=quiet) as store:
            StoreTopics(store).alter(topic, changes, partitions)
            topics_of_store.write_description(store, topic, output, with_partitions=False)
        output.flush()


topic_app.command()(move)


@topic_app.command()
def delete(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    topic: TopicName,
    yes: Yes = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Delete a topic with all its records, permanently.

    Exit code: 0 done, 1 it could not be done or was not wanted, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    check_can_ask("delete the topic", yes=yes)
    with errors_shown(), names_checked(place, topic):
        from duralog.cli.voice.logs import say_warnings
        from duralog.cli.voice.opened_store import opened_store
        from duralog.cli.voice.tables import plural, size_text
        from duralog.operations.stored_topics import StoreTopics

        say_warnings(wanted=not quiet)
        output = standard_output(as_json=as_json, quiet=quiet)
        if is_broker(place):
            count = _of_broker(place).count(topic)
            confirm(f"Delete {topic}: {plural(count, 'partition')}?", yes=yes)
            _of_broker(place).delete(topic)
            if as_json:
                output.object({"kind": "deleted", "topic": topic, "partitions": count, "bytes": None})
            elif not quiet:
                output.line(f"deleted {topic}: {plural(count, 'partition')}")
            output.flush()
            return
        with opened_store(place, read_only=False, server_properties=None, quiet=quiet) as store:
            count, size_bytes = StoreTopics(store).size(topic)
            what = f"{topic}: {plural(count, 'partition')}, {size_text(size_bytes)}"
            confirm(f"Delete {what}?", yes=yes)
            store.delete_topic(topic)
        if as_json:
            output.object({"kind": "deleted", "topic": topic, "partitions": count, "bytes": size_bytes})
        elif not quiet:
            output.line(f"deleted {what}")
        output.flush()


def _of_broker(address: str) -> BrokerTopics:
    from duralog.client.topics import BrokerTopics

    return BrokerTopics(address)
