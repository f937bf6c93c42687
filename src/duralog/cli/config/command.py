"""`duralog config`: the broker configs of a log directory, or of a running broker.

This module is the command line; `duralog.operations.broker_configs` reads and changes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.completions import broker_config_names, broker_config_settings
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import HOW, WHICH, AsJson, Quiet, check_text, named_values, standard_output
from duralog.cli.voice.target import ClientConfig, Target, TargetData, target_given
from duralog.config.error_text import printable
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output
    from duralog.config.entries import Entry

config_app = typer.Typer(
    name="config",
    cls=CommandGroup,
    help="List, show, set and reset broker configs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_NAMES = ("config", "value", "from")
_SOURCES = {1: "topic", 2: "this broker", 3: "all brokers", 4: "start", 5: "default"}
_SECRET = "(hidden)"

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Configs by their names in Kafka.",
        show_default=False,
        autocompletion=broker_config_names,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE",
        help="Configs by their names in Kafka, with their values.",
        show_default=False,
        autocompletion=broker_config_settings,
    ),
]
StartedWith = Annotated[
    str | None,
    typer.Option(
        "--server-properties",
        metavar="FILE",
        help="Of a directory: the server.properties that the broker is started with.",
        rich_help_panel=HOW,
    ),
]


@config_app.command("list")
def list_configs(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    all_configs: Annotated[
        bool, typer.Option("--all", "-a", help="Also the configs that have their default.", rich_help_panel=HOW)
    ] = False,
    server_properties: StartedWith = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List the broker configs that differ from Kafka's defaults.

    For each, where its value comes from: stored in the metadata log for this broker or for all brokers, or given at the
    start. Stored values that have no effect are listed below. Nothing is changed.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown():
        from duralog.cli.config.opened_configs import opened_configs

        with opened_configs(place, read_only=True, server_properties=server_properties) as configs:
            entries = [entry for entry in configs.entries(configs.own) if all_configs or _is_set(entry)]
            reasons = configs.ignored
        output = standard_output(as_json=as_json, quiet=quiet)
        if entries or as_json:
            _write(entries, reasons, output)
        else:
            output.columns("(no configs but Kafka's defaults; --all lists them)")
        output.flush()


@config_app.command("get")
def get_configs(
    target: Target = None,
    names: Names = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    server_properties: StartedWith = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show the values of single broker configs.

    Nothing is changed.

    Exit code: 0 done, 1 there is no such config or it could not be read, 2 wrong usage, 130 interrupted.
    """
    place, wanted = _place_and_words(target, names, data, config_file, "NAME")
    with errors_shown():
        from duralog.cli.config.opened_configs import opened_configs
        from duralog.operations.broker_configs import chosen_entries

        with opened_configs(place, read_only=True, server_properties=server_properties) as configs:
            entries, reasons = chosen_entries(configs, wanted), configs.ignored
        output = standard_output(as_json=as_json, quiet=quiet)
        _write(entries, reasons, output)
        output.flush()


@config_app.command("set")
def set_configs(
    target: Target = None,
    settings: Changes = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    for_all: Annotated[
        bool,
        typer.Option(
            "--all-brokers", help="For all brokers of the cluster instead of this one.", rich_help_panel=WHICH
        ),
    ] = False,
    server_properties: StartedWith = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Set broker configs that can change while a broker runs.

    They are stored in the metadata log, where Kafka keeps them, and override server.properties. A running broker
    applies them at once. For the configs of a topic: duralog topic alter.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place, words = _place_and_words(target, settings, data, config_file, "NAME=VALUE")
    changes = named_values("NAME=VALUE", words)
    for value in changes.values():
        check_text("NAME=VALUE", value)
    with errors_shown():
        from duralog.cli.config.opened_configs import opened_configs
        from duralog.operations import broker_configs

        with opened_configs(place, read_only=False, server_properties=server_properties, quiet=quiet) as configs:
            broker_configs.set_configs(configs, changes, for_all=for_all)
        _show_changed(place, list(changes), server_properties, standard_output(as_json=as_json, quiet=quiet))


@config_app.command("reset")
def reset_configs(
    target: Target = None,
    names: Names = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    server_properties: StartedWith = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Remove stored broker configs, so that they have no effect.

    Both for this broker and for all brokers. Then the value given at the start, or Kafka's default, applies again.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place, wanted = _place_and_words(target, names, data, config_file, "NAME")
    with errors_shown():
        from duralog.cli.config.opened_configs import opened_configs
        from duralog.operations import broker_configs

        with opened_configs(place, read_only=False, server_properties=server_properties, quiet=quiet) as configs:
            were_set = broker_configs.reset_configs(configs, wanted)
        output = standard_output(as_json=as_json, quiet=quiet)
        for name in wanted:
            if name not in were_set:
                output.note(name, "it was not set")
        _show_changed(place, wanted, server_properties, output)


def _place_and_words(
    target: str | None, words: Iterable[str] | None, data: str | None, config_file: str | None, metavar: str
) -> tuple[str, list[str]]:
    """The directory or broker, and the other arguments. With `--data`, all arguments are names."""
    given = list(words or ())
    is_place = False
    if target is not None:
        is_place = is_broker(target) or os.path.isdir(target)
        if data is not None and not is_place:
            given = [target, *given]
            target = None
    place = target_given(target, data, config_file)
    if given:
        return place, list(dict.fromkeys(given))
    if is_place or data is not None:
        raise WrongUsage(f"which config? Give {metavar} after the directory or broker")
    raise WrongUsage(f"where? {place!r} is the only argument: give DIR or HOST:PORT, or --data, and {metavar}")


def _show_changed(place: str, names: list[str], server_properties: str | None, output: Output) -> None:
    """Read them again from a read-only store: one that is open for writing adds configs of its own."""
    if output.quiet and not output.as_json:
        return
    from duralog.cli.config.opened_configs import opened_configs

    with opened_configs(place, read_only=True, server_properties=server_properties) as configs:
        entries = [entry for entry in configs.entries(configs.own) if entry.name in names]
        reasons = configs.ignored
    _write(entries, reasons, output)
    output.flush()


def _is_set(entry: Entry) -> bool:
    from duralog.config.entries import DEFAULT_SOURCE
    from duralog.operations.broker_configs import without_effect

    return entry.in_force_from != DEFAULT_SOURCE or bool(without_effect(entry))


def _write(entries: list[Entry], reasons: Mapping[str, str], output: Output) -> None:
    from duralog.cli.voice.tables import write_table
    from duralog.operations.broker_configs import without_effect

    if output.as_json:
        for entry in entries:
            output.object(
                {
                    "kind": "config",
                    "config": entry.name,
                    "value": entry.text,
                    "source": _SOURCES.get(entry.in_force_from, "unknown"),
                    "read_only": entry.read_only,
                    "without_effect": [
                        {"value": value.text, "source": _SOURCES[value.source], "reason": reasons.get(entry.name)}
                        for value in without_effect(entry)
                    ],
                }
            )
        return
    rows = [[printable(entry.name), _shown(entry), _SOURCES.get(entry.in_force_from, "unknown")] for entry in entries]
    if rows:
        write_table(output, _NAMES, rows, cut=("value",))
    for entry in entries:
        why = f": {reasons[entry.name]}" if entry.name in reasons else ""
        for value in without_effect(entry):
            output.note(entry.name, f"{value.text!r} is stored for {_SOURCES[value.source]} and has no effect{why}")


def _shown(entry: Entry) -> str:
    if entry.kind == "password":
        return _SECRET
    if entry.text is None:
        return "-"
    return printable(entry.text) or '""'
