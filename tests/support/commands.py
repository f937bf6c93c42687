"""Commands of `duralog`, run in this process as a shell would."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from duralog.command_line import app


def run(*words: object, given: bytes | str | None = None, code: int = 0, columns: int | None = None) -> Result:
    """`given` is the standard input, `code` the expected exit code, `columns` the width of the terminal."""
    env = None if columns is None else {"COLUMNS": str(columns)}
    result = CliRunner().invoke(app, [*map(str, words)], input=given, env=env)
    assert result.exit_code == code, result.output
    return result


def objects(*words: object, given: bytes | str | None = None, code: int = 0) -> list[dict[str, Any]]:
    """What the command writes with `--json`."""
    return [json.loads(line) for line in run(*words, "--json", given=given, code=code).stdout.splitlines()]
