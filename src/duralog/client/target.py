"""What a command works on: a log directory, or a running broker by its address.

A broker is spoken to with the client of Confluent, the extra `duralog[kafka]`: any broker of Kafka's protocol will do.
What the broker or the client refuses becomes one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Annotated, Any

import typer

from duralog.cli.common.addresses import is_broker as is_broker
from duralog.cli.common.addresses import is_url
from duralog.cli.common.failures import WrongUsage, missing_extra
from duralog.cli.common.options import WHERE, place_given
from duralog.errors import DuralogError

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="DIR|HOST:PORT",
        help="A log directory (what Kafka calls log.dirs), or a running broker.",
        show_default=False,
    ),
]
TargetData = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        metavar="DIR|HOST:PORT",
        help="The directory or broker, in place of the argument.",
        rich_help_panel=WHERE,
    ),
]

ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 1.0
_CONNECT_TRIES = 10
_NOBODY = "no broker answers there: check the address, and whether it runs (duralog serve)"


def target_given(argument: str | None, data: str | None) -> str:
    """What the argument DIR|HOST:PORT or `--data` names."""
    place = place_given(argument, data, "DIR or HOST:PORT")
    if is_url(place):
        raise WrongUsage(f"{place!r} is a URL: give a directory of this machine, or a broker as HOST:PORT")
    return place


def kafka_client() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError:
        raise missing_extra("to speak to a broker", "confluent-kafka", extra="kafka") from None
    return confluent_kafka


def client_settings(address: str, **settings: Any) -> dict[str, Any]:
    """What every client of a command is made with. Its own log lines go nowhere: errors are told by the command."""
    return {
        "bootstrap.servers": address,
        "client.id": "duralog",
        "socket.connection.setup.timeout.ms": 5_000,
        "log_level": 0,
        "error_cb": _unheard,
        **settings,
    }


def admin_module() -> Any:
    """What the client has for administrators. Its types name what it does not export."""
    kafka_client()
    import confluent_kafka.admin

    return confluent_kafka.admin


def admin_client(address: str) -> Any:
    """A client of a broker that answers. One that is not there is told in a moment, not after the client's patience."""
    refusals: list[Any] = []
    admin = admin_module().AdminClient({**client_settings(address), "error_cb": refusals.append})
    client = kafka_client()
    for _ in range(_CONNECT_TRIES):
        try:
            admin.list_topics(timeout=_CONNECT_SECONDS)
            return admin
        except client.KafkaException:
            admin.poll(0)
            if any(error.code() == client.KafkaError._ALL_BROKERS_DOWN for error in refusals):
                break
    raise DuralogError(f"{address}: {_NOBODY}")


def edge_offsets(admin: Any, places: Iterable[Any], *, latest: bool) -> dict[tuple[str, int], int]:
    """Where partitions end, or begin, by topic and partition."""
    spec = admin_module().OffsetSpec.latest() if latest else admin_module().OffsetSpec.earliest()
    answers = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=ANSWER_SECONDS)
    return {(place.topic, place.partition): int(answer.result().offset) for place, answer in answers.items()}


@contextmanager
def told_by_broker(address: str) -> Iterator[None]:
    """Errors of the client become one sentence."""
    client = kafka_client()
    try:
        yield
    except client.KafkaException as error:
        raise DuralogError(f"{address}: {in_words(error.args[0])}") from None


def in_words(error: Any) -> str:
    """What a client's error says, and what to do about the commonest."""
    client = kafka_client()
    if error.code() in (
        client.KafkaError._TRANSPORT,
        client.KafkaError._ALL_BROKERS_DOWN,
        client.KafkaError._TIMED_OUT,
    ):
        return _NOBODY
    text = str(error.str())
    return text if text else str(error.name())


def _unheard(_error: Any) -> None:
    pass
