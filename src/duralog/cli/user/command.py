"""`duralog user`: SCRAM credentials of users, in a directory or on a running broker.

A password is never an argument, which other users of the machine could see: it is typed, or read from a file.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.help_pages import CommandGroup
from duralog.cli.voice.options import (
    HOW,
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
from duralog.errors import DuralogError

if TYPE_CHECKING:
    from duralog.cli.voice.output import Output

user_app = typer.Typer(
    name="user",
    cls=CommandGroup,
    help="Users that log in by SCRAM, and lines for users files.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

UserName = Annotated[
    str, typer.Option("--user", "-u", metavar="NAME", help="The user.", rich_help_panel=WHICH, show_default=False)
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="SCRAM-SHA-256 or SCRAM-SHA-512; may be given again. Both by default.",
        rich_help_panel=WHICH,
    ),
]
PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the password in its first line; - is standard input. Without it, you are prompted.",
        rich_help_panel=HOW,
    ),
]
_LEAST_ITERATIONS, _MOST_ITERATIONS = 4096, 16384


@user_app.command()
def add(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    user: UserName,
    mechanism: Mechanisms = None,
    password_file: PasswordFile = None,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations",
            min=_LEAST_ITERATIONS,
            max=_MOST_ITERATIONS,
            metavar="N",
            help="How often the password is hashed: more makes passwords of a stolen directory harder to guess, and"
            " log-ins slower.",
            rich_help_panel=HOW,
        ),
    ] = _LEAST_ITERATIONS,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Add a user, or change its password.

    A missing directory is created, so that a broker can start with its first user.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    _check_name(user)
    with errors_shown():
        from duralog.cli.user.users import mechanisms_given, opened_users

        mechanisms = mechanisms_given(mechanism)
        password = _password(password_file)
        with opened_users(place, read_only=False, create=True, quiet=quiet) as users:
            users.set(user, mechanisms, password, iterations)
        output = standard_output(as_json=as_json, quiet=quiet)
        for each in mechanisms:
            fields = {"user": user, "mechanism": each.mechanism_name, "iterations": iterations}
            _write(output, fields, "is set", as_json=as_json)
        output.flush()


@user_app.command("list")
def list_users(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List users with their mechanisms and iterations.

    Nothing is changed.

    Exit code: 0 done, 1 something cannot be read, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    with errors_shown():
        from duralog.cli.user.users import opened_users
        from duralog.cli.voice.tables import write_table

        output = standard_output(as_json=as_json, quiet=quiet)
        with opened_users(place, read_only=True, quiet=quiet) as users:
            found = users.list()
        if as_json:
            for name, mechanism, iterations in found:
                output.object({"user": name, "mechanism": mechanism.mechanism_name, "iterations": iterations})
        elif found:
            rows = [(name, mechanism.mechanism_name, str(iterations)) for name, mechanism, iterations in found]
            write_table(output, ("user", "mechanism", "iterations"), rows)
        else:
            output.line(f"There are no users in {place}: add one with duralog user add {place} --user NAME")
        output.flush()


@user_app.command()
def delete(
    target: Target = None,
    data: TargetData = None,
    config_file: ClientConfig = None,
    *,
    user: UserName,
    mechanism: Mechanisms = None,
    yes: Yes = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Delete a user: it cannot log in any more.

    Open connections stay open.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    place = target_given(target, data, config_file)
    _check_name(user)
    check_can_ask("delete the user", yes=yes)
    with errors_shown():
        from duralog.cli.user.users import mechanisms_given, opened_users

        wanted = mechanisms_given(mechanism)
        with opened_users(place, read_only=False, quiet=quiet) as users:
            present = [each for name, each, _ in users.list() if name == user and each in wanted]
            if not present:
                raise DuralogError(f"there is no user {user} in {place}: see duralog user list {place}")
            confirm(f"Delete the user {user}?", yes=yes)
            users.delete(user, present)
        output = standard_output(as_json=as_json, quiet=quiet)
        for each in present:
            _write(output, {"user": user, "mechanism": each.mechanism_name}, "is deleted", as_json=as_json)
        output.flush()


@user_app.command()
def entry(
    *,
    user: UserName,
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="NAME",
            help="What the user may do in the console: look, change or administer. For /metrics, look is enough.",
            rich_help_panel=WHICH,
        ),
    ] = "look",
    token: Annotated[
        bool,
        typer.Option(
            "--token",
            help="For a program: create a random token, which is shown once, on standard error.",
            rich_help_panel=HOW,
        ),
    ] = False,
    password_file: PasswordFile = None,
) -> None:
    """Print a line for the users file of the console or /metrics.

    It holds a salted hash of the password, or of a token. Nothing is changed.

    Exit code: 0 done, 1 it could not be done, 2 wrong usage.
    """
    _check_name(user)
    if len(user.split()) != 1 or user.startswith(("#", "*")):
        raise WrongUsage("--user: a name has no spaces, and does not start with # or *")
    if token and password_file is not None:
        raise WrongUsage("--token and --password-file: give one of them")
    with errors_shown():
        from duralog.broker.security.web_users import Role, password_entry, token_entry

        chosen = Role.of(role)
        if token:
            line, secret = token_entry(user, chosen)
            typer.echo(line)
            typer.echo(f"token: {secret}", err=True)
        else:
            typer.echo(password_entry(user, chosen, _password(password_file)))


def _write(output: Output, fields: dict[str, object], verb: str, *, as_json: bool) -> None:
    if as_json:
        output.object(fields)
    else:
        output.line(f"{fields['user']}: {fields['mechanism']} {verb}")


def _check_name(user: str) -> None:
    check_text("--user", user)
    if not user:
        raise WrongUsage("--user must not be empty")


def _password(path: str | None) -> str:
    if path is None:
        if not sys.stdin.isatty():
            raise WrongUsage("there is no terminal to ask for the password: give --password-file FILE, or - for stdin")
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    if path == "-":
        line = sys.stdin.readline()
    else:
        with open(path, encoding="utf-8") as file:
            line = file.readline()
    password = line.rstrip("\r\n")
    if not password:
        raise DuralogError(f"{path}: the first line is empty: expected a password")
    return password
