"""`duralog console`: a web page on a log directory or a broker. This module is the command line; `app` is the server.

| what is seen | where |
|---|---|
| one line when the page can be opened: `duralog console is ready on http://HOST:PORT/` | standard output |
| everything else, one line each | standard error |

SIGTERM and Ctrl-C stop it cleanly, with exit code 0, as they stop `duralog serve`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.voice.failures import WrongUsage, errors_shown, say
from duralog.cli.voice.options import HOW, WHERE, Quiet, parsed
from duralog.cli.voice.payload_options import SchemaRegistry, SchemaRegistryConfig, decode_given
from duralog.cli.voice.target import ClientConfig, Target, target_given
from duralog.errors import DuralogError, MissingExtra
from duralog.operations.addresses import is_broker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duralog.broker.security.web_users import WebUsers
    from duralog.console.login import TrustedHeader
    from duralog.console.sources.metrics_access import MetricsAccess
    from duralog.storage.metadata.scram import ScramCredential, ScramUser

DEFAULT_ADDRESS = "127.0.0.1:8090"


def console(
    target: Target = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            help="The log directory; together with a broker's HOST:PORT, the directory that it serves.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            "-l",
            metavar="HOST:PORT",
            help="The address of the page; port 0 takes a free one.",
            rich_help_panel=WHERE,
        ),
    ] = DEFAULT_ADDRESS,
    config_file: ClientConfig = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Where the broker serves /metrics: the health page then shows its cleaner at work.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    metrics_config_file: Annotated[
        str | None,
        typer.Option(
            "--metrics-config-file",
            metavar="FILE",
            help="How to read a guarded /metrics: a properties file with token, or username and password; with TLS,"
            " security.protocol=SSL and ssl.ca.location.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    audit_log: Annotated[
        str | None,
        typer.Option(
            "--audit-log",
            metavar="FILE",
            help="The broker's audit log (duralog.audit.log.file), for users with the role administer.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    copies: Annotated[
        list[str] | None,
        typer.Option(
            "--copies",
            metavar="DIR",
            help="Log directories of a cluster, to compare their replicas at /copies; globs; may be given again.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    value_format: Annotated[
        str,
        typer.Option(
            "--value-format",
            metavar="NAME",
            help="Decode values: auto, avro, protobuf, json, string, long and others; binary for bytes.",
            rich_help_panel=HOW,
        ),
    ] = "auto",
    key_format: Annotated[
        str,
        typer.Option("--key-format", metavar="NAME", help="Decode keys, in the same way.", rich_help_panel=HOW),
    ] = "auto",
    schema_registry: SchemaRegistry = None,
    schema_registry_config: SchemaRegistryConfig = None,
    users: Annotated[
        str | None,
        typer.Option(
            "--users",
            metavar="FILE",
            help="A file with users and their roles; duralog user entry prints its lines.",
            rich_help_panel=HOW,
        ),
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Serve with TLS: a PEM file with the certificate, and the key unless --certificate-key is given.",
            rich_help_panel=HOW,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--certificate-key", metavar="FILE", help="A PEM file with the key of the certificate.", rich_help_panel=HOW
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Another host name under which the page is reached; may be given again.",
            rich_help_panel=HOW,
        ),
    ] = None,
    trust_header: Annotated[
        str | None,
        typer.Option(
            "--trust-header",
            metavar="NAME",
            help="The header in which a proxy names the logged-in user, such as X-Forwarded-User.",
            rich_help_panel=HOW,
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="An address or network whose --trust-header is trusted; may be given again. Loopback by default.",
            rich_help_panel=HOW,
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Allow an address beyond loopback without users: everyone who reaches it sees all records.",
            rich_help_panel=HOW,
        ),
    ] = False,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="The page may change topics, groups, configs, ACLs and records, and compact; else it shows commands.",
            rich_help_panel=HOW,
        ),
    ] = False,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Do not open the page in a browser.", rich_help_panel=HOW)
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Show a directory or a broker as a web page, live.

    It runs until SIGTERM or Ctrl-C.

    An address beyond loopback needs --users, or --insecure.

    Exit code: 0 stopped, 1 it cannot be shown or the address is taken, 2 wrong usage.
    """
    place, directory = _places(target, data, config_file)
    if key is not None and certificate is None:
        raise WrongUsage("--certificate-key needs --certificate FILE")
    if metrics_config_file is not None and metrics is None:
        raise WrongUsage("--metrics-config-file needs --metrics HOST:PORT")
    if trust_header is not None and users is None:
        raise WrongUsage("--trust-header needs --users FILE, which says who has which role")
    if trusted_proxy and trust_header is None:
        raise WrongUsage("--trusted-proxy needs --trust-header NAME")
    with errors_shown():
        _check_toolkit()
        from duralog.broker.net.listening import Address, bind, is_loopback, parse_address
        from duralog.cli.voice.logs import log_to_standard_error

        address = parsed("--listen", parse_address, listen)
        log_to_standard_error(quiet=quiet)
        try:
            listener = bind(address)
        except OSError as error:
            raise DuralogError(f"{error.strerror} (--listen HOST:0 takes a free port)") from None
        decode = decode_given(value_format, key_format, None, None, schema_registry, schema_registry_config)
        with listener:
            from duralog.broker.security.web_tls import WebTls
            from duralog.console.app import Guard, run
            from duralog.console.changes.changer import ChangedPlace, Changer
            from duralog.console.sources.cleaner_metrics import CleanerMetrics
            from duralog.console.sources.cluster_copies import ComparedDirectories
            from duralog.console.sources.opening import open_source
            from duralog.schemas.decode_options import Decode
            from duralog.storage.disk.file_system import raise_open_file_limit

            raise_open_file_limit()
            scraped = None if metrics is None else CleanerMetrics(metrics, _metrics_access(metrics_config_file))
            # Check the socket, not the name: an empty name means every interface.
            reached, port = listener.getsockname()[:2]
            bound = Address(address.host or "localhost", port)
            if not is_loopback(reached):
                exposed = str(Address(reached, port))
                _check_guarded(exposed, users, certificate, insecure=insecure, changes=allow_changes, quiet=quiet)
            guard = Guard(
                host=address.host,
                more_hosts=tuple(host or ()),
                tls=None if certificate is None else WebTls(certificate, key),
                users=None if users is None else _web_users(users, directory or place),
                header=_trusted_header(trust_header, trusted_proxy or ()),
            )
            source = open_source(
                place, data=directory, allow_changes=allow_changes, metrics=scraped, decode=decode or Decode()
            )
            try:
                page = f"{'http' if certificate is None else 'https'}://{bound}/"
                changer = Changer(
                    ChangedPlace(
                        directory=directory or (None if is_broker(place) else place),
                        broker=place if is_broker(place) else None,
                        config_file=config_file,
                    ),
                    is_allowed=allow_changes,
                    after=source.step,
                )
                run(
                    source,
                    changer,
                    listener,
                    guard=guard,
                    audit_log=audit_log,
                    cluster=ComparedDirectories(copies) if copies else None,
                    when_ready=lambda: _announce(page, browse=not no_browser),
                )
            finally:
                source.close()


def _places(target: str | None, data: str | None, config_file: str | None) -> tuple[str, str | None]:
    """What to open, and the directory of a broker, where both are given."""
    if target is not None and data is not None and is_broker(target) and not is_broker(data):
        return target_given(target, None, config_file), data
    return target_given(target, data, config_file), None


def _check_guarded(
    address: str, users: str | None, certificate: str | None, *, insecure: bool, changes: bool, quiet: bool
) -> None:
    """REQUIRES: other machines can reach the address."""
    if users is not None:
        if certificate is None and not quiet:
            say(f"warning: passwords and records are sent to and from {address} unencrypted: give --certificate FILE")
        return
    can = "read every record and change everything" if changes else "read every record"
    if not insecure:
        raise DuralogError(
            f"everyone who can reach {address} could {can}: give --users FILE (docs/console.md), listen on loopback"
            " (127.0.0.1), or say --insecure"
        )
    if not quiet:
        say(f"warning: everyone who can reach {address} can {can}: there are no passwords")


def _web_users(path: str, place: str) -> WebUsers:
    from duralog.broker.security.directory_credentials import DirectoryCredentials
    from duralog.broker.security.web_users import WebUsers

    def credentials() -> Mapping[ScramUser, ScramCredential]:
        from duralog.cli.voice.opened_store import opened_store

        with opened_store(place, read_only=True, server_properties=None) as store:
            return store.scram_credentials

    return WebUsers(path, None if is_broker(place) else DirectoryCredentials(place, credentials))


def _metrics_access(path: str | None) -> MetricsAccess | None:
    from duralog.console.sources.metrics_access import read_metrics_access

    return None if path is None else read_metrics_access(path)


def _trusted_header(name: str | None, proxies: Sequence[str]) -> TrustedHeader | None:
    from ipaddress import ip_network

    from duralog.console.login import TrustedHeader

    if name is None:
        return None
    return TrustedHeader(name, tuple(parsed("--trusted-proxy", ip_network, proxy) for proxy in proxies))


def _check_toolkit() -> None:
    try:
        import nicegui  # noqa: F401
    except ImportError:
        raise MissingExtra("to show a web page", "nicegui", extra="console") from None


def _announce(page: str, *, browse: bool) -> None:
    typer.echo(f"duralog console is ready on {page}")
    sys.stdout.flush()
    if browse and _has_screen():
        import threading
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()


def _has_screen() -> bool:
    """A text-mode browser would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
