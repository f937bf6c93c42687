"""The layout of help: commands in panels, paragraphs that fill the terminal, flags without a type, examples at the end.

`CommandGroup` is the class of every group of commands: `typer.Typer(cls=CommandGroup)`.
"""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup

from duralog.cli.voice.examples import epilog_of
from duralog.cli.voice.options import OPTION_PANELS
from duralog.cli.voice.other_tools import instead_of

# What `duralog --help` lists together, in this order.
TALK = "Serve and talk"
LOOK = "Look"
LOOK_AFTER = "Look after"
PIPELINE = "Pipeline"
TOOLS = "Tools"
_NO_SUCH_OPTION = "NoSuchOption"
"""A class of click, of which typer may have its own copy, without a public name."""
PANELS = (TALK, LOOK, LOOK_AFTER, PIPELINE, TOOLS)


class CommandGroup(TyperGroup):
    """Lists its commands by panel; the commands of a panel in the order in which they were registered."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        def panel(name: str) -> int:
            title = getattr(self.commands[name], "rich_help_panel", None)
            return PANELS.index(title) if title in PANELS else len(PANELS)

        return sorted(self.commands, key=panel)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _tidy(command, ctx)
            command.epilog = epilog_of(_name_of(ctx, cmd_name)) or command.epilog
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if type(error).__name__ == _NO_SUCH_OPTION:
                _advise(error)
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        _tidy(self, ctx, own=super().get_params(ctx))
        return list(super().get_params(ctx))


def _advise(error: Any) -> None:
    command = error.ctx.command
    takes = [name for each in command.params for name in (*each.opts, each.metavar or "")]
    advice = instead_of(error.option_name, takes=takes, commands=getattr(command, "commands", ()))
    if advice is not None:
        error.message, error.possibilities = f"{error.message}: {advice}", None


def _name_of(ctx: Any, name: str) -> str:
    """The whole name of a command, without `duralog`."""
    while ctx.parent is not None:
        name = f"{ctx.info_name} {name}"
        ctx = ctx.parent
    return name


def _tidy(command: Any, ctx: Any, own: list[Any] | None = None) -> None:
    command.help = _flowing(command.help)
    command.params.sort(key=_panel_of_option)
    shown = command.get_help_option(ctx)
    if shown is not None:
        shown.help = "Show this message and exit."
    for parameter in (*(command.params if own is None else own), *([] if shown is None else [shown])):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _without_type  # Otherwise help shows <str>.
        elif parameter.is_flag:
            parameter.metavar = ""


def _panel_of_option(parameter: Any) -> int:
    title = getattr(parameter, "rich_help_panel", None)
    return OPTION_PANELS.index(title) if title in OPTION_PANELS else -1


def _without_type(ctx: Any) -> None:
    pass


def _flowing(text: str | None) -> str | None:
    """Paragraphs without the line breaks of the source."""
    if text is None:
        return None
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
