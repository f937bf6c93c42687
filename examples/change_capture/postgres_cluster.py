"""A PostgreSQL server of one's own, for as long as it is needed: on a Unix socket in a folder that goes with it.

PostgreSQL does not run as root: then it runs as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONFIG = """
listen_addresses = ''
wal_level = logical
max_replication_slots = 20
fsync = off
shared_buffers = 16MB
"""


def server_binaries() -> Path | None:
    """The folder with `initdb` and `pg_ctl`: on the path, or where Debian keeps them. None if there is no server."""
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return next((path for path in folders if (path / "initdb").exists() and (path / "postgres").exists()), None)


@contextmanager
def postgres_cluster(binaries: Path, *, port: int | None = None) -> Iterator[str]:
    """Yields how to connect to it, for `psql`. With a port, it also listens on 127.0.0.1."""
    user = _unprivileged_user()
    # Not below a folder that only root may enter; and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="duralog-pg-", ignore_cleanup_errors=True) as folder:
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)

        def run(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [str(binaries / program), *arguments],
                user=user,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{program}: {done.stderr.strip()}")

        data = f"{folder}/data"
        run(
            "initdb",
            "--pgdata",
            data,
            "--username=duralog",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
        )
        with open(f"{data}/postgresql.conf", "a") as config:
            config.write(f"{_CONFIG}unix_socket_directories = '{folder}'\n")
            if port is not None:
                config.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")
        run("pg_ctl", "start", "--pgdata", data, "--wait", "--log", f"{folder}/server.log")
        try:
            yield f"host={folder} user=duralog dbname=postgres" + ("" if port is None else f" port={port}")
        finally:
            run("pg_ctl", "stop", "--pgdata", data, "--wait", "--mode=immediate")


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)
