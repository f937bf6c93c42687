"""`duralog console`: a web page on a log directory or a broker. This module is the command line; `app` is what runs.

| what is seen | where |
|---|---|
| one line when the page can be opened: `duralog console is ready on http://HOST:PORT/` | standard output |
| everything else, one line each | standard error |

SIGTERM and Ctrl-C stop it cleanly, with exit code 0, as they stop `duralog serve`.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from duralog.cli.voice.addresses import is_broker, with_ports
from duralog.cli.voice.failures import errors_shown, say
from duralog.cli.voice.options import HOW, WHERE, Quiet, parsed
from duralog.cli.voice.target import Target, target_given
from duralog.errors import DuralogError, MissingExtra

DEFAULT_ADDRESS = "127.0.0.1:8090"


def console(
    target: Target = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            help="The log directory; together with a broker's HOST:PORT, the directory that it serves.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            "-l",
            metavar="HOST:PORT",
            help="Where the page is served; port 0 takes a free one.",
            rich_help_panel=WHERE,
        ),
    ] = DEFAULT_ADDRESS,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Where the broker serves /metrics: the health page then shows its cleaner at work.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="The page may start compactions. Without it, it shows the command to type instead.",
            rich_help_panel=HOW,
        ),
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open the page in a browser.", rich_help_panel=HOW)
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Show a directory or a broker as a web page, live.

    It serves until SIGTERM or Ctrl-C.

    Exit code: 0 stopped, 1 it cannot be shown or the address is taken, 2 wrong usage.
    """
    place, directory = _places(target, data)
    with errors_shown():
        _check_toolkit()
        from duralog.broker.net.listening import Address, bind, is_loopback, parse_address
        from duralog.cli.voice.logs import log_to_standard_error

        address = parsed("--listen", parse_address, listen)
        log_to_standard_error(quiet=quiet)
        try:
            listener = bind(address)
        except OSError as error:
            raise DuralogError(f"{error.strerror} (--listen HOST:0 takes a free port)") from None
        with listener:
            from duralog.console.app import run
            from duralog.console.sources.opening import open_source

            # By the socket, not by the name: no name at all means every interface.
            reached, port = listener.getsockname()[:2]
            bound = Address(address.host or "localhost", port)
            if not is_loopback(reached) and not quiet:
                can = "read every record and start compactions" if allow_changes else "read every record"
                say(f"warning: everyone who can reach {Address(reached, port)} can {can}: there are no passwords")
            source = open_source(place, data=directory, allow_changes=allow_changes, metrics=metrics)
            try:
                page = f"http://{bound}/"
                run(source, listener, host=address.host, when_ready=lambda: _announce(page, browse=not no_browser))
            finally:
                source.close()


def _places(target: str | None, data: str | None) -> tuple[str, str | None]:
    """What to open, and the directory of a broker, where both are given."""
    if target is not None and data is not None and is_broker(target) and not is_broker(data):
        return with_ports(target), data
    return target_given(target, data), None


def _check_toolkit() -> None:
    try:
        import nicegui  # noqa: F401
    except ImportError:
        raise MissingExtra("to show a web page", "nicegui", extra="console") from None


def _announce(page: str, *, browse: bool) -> None:
    typer.echo(f"duralog console is ready on {page}")
    sys.stdout.flush()
    if browse and _has_screen():
        import threading
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()


def _has_screen() -> bool:
    """A browser of the text terminal would take the terminal away."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
