"""The group `duralog job`: commands that exist on Spark only, and aliases of those that do with `--engine spark`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from duralog.cli.voice.engine import ON_SPARK
from duralog.cli.voice.help_pages import CommandGroup

job_app = typer.Typer(
    name="job",
    cls=CommandGroup,
    help="Work on whole directories with Spark, on a cluster too.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Location = Annotated[
    str | None,
    typer.Argument(metavar="DIR", help="A log directory, as all machines of the cluster see it.", show_default=False),
]


def add_alias(
    command: Callable[..., None],
    *,
    without: tuple[str, ...] = ("threads",),
    summary: str | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Register `duralog job NAME` for `duralog NAME --engine spark`, without the parameters of threads.

    `summary` is for a command whose own one names what only threads can do.
    """
    signature = inspect.signature(command, eval_str=True)
    kept = [each for name, each in signature.parameters.items() if name not in (*without, "engine")]
    name = command.__name__

    def run(**given: Any) -> None:
        command(**given, engine=ON_SPARK)

    own_summary, _, rest = inspect.cleandoc(command.__doc__ or "").partition("\n\n")
    codes = rest[rest.index("Exit code:") :]
    run.__doc__ = (
        f"{summary or own_summary}\n\nThe same as duralog {name} --engine spark: duralog {name} --help shows more. All"
        f" machines of the cluster must see DIR under the same path.\n\n{codes}"
    )
    run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in kept}
    job_app.command(name, context_settings=settings)(run)
