"""Renders docs/reference/options.md from the commands themselves.

python docs/render_options.py           writes it
python docs/render_options.py --check   fails when it is stale
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rendering import main, table

from duralog.cli.voice.examples import EXAMPLES
from duralog.command_line import app

TARGET = Path(__file__).parent / "reference" / "options.md"

TEXT = """<!-- Made by render_options.py: change the commands in src/duralog. -->

# Every option

All commands and what they take, as `--help` says it. What they print, with examples and exit codes:
[commands](../commands.md). `python -m duralog` is the same as `duralog`.

{contents}

{commands}"""


def render() -> str:
    commands = list(leaves(typer.main.get_command(app), "duralog"))
    contents = "\n".join(f"- [`{name}`](#{name.replace(' ', '-')}): {summary(command)}" for name, command in commands)
    return TEXT.format(contents=contents, commands="\n".join(section(name, command) for name, command in commands))


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name, in the order of `--help`."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield name, command
        return
    for part, subcommand in subcommands.items():
        if not subcommand.hidden:
            yield from leaves(subcommand, f"{name} {part}")


def summary(command: Any) -> str:
    return re.split(r"(?<=[.:]) |\n\n", (command.help or "").strip(), maxsplit=1)[0].replace("\n", " ").rstrip(".:")


def section(name: str, command: Any) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    parts = [f"## {name}", text(command.help or ""), f"```\n{usage(name, arguments)}\n```"]
    if arguments:
        parts.append(
            table(("argument", "meaning"), [(f"`{metavar(each)}`", cell(each.help or "")) for each in arguments])
        )
    parts.append(table(("option", "meaning", "default"), [row(each) for each in options]))
    examples = EXAMPLES.get(name.removeprefix("duralog "))
    if examples is not None:
        parts.append("```\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(parts) + "\n"


def text(help_text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", help_text.replace("\b", "").strip())
    return "\n\n".join(" ".join(line.strip() for line in paragraph.splitlines()) for paragraph in paragraphs)


def usage(name: str, arguments: list[Any]) -> str:
    return " ".join(
        [name, *(metavar(each) if each.required else f"[{metavar(each)}]" for each in arguments), "[OPTIONS]"]
    )


def metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def row(option: Any) -> tuple[str, str, str]:
    takes = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    names = [f"`{name}{takes if name.startswith('--') else ''}`" for name in (*option.opts, *option.secondary_opts)]
    again = " May be given again." if option.multiple and "again" not in (option.help or "") else ""
    default = option.default if isinstance(option.default, str | int | float) and not option.is_flag else ""
    return (
        ", ".join(names).replace("|", "\\|"),
        cell((option.help or "") + again),
        cell(f"`{default}`" if default != "" else ""),
    )


def cell(content: str) -> str:
    return " ".join(content.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(Path(__file__), __doc__, TARGET, render))
