"""Runs the commands that pages show, and holds what they print against what the page says.

python docs/shown_commands.py PAGE...           tells where a page and its commands differ
python docs/shown_commands.py --write PAGE...   puts what was printed into the page

The blocks of a page run from its top to its end in one new folder:

- A `console` block is a session: lines with `$ ` are commands, those with `> ` go on with one, the others are what is
  printed. A line `...` stands for any number of lines.
- A command that ends with `&` stays until `kill %1` or the end of the page. It is waited for until it says that it is
  ready.
- A block with `file=NAME` behind its language is that file. A `python` block with `run` is run, and must not fail.

Nothing else runs, so a page that works here works for its reader.

What differs from run to run (times, speeds, ids, ports) is not compared, nor how wide columns are; what Java says about
itself is left out, and that kernels are compiled for a machine that is new.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_blocks import Block, blocks

_PORTS = ("9092", "9404", "8090", "8081")
"""Ports that pages name. Free ones take their places, so that whatever has them on this machine is left alone."""

_SECONDS = 600
_READY = b" is ready on "
_NOT_SHOWN = ("WARNING: Using incubator modules: ", "duralog: compiling for this machine: ")
"""What Java says about itself, whatever it runs, and what the first run on a machine says."""

_HANGING_UP = re.compile(
    r"^Traceback \(most recent call last\):(?:\n|\Z)(?!  File \"(?![^\"\n]*pyspark/daemon\.py\"))"
    r"|^  File \"[^\"\n]*pyspark/daemon\.py\".*(?:\n    .*)*(?:\n|\Z)"
    r"|^BrokenPipeError: .*(?:\n|\Z)",
    re.MULTILINE,
)
"""What a worker of Spark says when Spark has hung up on it, on a busy machine: as far as it gets, and between the lines
of what is run. A traceback that leads anywhere else stays."""


_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"(?<![\w-])(?=[\w-]*[A-Z])(?=[\w-]*[a-z0-9])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"\d[\d.,]* ?([KMGT]i?)?B/s"), "SPEED"),
    (re.compile(r"\d[\d.,]*( [kM])? \w+/s\b"), "SPEED"),
    (re.compile(r"\b\d[\d.,]* +SPEED"), "SECONDS SPEED"),
    (re.compile(r"\b\d[\d.,]* ?(s|ms|us|seconds?|minutes?|hours?|days?)\b"), "SPAN"),
    (re.compile(r"\b(process|pid) \d+"), r"\1 N"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


@dataclass(slots=True)
class Command:
    """One command of a page: what it says, where, and what it printed when it was run."""

    line: int
    text: str
    said: list[str]
    said_from: int
    printed: list[str] = field(default_factory=list)

    @property
    def is_true(self) -> bool:
        return _alike([without_varying(line) for line in self.said], [without_varying(line) for line in self.printed])


Step = Command | Block
"""A command of the page, or a block that is a file or is run."""


def without_varying(line: str) -> str:
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line.strip()


def _alike(said: list[str], printed: list[str]) -> bool:
    if not said:
        return not printed
    if said[0] == "...":
        return any(_alike(said[1:], printed[skipped:]) for skipped in range(len(printed) + 1))
    return bool(printed) and said[0] == printed[0] and _alike(said[1:], printed[1:])


def steps(page: str) -> list[Step]:
    """Everything on the page that happens, in its order."""
    found: list[Step] = []
    for block in blocks(page):
        if block.language == "console":
            found += _commands(block)
        elif block.file is not None or "run" in block.marks:
            found.append(block)
    return found


def _commands(block: Block) -> Iterator[Command]:
    command: Command | None = None
    for number, line in enumerate(block.lines, block.line):
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(number, line[2:], [], number + 1)
        elif command is None:
            raise ValueError(f"line {number + 1}: a console block begins with a command, after '$ '")
        elif line.startswith("> ") and not command.said:
            command.text += "\n" + line[2:]
            command.said_from = number + 1
        else:
            command.said.append(line)
    if command is not None:
        yield command


class Session:
    """A new folder in which the commands of a page run, and what they have left running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved = [_reserved_port() for _ in _PORTS]
        taken = (str(each.getsockname()[1]) for each in self._reserved)
        self._ports = dict(zip(_PORTS, taken, strict=True))
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "TZ": "UTC",
        }
        for name in [name for name in self._environment if name.startswith(("PYTEST", "PY_COLORS", "FORCE_COLOR"))]:
            del self._environment[name]

    def take(self, step: Step) -> None:
        if isinstance(step, Command):
            step.printed = self._printed(step.text)
        elif step.file is not None:
            (self._folder / step.file).write_text(self._with_ports(step.text), encoding="utf-8")
        else:
            subprocess.run(
                [sys.executable, "-"],
                input=self._with_ports(step.text).encode(),
                cwd=self._folder,
                env=self._environment,
                check=True,
                timeout=_SECONDS,
            )

    def _printed(self, command: str) -> list[str]:
        if command == "kill %1":
            self._end(self._running.pop(0))
            return []
        output = self._start(command.removesuffix("&")) if command.endswith("&") else self._shell(command)
        text = _HANGING_UP.sub("", output.decode("utf-8", "replace")).replace(f"{self._folder}/", "")
        for port, taken in self._ports.items():
            text = text.replace(f":{taken}", f":{port}")
        return [line.rstrip() for line in text.splitlines() if not line.startswith(_NOT_SHOWN)]

    def _shell(self, command: str) -> bytes:
        done = subprocess.run(
            ["bash", "-c", self._with_ports(command)],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_SECONDS,
        )
        return done.stdout

    def _start(self, command: str) -> bytes:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._with_ports(command)}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._running.append(process)
        assert process.stdout is not None
        said = b""
        for line in process.stdout:
            said += line
            if _READY in line:
                return said
        raise ChildProcessError(f"{command}: ended before it was ready\n{said.decode()}")

    def _with_ports(self, text: str) -> str:
        for port, taken in self._ports.items():
            text = text.replace(f":{port}", f":{taken}")
        return text

    def close(self) -> None:
        for process in self._running:
            self._end(process)
        for each in self._reserved:
            each.close()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_SECONDS)


def _reserved_port() -> socket.socket:
    """On a port that no other program gets while it is open. It does not listen: a server that reuses addresses can."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def run(page: str, folder: Path) -> list[Command]:
    """Every command of a page, as it went."""
    session = Session(folder)
    done = []
    try:
        for step in steps(page):
            session.take(step)
            if isinstance(step, Command):
                done.append(step)
    finally:
        session.close()
    return done


def rewritten(page: str, commands: Sequence[Command]) -> str:
    """The page with what was printed where it says something else."""
    lines = page.splitlines()
    for command in reversed(commands):
        if not command.is_true:
            lines[command.said_from : command.said_from + len(command.said)] = command.printed
    return "".join(f"{line}\n" for line in lines)


def main(arguments: list[str]) -> int:
    write = arguments[:1] == ["--write"]
    pages = [Path(argument) for argument in arguments[write:]]
    if not pages:
        print(__doc__, file=sys.stderr)
        return 2
    differing = 0
    for path in pages:
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            commands = run(page, Path(folder))
        for command in commands:
            if not command.is_true:
                differing += 1
                print(f"{path}:{command.line + 1}: $ {command.text}", *command.printed, sep="\n")
        if write:
            path.write_text(rewritten(page, commands), encoding="utf-8")
    return 0 if write or not differing else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
