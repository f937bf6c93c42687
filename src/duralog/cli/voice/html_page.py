"""The option `--html`: a report as one file for a browser, and writing it."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from duralog.cli.voice.failures import CannotWrite
from duralog.cli.voice.options import HOW
from duralog.config.error_text import describe

HtmlPage = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write a page with charts, as one self-contained file.",
        show_default=False,
        rich_help_panel=HOW,
    ),
]


def check_page_place(file: str) -> None:
    """Fail early if the page cannot be written."""
    folder = os.path.dirname(os.path.abspath(file))
    if not os.path.isdir(folder):
        raise CannotWrite(f"--html {file}: there is no directory {folder}: create it first, or name a file elsewhere")
    if os.path.isdir(file):
        raise CannotWrite(f"--html {file}: this is a directory: name a file in it")
    if not os.path.exists(file) and not os.access(folder, os.W_OK):
        raise CannotWrite(f"--html {file}: this user may not write to {folder}: name a file elsewhere")


def write_page(file: str, page: str) -> None:
    """A reader sees either the old page or the new one. Links and permissions are kept."""
    try:
        if os.path.exists(file) and not os.path.isfile(file):
            # A pipe or a device: written to, never replaced.
            with open(file, "w", encoding="utf-8") as stream:
                stream.write(page)
        else:
            _replace_file(os.path.realpath(file), page)
    except OSError as error:
        raise CannotWrite(f"--html {file}: {describe(error)}") from error


def _replace_file(file: str, page: str) -> None:
    temporary = f"{file}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as stream:
            if os.path.exists(file):
                shutil.copymode(file, temporary)
            stream.write(page)
        os.replace(temporary, file)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
