"""One JVM with Kafka's own classes in it, kept for many questions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

Json = dict[str, Any]


class KafkaRefusedError(Exception):
    """Kafka's code threw where an answer was expected."""


class KafkaProcess:
    """Commands to `java/Oracle.java` and its answers. Not for use by several threads."""

    def __init__(self, class_path: str) -> None:
        self.class_path = class_path
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g", "-cp", class_path, "Oracle"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __enter__(self) -> KafkaProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM: it stops when its stdin ends."""
        self._commands.close()
        self._process.wait()
        self._answers.close()

    def read(self, path: Path) -> Json:
        """Kafka's view of a .log file: `batches` in the shape of the truth files, `end`, perhaps an `error`."""
        return self.ask(command="read", file=str(path))

    def write(self, path: Path, batches: Sequence[Json]) -> list[int]:
        """Let Kafka write batches, described as `java/BatchWriter.java` says. Returns their sizes."""
        sizes: list[int] = self.ask(command="write", file=str(path), batches=batches)["sizes"]
        return sizes

    def control_record(self, key: bytes, value: bytes) -> Json:
        """What Kafka makes of a control record: its `type`, and the `message` of the KRaft types."""
        return self.ask(command="control", key=key.hex(), value=value.hex())

    def dump(self, *arguments: str) -> tuple[str, str]:
        """Run DumpLogSegments. Returns what it printed, and what it printed to stderr."""
        answer = self.ask(command="dump", arguments=arguments)
        return answer["stdout"], answer["stderr"]

    def tool(
        self, name: str, *arguments: str, stdin: str = "", properties: dict[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Run a command-line tool, by its class. Returns its exit code and what it printed to stdout and stderr.

        `properties` are Java's system properties. They stay set for what the JVM does afterwards.
        """
        given = {"class": name, "properties": properties or {}}
        answer = self.ask(command="tool", **given, arguments=arguments, stdin=stdin)
        return answer["status"], answer["stdout"], answer["stderr"]

    def ask(self, **command: Any) -> Json:
        """Any command that `java/Oracle.java` knows."""
        self._commands.write(json.dumps(command) + "\n")
        self._commands.flush()
        line = self._answers.readline()
        if not line:
            raise KafkaRefusedError(f"the JVM ended with code {self._process.wait()}")
        answer: Json = json.loads(line)
        if "failure" in answer:
            raise KafkaRefusedError(answer["failure"])
        return answer

    @property
    def _commands(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _answers(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout
