"""`duralog serve`: runs the broker. This module is the command line; `duralog.broker` is the broker.

| output | where |
|---|---|
| one line when clients can connect: `duralog is ready on HOST:PORT` | standard output, and the file of `--ready-file` |
| log lines | standard error |

SIGTERM and SIGINT stop it cleanly: requests in flight are answered, everything is flushed to disk, and the marker of a
clean shutdown is written. During recovery they stop it at once, without the marker.
"""

from __future__ import annotations

import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from duralog.cli.ready_file import ready_file, remove_left_ready_file
from duralog.cli.voice.failures import WrongUsage, errors_shown
from duralog.cli.voice.options import HOW, WHERE, Quiet, local_directory_given, named_values, parsed
from duralog.errors import MissingExtra
from duralog.operations.addresses import check_no_file, directories_in
from duralog.operations.lock_holder import lock_holder_named

if TYPE_CHECKING:
    from duralog.broker.broker import Broker
    from duralog.broker.net.listening import Listening, WebAddress
    from duralog.config import BrokerConfig

_logger = logging.getLogger(__name__)
_RARE_COLLECTIONS = (100_000, 50, 100)


def serve(
    directory: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR",
            help="The log directory, or several separated by commas; created if they do not exist. Without it,"
            " log.dirs of --server-properties.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            metavar="DIR",
            help="The directory, instead of the argument; may be given again for several disks.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    ephemeral: Annotated[
        bool,
        typer.Option("--ephemeral", help="A temporary directory, which is removed at the end.", rich_help_panel=WHERE),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            "-l",
            metavar="HOST:PORT",
            help="The address to listen on, 127.0.0.1:9092 by default; port 0 takes a free one. May start with the"
            " listener's name or protocol, as in SASL_SSL://0.0.0.0:9093.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            metavar="HOST:PORT",
            help="The address that clients connect to, if it differs from --listen.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve /metrics there, for Prometheus.", rich_help_panel=WHERE
        ),
    ] = None,
    metrics_host: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics-host",
            metavar="NAME",
            help="Another host name under which /metrics is scraped; may be given again.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    metrics_users: Annotated[
        str | None,
        typer.Option(
            "--metrics-users",
            metavar="FILE",
            help="Serve /metrics to these users only; duralog user entry prints the lines of the file.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    metrics_certificate: Annotated[
        str | None,
        typer.Option(
            "--metrics-certificate",
            metavar="FILE",
            help="Serve /metrics with TLS: a PEM file with the certificate, and the key unless --metrics-key is given.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    metrics_key: Annotated[
        str | None,
        typer.Option(
            "--metrics-key",
            metavar="FILE",
            help="A PEM file with the key of --metrics-certificate.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            "--schema-registry",
            metavar="HOST:PORT",
            help="Serve a schema registry there, kept in the topic _schemas; a port alone is one on loopback.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    schema_registry_host: Annotated[
        list[str] | None,
        typer.Option(
            "--schema-registry-host",
            metavar="NAME",
            help="Another host name under which clients reach the registry; may be given again.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    schema_registry_users: Annotated[
        str | None,
        typer.Option(
            "--schema-registry-users",
            metavar="FILE",
            help="Serve the registry to these users only, as --metrics-users; changes need the role change.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    schema_registry_certificate: Annotated[
        str | None,
        typer.Option(
            "--schema-registry-certificate",
            metavar="FILE",
            help="Serve the registry with TLS, as --metrics-certificate.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    schema_registry_key: Annotated[
        str | None,
        typer.Option(
            "--schema-registry-key",
            metavar="FILE",
            help="A PEM file with the key of --schema-registry-certificate.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    server_properties: Annotated[
        str | None,
        typer.Option("--server-properties", metavar="FILE", help="A server.properties of Kafka.", rich_help_panel=HOW),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The older name of --server-properties.",
            hidden=True,
            rich_help_panel=HOW,
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="NAME=VALUE",
            help="A config under Kafka's name; overrides the file and stored configs. May be given again.",
            rich_help_panel=HOW,
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Allow listeners, /metrics and a registry beyond loopback that let everyone in.",
            rich_help_panel=HOW,
        ),
    ] = False,
    apply_retention: Annotated[
        bool,
        typer.Option(
            "--apply-retention",
            help="Apply the default retention of 7 days from the start, as Kafka does.",
            rich_help_panel=HOW,
        ),
    ] = False,
    ready_path: Annotated[
        str | None,
        typer.Option(
            "--ready-file",
            metavar="FILE",
            help="A file to write HOST:PORT to when clients can connect; it is removed at the end.",
            rich_help_panel=HOW,
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run a broker on a directory, for every Kafka client.

    It runs until SIGTERM or Ctrl-C, and then stops cleanly. It prints one line on standard output when clients can
    connect.

    A listener beyond loopback needs authentication, /metrics there --metrics-users. A registry beyond loopback, or of a
    broker with access control lists, needs --schema-registry-users. Or give --insecure.

    A retention set by a topic, --override, --server-properties or the cluster metadata applies as in Kafka. Without
    one, records that are older than 7 days at the start are kept, with a warning, until you choose one.

    Exit code: 0 stopped cleanly, 1 it could not start or failed, 2 wrong usage.
    """
    given: list[str] = []
    if directory is not None or data:
        places_given = [local_directory_given(directory, each) for each in data or (None,)]
        given = [each for place in places_given for each in directories_in(place)]
    if given and ephemeral:
        raise WrongUsage("--ephemeral uses a temporary directory: leave out DIR and --data")
    scraped = _WebOptions("--metrics", metrics, metrics_host, metrics_users, metrics_certificate, metrics_key)
    registry = _WebOptions(
        "--schema-registry",
        schema_registry,
        schema_registry_host,
        schema_registry_users,
        schema_registry_certificate,
        schema_registry_key,
    )
    overrides = named_values("--override", override)
    _check_one_address(listen, advertise, overrides)
    with errors_shown(), _without_garbage_collection():
        _check_installed()
        from duralog.broker.broker import Broker
        from duralog.broker.net.listening import (
            Listening,
            check_guarded,
            check_registry_guarded,
            parse_address,
        )
        from duralog.cli.voice.logs import log_to_standard_error

        log_to_standard_error(quiet=quiet)
        settings = _settings(server_properties or config, overrides)
        if apply_retention:
            settings = settings.with_chosen_retention()
        advertised = None if advertise is None else parsed("--advertise", parse_address, advertise)
        if listen is None:
            listening = _configured(settings).advertised_as(advertised)
        elif "://" in listen:
            listening = Listening.of(settings.listening_on(listen)).advertised_as(advertised)
        else:
            listening = Listening.at(parsed("--listen", parse_address, listen), advertised)
        registry_place = registry.place(insecure=insecure)
        if not insecure:
            check_guarded(listening, settings)
            check_registry_guarded(registry_place, settings)
        places = None if ephemeral else _directories(given, settings)
        broker = Broker(
            places,
            config=settings,
            listening=listening,
            metrics=scraped.place(insecure=insecure),
            schema_registry=registry_place,
        )
        with nullcontext() if places is None else lock_holder_named(*places):
            _serve(broker, ready_path)


def _check_one_address(listen: str | None, advertise: str | None, overrides: dict[str, str]) -> None:
    """`--listen` and `--advertise` override --server-properties, but not another option."""
    for option, value, name in (
        ("--listen", listen, "listeners"),
        ("--listen", listen, "advertised.listeners"),
        ("--advertise", advertise, "advertised.listeners"),
    ):
        if value is not None and name in overrides:
            instead = ", or use --advertise instead" if option == "--listen" and name != "listeners" else ""
            raise WrongUsage(f"{option} and --override {name} contradict each other: leave one of them out{instead}")


class _WebOptions:
    """The options of one of the small HTTP servers, all named after the first."""

    def __init__(
        self,
        option: str,
        address: str | None,
        hosts: list[str] | None,
        users: str | None,
        certificate: str | None,
        key: str | None,
    ) -> None:
        if address is None:
            for name, value in {"host": hosts, "users": users, "certificate": certificate, "key": key}.items():
                if value:
                    raise WrongUsage(f"{option}-{name} needs {option} HOST:PORT")
        if key is not None and certificate is None:
            raise WrongUsage(f"{option}-key needs {option}-certificate FILE")
        self._option = option
        self._address = address
        self._hosts = tuple(hosts or ())
        self._users = users
        self._certificate = certificate
        self._key = key

    def place(self, *, insecure: bool) -> WebAddress | None:
        """Where it listens. None if it is not wanted."""
        from duralog.broker.net.listening import DEFAULT_HOST, WebAddress, check_web_guarded, parse_address
        from duralog.broker.security.web_tls import WebTls
        from duralog.broker.security.web_users import WebUsers

        if self._address is None:
            return None
        text = f"{DEFAULT_HOST}:{self._address}" if self._address.isdecimal() else self._address
        place = WebAddress(
            parsed(self._option, parse_address, text),
            self._hosts,
            tls=None if self._certificate is None else WebTls(self._certificate, self._key),
            users=None if self._users is None else WebUsers(self._users),
        )
        if not insecure:
            check_web_guarded(self._option, place)
        return place


def _check_installed() -> None:
    """The packages that only the broker needs."""
    for module in ("kio", "xxhash", "re2", "prometheus_client"):
        if find_spec(module) is None:
            raise MissingExtra("to serve clients", module, extra="broker")


def _settings(path: str | None, overrides: dict[str, str]) -> BrokerConfig:
    from duralog.broker.configs.settings import read_settings
    from duralog.cli.server_properties import read_server_properties

    return read_settings(b"" if path is None else read_server_properties(path), overrides)


def _configured(settings: BrokerConfig) -> Listening:
    from duralog.broker.net.listening import DEFAULT_HOST, DEFAULT_PORT, Address, Listening

    if "listeners" in settings.given or "advertised.listeners" in settings.given:
        return Listening.of(settings)
    return Listening.at(Address(DEFAULT_HOST, DEFAULT_PORT))


def _directories(given: list[str], settings: BrokerConfig) -> Sequence[str]:
    from duralog.storage.disk.log_directories import log_directories

    if given:
        places: Sequence[str] = log_directories(given, settings.log_dirs)
    elif "log.dirs" in settings.given or "log.dir" in settings.given:
        places = settings.log_dirs or settings.log_dir
    else:
        raise WrongUsage("where? Give DIR or --data DIR, --ephemeral, or log.dirs in --server-properties")
    if len(places) == 1:
        check_no_file(places[0])  # Of several, the broker continues without it.
    return places


def _serve(broker: Broker, ready_path: str | None) -> None:
    signals = _StopSignals()
    _allow_many_files()
    if ready_path is not None:
        remove_left_ready_file(ready_path)
    with suppress(_StoppedEarly), broker:
        signals.stop = broker.stop
        # Objects of the start live as long as the broker: exclude them from collections. Requests leave no cycles, so
        # collections can be rare.
        gc.freeze()
        gc.set_threshold(*_RARE_COLLECTIONS)
        gc.enable()
        _log_web_addresses(broker)
        with _announced(broker, ready_path):
            broker.run()
        if broker.store.failure is not None:
            raise broker.store.failure


def _log_web_addresses(broker: Broker) -> None:
    """A port of 0 stands for a free one: here is which."""
    for name, server in (("/metrics", broker.metrics), ("the schema registry", broker.schema_registry)):
        if server is not None:
            _logger.info("%s is served on %s", name, server.address)


def _allow_many_files() -> None:
    """Raise the limit of open files to the hard limit, as Java does: connections and segments need them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Objects of the start are long-lived: garbage collection would take a tenth of its time."""
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.enable()


class _StoppedEarly(BaseException):
    """A signal came before the broker was open."""


class _StopSignals:
    """Handles SIGTERM and SIGINT: stops the broker, or interrupts the start if it is not open yet."""

    def __init__(self) -> None:
        self.stop: Callable[[], None] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, _: int, __: FrameType | None) -> None:
        if self.stop is None:
            raise _StoppedEarly
        self.stop()


@contextmanager
def _announced(broker: Broker, path: str | None) -> Iterator[None]:
    from duralog.broker.net.service_manager import READY, STOPPING, notify

    addresses = ",".join(str(address) for address in broker.addresses.values())
    with nullcontext() if path is None else ready_file(path, f"{addresses}\n"):
        try:
            notify(READY)
            typer.echo(f"duralog is ready on {addresses}")
            sys.stdout.flush()
            yield
        finally:
            notify(STOPPING)
