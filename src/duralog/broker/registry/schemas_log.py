"""The topic `_schemas` as the registry's state: new records are read before each request.

So a record counts from its append on, no matter who made it: this registry, another one that is a client of the broker,
or the one from which the directory came. The registry's lock lets one thread at a time in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from duralog.broker.registry.answers import STORE_ERROR, TOO_LARGE, RegistryError
from duralog.broker.registry.levels import Level, Mode
from duralog.broker.registry.state import RegistryState
from duralog.broker.runtime import Runtime
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.topics import TopicCallback, Topics, TopicView
from duralog.errors import DuralogError, RecordTooLarge, SchemaError
from duralog.format.record import Record
from duralog.schemas.schemas_topic import SCHEMAS_TOPIC, SchemasTopic
from duralog.storage.log.readable_log import ReadableLog

_LONGEST_APPEND_SECONDS = 30.0
_RECORDS_PER_BATCH = 100
"""Keys have a few bytes up to some KiB: a batch of them stays below `max.message.bytes`."""


class SchemasLog:
    """The state of the records, and its updates."""

    def __init__(
        self, runtime: Runtime, topics: Topics, partitions: Partitions, on_created: TopicCallback | None = None
    ) -> None:
        """`on_created` gets the topic when it is created, or why it could not be."""
        self._runtime = runtime
        self._on_created = on_created
        self._topics = topics
        self._partitions = partitions
        self._log: ReadableLog | None = None
        self._forget()

    def _forget(self) -> None:
        self._next_offset = 0
        # What was deleted for good is not served, and takes no memory.
        self._topic = SchemasTopic(keeps_dropped=False)
        self._state: RegistryState | None = None

    @property
    def cluster_id(self) -> str:
        return self._runtime.store.cluster_id or ""

    @property
    def largest_record_bytes(self) -> int:
        """That the topic takes, or would take."""
        found = self._runtime.store.find_topic(SCHEMAS_TOPIC)
        config = self._runtime.config.topic_defaults() if found is None else found.config
        return config.max_message_bytes

    @property
    def state(self) -> RegistryState:
        """After what was read last."""
        if self._state is None:
            topic = self._topic
            self._state = RegistryState(
                catalogue=topic.catalogue(),
                # Other registries may have more of them. What a mode forbids is not known then.
                levels={place: level for place, level in topic.levels.items() if level in set(Level)},
                normalizes=dict(topic.normalizes),
                modes={place: mode if mode in set(Mode) else Mode.READONLY for place, mode in topic.modes.items()},
                last_ids=dict(topic.last_ids),
            )
        return self._state

    def refresh(self) -> None:
        """Read what was appended since the last time, or all of it if the topic is another one."""
        store = self._runtime.store
        log = store.partition(SCHEMAS_TOPIC, 0) if store.find_topic(SCHEMAS_TOPIC) is not None else None
        if log is not self._log or (log is not None and log.start_offset > self._next_offset):
            self._log = log
            self._forget()
        if log is None or log.end_offset <= self._next_offset:
            return
        for record in log.read(max(self._next_offset, log.start_offset)):
            self._apply(record.key, record.value)
            self._next_offset = record.offset + 1
        self._state = None

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        try:
            self._topic.apply(key, value)
        except SchemaError as error:
            self._runtime.log_lines.warn("bad record of _schemas", f"a record of {SCHEMAS_TOPIC} is ignored: {error}")

    def append(self, records: list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]) -> None:
        """Append keys and values, and read them back. The topic is created if it does not exist.

        Those of a large subject are several batches: if the machine dies between them, a repeated request appends the
        rest.
        """
        made = [Record(key=_json(key), value=None if value is None else _json(value)) for key, value in records]
        done: Future[None] = Future()

        def with_topic(found: TopicView | Exception) -> None:
            try:
                if isinstance(found, Exception):
                    raise found
                for start in range(0, len(made), _RECORDS_PER_BATCH):
                    self._partitions.append_records(SCHEMAS_TOPIC, 0, made[start : start + _RECORDS_PER_BATCH])
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._runtime.call_soon(
            lambda: self._topics.ensure(
                SCHEMAS_TOPIC, 1, {"cleanup.policy": "compact"}, with_topic, on_created=self._on_created
            )
        )
        try:
            done.result(_LONGEST_APPEND_SECONDS)
        except RecordTooLarge as error:
            raise RegistryError(TOO_LARGE, f"the schema is too large for the topic {SCHEMAS_TOPIC}: {error}") from error
        except (DuralogError, OSError, TimeoutError) as error:
            raise RegistryError(STORE_ERROR, f"the topic {SCHEMAS_TOPIC} cannot be written: {error}") from error
        self.refresh()


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
