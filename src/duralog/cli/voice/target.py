"""The argument of commands that work on a log directory or on a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from duralog.cli.voice.failures import WrongUsage, errors_shown, say
from duralog.cli.voice.options import WHERE, place_given
from duralog.operations.addresses import is_broker, is_url, with_ports

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR|HOST:PORT",
        help="A log directory (what Kafka calls log.dirs), or a running broker.",
        show_default=False,
    ),
]
TargetData = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR|HOST:PORT",
        help="The directory or broker, instead of the argument.",
        rich_help_panel=WHERE,
    ),
]


ClientConfig = Annotated[
    str | None,
    typer.Option(
        "--config-file",
        metavar="FILE",
        help="How to log in to a broker: a client.properties of Kafka or librdkafka.",
        rich_help_panel=WHERE,
    ),
]


def target_given(argument: str | None, data: str | None, config_file: str | None = None) -> str:
    """The value of the argument DIR|HOST:PORT or of `--data`. A broker's address has a port."""
    place = place_given(argument, data, "DIR or HOST:PORT")
    if is_url(place):
        raise WrongUsage(f"{place!r} is a URL: give a directory of this machine, or a broker as HOST:PORT")
    if not is_broker(place):
        if config_file is not None:
            raise WrongUsage(f"--config-file is for a broker, but {place!r} is a directory: leave it out")
        return place
    address = with_ports(place)
    if config_file is not None:
        from duralog.client.profiles import read_profile, use_profile

        with errors_shown():
            use_profile(address, read_profile(config_file, say))
    return address
