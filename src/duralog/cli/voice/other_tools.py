"""Options of Kafka's tools and of other servers, and what to give here instead."""

from __future__ import annotations

from collections.abc import Container, Iterable

_BROKER = ("HOST:PORT", "give the broker's HOST:PORT as the argument")
_LISTEN = ("--listen", "give --listen HOST:PORT")
_DIRECTORY = ("DIR", "give the directory as the argument")
_LOGIN = ("--config-file", "give --config-file FILE")
_LIMIT = ("--limit", "give --limit N")

_INSTEAD = {
    **dict.fromkeys(("--bootstrap-server", "--bootstrap-servers", "--broker", "--brokers", "--broker-list"), _BROKER),
    **dict.fromkeys(("--port", "--host", "--bind", "--address"), _LISTEN),
    **dict.fromkeys(("--dir", "--directory", "--log-dir", "--log-dirs", "--path"), _DIRECTORY),
    **dict.fromkeys(("--command-config", "--consumer.config", "--producer.config"), _LOGIN),
    **dict.fromkeys(("--max-messages", "--count"), _LIMIT),
    "--from-beginning": ("--offset", "it begins there unless --offset, --time, --tail or --group is given"),
    "--print-data-log": ("--records", "give --records"),
    "--force": ("--yes", "give --yes"),
}
"""For each option, what a command must take for the advice to be right, and the advice."""


def instead_of(option: str, *, takes: Iterable[str], commands: Container[str]) -> str | None:
    """What to give in place of an option that a command does not have.

    `takes` are the options and metavars of the command, `commands` those of a group of commands.
    """
    name = option.lstrip("-")
    if name in commands:
        return f"{name} is a command: leave out the hyphens"
    needed, advice = _INSTEAD.get(option, (None, None))
    return advice if any(needed in each.split("|") for each in takes) else None
