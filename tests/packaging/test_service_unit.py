"""The unit of systemd: what it says is true of `duralog serve`, and systemd itself finds no fault in it."""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from duralog.broker.net import service_manager
from duralog.command_line import app
from tests.support.needed_programs import needs
from tests.support.places import ROOT

UNIT = ROOT / "packaging" / "duralog.service"
SECONDS = 60
MOST_EXPOSURE = 20
"""Tenths, as `systemd-analyze security` counts: 0 is nothing, 100 is all. With a JIT compiler it is never 0."""


class _Repeated(dict[str, str]):
    """Of a setting that is there again, all values: systemd takes them together."""

    def __setitem__(self, name: str, value: str) -> None:
        if isinstance(value, list) and name in self:
            value = [*self[name], *value]
        super().__setitem__(name, value)


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, dict_type=_Repeated, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_command_is_one_that_serve_takes(unit: configparser.ConfigParser) -> None:
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert program == "/opt/duralog/bin/duralog"
    known = get_command(app).commands[command]  # type: ignore[attr-defined]
    options = {option for parameter in known.params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options
    assert "/var/lib/duralog" in arguments


def test_a_service_deletes_by_age_as_kafka_does(unit: configparser.ConfigParser) -> None:
    """The built-in default would hold what is due at a start. An --override would win over a server.properties."""
    _, _, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert "--apply-retention" in arguments
    assert "--override" not in arguments


def test_folders_are_those_of_the_unit(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["StateDirectory"] == service["CacheDirectory"] == service["RuntimeDirectory"] == "duralog"
    # The audit log that docs/security.md configures.
    assert (service["LogsDirectory"], service["LogsDirectoryMode"]) == ("duralog", "0750")
    assert "DURALOG_CACHE_DIR=/var/cache/duralog" in service["Environment"]
    assert "--ready-file /run/duralog/ready" in service["ExecStart"]
    # The cache holds code: it is used only where nobody else may write.
    assert service["CacheDirectoryMode"] == "0700"
    (users,) = [line for line in (ROOT / "packaging" / "duralog.sysusers").read_text().splitlines() if line[0] != "#"]
    assert users.split()[:2] == ["u", service["User"]]


def test_stopping_has_time(unit: configparser.ConfigParser) -> None:
    from duralog.broker import broker

    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) * 1000 > 5 * broker._LONGEST_SHUTDOWN_MS
    assert service["TimeoutStartSec"] == "infinity"
    assert (service["KillSignal"], service["Restart"], service["Type"]) == ("SIGTERM", "on-failure", "notify")
    assert int(service["LimitNOFILE"]) >= 100_000
    # Kernels are compiled, or loaded, by the process itself.
    assert "MemoryDenyWriteExecute" not in service


@needs("systemd-analyze")
def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    program = tmp_path / "duralog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "duralog.service"
    unit.write_text(UNIT.read_text().replace("/opt/duralog/bin/duralog", str(program)))
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=whenever"))
    wrong = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "whenever" in wrong.stderr, "it would have told"


@needs("systemd-analyze")
def test_little_is_open_to_it() -> None:
    subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", UNIT],
        stdout=subprocess.DEVNULL,
        check=True,
    )


# What serve tells systemd


@pytest.mark.parametrize("is_abstract", [False, True])
def test_ready_and_stopping_are_notified(tmp_path: Path, is_abstract: bool) -> None:
    name = f"@duralog-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1) if is_abstract else name)
        manager.settimeout(SECONDS)
        with subprocess.Popen(
            [sys.executable, "-m", "duralog", "serve", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--quiet"],
            env={**os.environ, "NOTIFY_SOCKET": name},
            stdout=subprocess.PIPE,
        ) as process:
            try:
                assert manager.recv(100) == b"READY=1"
            finally:
                process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("name", ["", "relative", "/nowhere/at/all", "@nobody-listens-here", "/" + "x" * 200])
def test_no_service_manager(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    service_manager.notify(service_manager.READY)
    monkeypatch.delenv("NOTIFY_SOCKET")
    service_manager.notify(service_manager.READY)
