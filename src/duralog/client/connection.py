"""Connections to a running broker through `confluent-kafka`, the extra `duralog[kafka]`.

Errors of the client library are raised as `DuralogError` with the broker's address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from duralog.client.profiles import profile_of
from duralog.errors import DuralogError, MissingExtra

Place = tuple[str, int]
"""A topic and the number of a partition."""

ANSWER_SECONDS = 30.0
_CONNECT_SECONDS = 1.0
_CONNECT_TRIES = 10
MOST_PORT = 65_535
NO_ANSWER = "no broker answers there{reason}: check the address, and whether it runs (duralog serve)"


def kafka_client() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError:
        raise MissingExtra("to speak to a broker", "confluent-kafka", extra="kafka") from None
    return confluent_kafka


def admin_module() -> Any:
    """`confluent_kafka.admin`. Untyped: its annotations name types that it does not export."""
    kafka_client()
    import confluent_kafka.admin

    return confluent_kafka.admin


def client_settings(address: str, **settings: Any) -> dict[str, Any]:
    """The settings of every client, with those of the profile. The library logs nothing: errors are raised."""
    for each in address.split(","):
        port = each.rpartition(":")[2]
        if port.isdecimal() and int(port) > MOST_PORT:
            raise not_an_address(each)
    return {
        "client.id": "duralog",
        "socket.connection.setup.timeout.ms": 5_000,
        **profile_of(address),
        "bootstrap.servers": address,
        "log_level": 0,
        "error_cb": _ignore,
        **settings,
    }


def admin_client(address: str) -> Any:
    """A connected admin client. Raises within seconds if no broker answers, well before the library's own timeout."""
    errors: list[Any] = []
    client = kafka_client()
    with errors_of(address):
        admin = admin_module().AdminClient({**client_settings(address), "error_cb": errors.append})
    for _ in range(_CONNECT_TRIES):
        try:
            admin.list_topics(timeout=_CONNECT_SECONDS)
            return admin
        except client.KafkaException:
            admin.poll(0)
            refused = [
                error for error in errors if error.code() in (client.KafkaError._AUTHENTICATION, client.KafkaError._SSL)
            ]
            if refused:
                raise DuralogError(f"{address}: the broker refuses the log-in: {refused[0].str()}") from None
            if any(error.code() == client.KafkaError._ALL_BROKERS_DOWN for error in errors):
                break
    raise DuralogError(f"{address}: {NO_ANSWER.format(reason='')}")


def edge_offsets(admin: Any, places: Iterable[Any], *, latest: bool) -> dict[Place, int]:
    """The end offsets of partitions, or their start offsets."""
    spec = admin_module().OffsetSpec.latest() if latest else admin_module().OffsetSpec.earliest()
    answers = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=ANSWER_SECONDS)
    return {(place.topic, place.partition): int(answer.result().offset) for place, answer in answers.items()}


@contextmanager
def errors_of(address: str) -> Iterator[None]:
    """Raise the errors of the client library as `DuralogError`."""
    client = kafka_client()
    try:
        yield
    except client.KafkaException as error:
        raise DuralogError(f"{address}: {error_text(error.args[0])}") from None


def error_text(error: Any) -> str:
    """The message of an error of the client library; for a lost connection, what to check."""
    client = kafka_client()
    if error.code() in (
        client.KafkaError._TRANSPORT,
        client.KafkaError._ALL_BROKERS_DOWN,
        client.KafkaError._TIMED_OUT,
    ):
        return NO_ANSWER.format(reason="")
    return str(error.str()) or str(error.name())


def not_an_address(address: str) -> DuralogError:
    return DuralogError(f"{address!r} is not an address: give HOST:PORT, with a port up to {MOST_PORT}")


def _ignore(_error: Any) -> None:
    pass
