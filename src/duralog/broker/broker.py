"""The broker: a store, the parts that serve clients from it, and the event loop on which they run.

Opening: the store is opened (which may recover it), the coordinators read their logs, the kernels are loaded or
compiled, and only then does the port open: a client never meets a broker that is half open. Stopping: no new connection
and no new request; requests in progress are finished and their answers sent, within a time limit; the coordinators
close, and last of all the store, which flushes everything to disk and writes the marker of a clean shutdown.

All handlers, coordinators and timers run on one thread, so they need no locks. What may block runs on a few worker
threads (`Background`), and what follows from it runs on the loop again.

This is the composition root: it makes the parts, from the runtime up to the coordinators, and hands each handler the
parts that its parameters name. Nothing below imports it.

A broker belongs to the process that opened it. In a forked child, the copies of its sockets are closed at once, so that
clients see the end of a connection when the parent closes it, and the port is free when the parent has ended. `stop`
and `close` do nothing there, and the store refuses to work (`duralog.storage.disk.forks`). Clients in the child can
connect.

If the machine dies, only unflushed records are lost: the logs are the only truth, and state that is not in them (open
connections, waiting fetches) has no meaning afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from duralog.broker.audit.log import AuditLog
from duralog.broker.audit.recorder import AuditRecorder, Changed, Sender
from duralog.broker.authorization.authorizer import Authorizer, parse_super_users
from duralog.broker.authorization.gate import Gate
from duralog.broker.authorization.rule_kinds import Guard
from duralog.broker.ephemeral_folder import ephemeral_folder
from duralog.broker.fetch.purgatory import Fetches
from duralog.broker.groups.coordinator import GroupCoordinator
from duralog.broker.handlers import load_apis
from duralog.broker.net.background import Background
from duralog.broker.net.dispatch import Dispatcher
from duralog.broker.net.event_loop import EventLoop, steady_clock_ms
from duralog.broker.net.host_names import HostNames
from duralog.broker.net.large_requests import LargeRequests
from duralog.broker.net.limits import ConnectionLimits
from duralog.broker.net.listening import DEFAULT_HOST, Address, Listener, Listening, WebAddress, bind, is_loopback
from duralog.broker.net.log_lines import LogLines, logger, one_line
from duralog.broker.net.server import Server
from duralog.broker.net.workers import Workers
from duralog.broker.produce.appends import ProducerAppends
from duralog.broker.quotas.client_quotas import ClientQuotas
from duralog.broker.runtime import Runtime
from duralog.broker.security.listener_security import PLAINTEXT, ListenerSecurity
from duralog.broker.security.salt_key import salt_key
from duralog.broker.topics.partitions import Partitions
from duralog.broker.topics.producer_ids import ProducerIds
from duralog.broker.topics.recorded_topics import recorded_for_itself
from duralog.broker.topics.topics import Topics
from duralog.broker.transactions.coordinator import TransactionCoordinator
from duralog.broker.warm_up import warm_up
from duralog.broker.wire.request import Node
from duralog.config import BROKER_CONFIGS, BrokerConfig
from duralog.config.definitions import HIDDEN
from duralog.config.listener_config import is_secret
from duralog.storage.disk import forks
from duralog.storage.disk.background import Clock, wall_clock_ms
from duralog.storage.disk.log_directory import DEFAULT_NODE_ID
from duralog.storage.metadata.cluster_metadata import ALL_BROKERS, BROKER_RESOURCE
from duralog.storage.store import Store

if TYPE_CHECKING:
    # Below this module, but costly to load: only a broker with metrics needs it.
    from duralog.broker.net.http_server import HttpServer

_LONGEST_SHUTDOWN_MS = 10_000
_SHUTDOWN_CHECK_MS = 10


class Broker:
    """One node. `open`, then `run` in this thread or `start` in a new one; `stop` ends it from any thread."""

    def __init__(
        self,
        data_dir: str | Sequence[str] | None,
        *,
        config: BrokerConfig | None = None,
        listening: Listening | None = None,
        metrics: Address | WebAddress | None = None,
        schema_registry: Address | WebAddress | None = None,
        clock: Clock = wall_clock_ms,
        timer_clock: Callable[[], float] = steady_clock_ms,
    ) -> None:
        """`data_dir` is the log directory, or several. Without one, a temporary one is used (`ephemeral_folder`)."""
        self.clock = clock
        self.is_stopping = False
        self._data_dir = data_dir
        self._listening = listening or Listening.at(Address(DEFAULT_HOST, 0))
        self._given_config = (config or BrokerConfig()).reached_only_from(self._listening.reached_from)
        self._metrics_address = WebAddress(metrics) if isinstance(metrics, Address) else metrics
        self._registry_address = (
            WebAddress(schema_registry) if isinstance(schema_registry, Address) else schema_registry
        )
        self._timer_clock = timer_clock
        self._opened = ExitStack()
        """What `close` has to undo, the latest first."""
        self._thread: threading.Thread | None = None
        self._is_open = False
        self.metrics: HttpServer | None = None
        self._salt_key = b""
        """For SCRAM. REQUIRES: a listener with SASL, and an open directory."""
        self.schema_registry: HttpServer | None = None
        self._shutdown_deadline_ms = 0.0
        self._process = forks.here

    # The beginning

    def open(self) -> Broker:
        """Open the store, load the state of the coordinators, and listen. On failure, nothing stays open."""
        self._process = forks.here
        with ExitStack() as opened:
            listeners = [opened.enter_context(bind(listener.bound)) for listener in self._listening.listeners]
            # Before the store is opened: wrong configs leave no directory.
            securities = [self._security(listener) for listener in self._listening.listeners]
            data_dir = self._data_dir or opened.enter_context(ephemeral_folder())
            self.store = Store(data_dir, config=self._given_config, clock=self.clock)
            opened.callback(self._close_store)
            self._is_open = True
            for security in securities:
                if security is not None:
                    security.follow(self.config)
            if any(security is not None and security.has_sasl for security in securities):
                self._salt_key = salt_key(self.store.path)
            self._make_parts([listener.getsockname()[1] for listener in listeners], opened)
            # Without its directories a broker stops, as Kafka's does.
            self.store.on_failure(lambda: self.loop.call_soon(self._begin_shutdown))
            self._warn_of_stored_configs()
            self.groups.load()
            self.transactions.load()
            self._serve_metrics(opened)
            if self._registry_address is not None:
                self.schema_registry = self.serve_schema_registry(self._registry_address)
                opened.callback(self.schema_registry.close)
            warm_up()
            for listener, node, name, security in zip(listeners, self._nodes, self.addresses, securities, strict=True):
                self.server.listen(listener, node, name, security)
            self._opened = opened.pop_all()
        forks.belongs_here(self)
        return self

    def _security(self, listener: Listener) -> ListenerSecurity | None:
        if listener.protocol == PLAINTEXT:
            return None
        return ListenerSecurity(
            listener.name,
            listener.protocol,
            self.config,
            is_loopback=is_loopback(listener.bound.host),
            credentials=lambda: self.store.scram_credentials,
            salt_key=lambda: self._salt_key,
        )

    def on_fork(self) -> None:
        # Its callbacks do not run: they would close objects of the parent.
        self._opened.pop_all()
        if self._is_open:
            self._is_open = False
            self.server.on_fork()
            self.loop.on_fork()
            for server in (self.metrics, self.schema_registry):
                if server is not None:
                    server.on_fork()

    def _make_parts(self, ports: list[int], opened: ExitStack) -> None:
        node = Node(
            node_id=DEFAULT_NODE_ID if self.store.node_id is None else self.store.node_id,
            host="",
            port=0,
            cluster_id=self.store.cluster_id or "",
            rack=self.config.broker_rack,
        )
        self.addresses: dict[str, Address] = {}
        self._nodes: list[Node] = []
        for listener, port in zip(self._listening.listeners, ports, strict=True):
            self.addresses[listener.name] = Address(listener.bound.host or DEFAULT_HOST, port)
            advertised = listener.advertised
            self._nodes.append(replace(node, host=advertised.host, port=advertised.port or port))
        self.node = self._nodes[0]
        self.address = next(iter(self.addresses.values()))
        self.loop = EventLoop(logger, self._timer_clock)
        opened.callback(self.loop.close)
        log_lines = LogLines(logger, self._timer_clock)
        names = HostNames(self.loop.call_soon, self.loop.timers, logger)
        opened.callback(names.close)
        self.limits = ConnectionLimits(self.config, names)
        self.dispatcher = Dispatcher(log_lines)
        self.server = Server(
            self.loop, self.dispatcher, self.limits, log_lines, config=lambda: self.config, clock=self.clock
        )
        self._workers = Workers(self.loop.call_soon)
        self.runtime = Runtime(
            self.store,
            self.node,
            self.clock,
            self.loop.timers,
            self.loop.call_soon,
            Background(self._workers, self.server, log_lines),
            log_lines,
        )
        self._large_requests = LargeRequests(self.runtime.background)
        self.dispatcher.large_requests = self._large_requests
        self.quotas = ClientQuotas(self.runtime, self.dispatcher, self.server)
        self.topics = Topics(self.runtime)
        self.partitions = Partitions(self.runtime, self.topics)
        self.producer_ids = ProducerIds(self.runtime, self.topics)
        self.fetches = Fetches(self.runtime, self.partitions)
        self.topics.on_deleted(lambda _: self.fetches.sessions.let_go_of_deleted())
        self.groups = GroupCoordinator(self.runtime, self.topics, self.partitions)
        self.transactions = TransactionCoordinator(
            self.runtime, self.topics, self.partitions, self.producer_ids, self.groups.complete_transaction
        )
        self.appends = ProducerAppends(self.runtime, self.partitions, self.transactions.check_produce)
        self.apis = load_apis()
        self.audit = self._open_audit_log(opened)
        self.authorizer = self._make_authorizer()
        guard = None if self.authorizer is None else Guard(self.authorizer, self.topics, self.runtime)
        self.dispatcher.serve(self.apis, self, Gate(guard, self.audit))
        # The workers close first, then the connections: the coordinators close when no client is left.
        for part in (self.groups, self.server, self._workers):
            opened.callback(part.close)
        # Now: a change without a thread would block all later ones.
        self._workers.start()

    def _make_authorizer(self) -> Authorizer | None:
        """None if every client may do everything."""
        if not self.config.authorizer_class_name:
            return None
        return Authorizer(
            lambda: self.store.acls,
            parse_super_users(self.config.super_users),
            allow_if_no_acl=self.config.allow_everyone_if_no_acl_found,
            on_refusal=None if self.audit is None else self.audit.refused,
        )

    def _open_audit_log(self, opened: ExitStack) -> AuditRecorder | None:
        config = self.config
        if not config.duralog_audit_log_file:
            return None
        log = AuditLog(
            config.duralog_audit_log_file,
            clock_ms=self.clock,
            max_bytes=config.duralog_audit_log_max_bytes,
            max_files=config.duralog_audit_log_max_files,
        )
        listeners = {id(node): name for name, node in zip(self.addresses, self._nodes, strict=True)}
        recorder = AuditRecorder(
            log,
            lambda request: self.apis[request.api_key].name,
            lambda node: listeners.get(id(node)),
            call_soon=self.loop.call_soon,
            clock_ms=self._timer_clock,
        )
        opened.callback(recorder.close)
        self.server.on_login_failure = recorder.login_failed
        return recorder

    def _warn_of_stored_configs(self) -> None:
        """Log the configs in the cluster metadata that have no effect, and how to reset them."""
        own, for_all = (self.store.configs_of(BROKER_RESOURCE, each) for each in (str(self.store.node_id), ALL_BROKERS))
        for name, value in {**for_all, **own}.items():
            text = HIDDEN if is_secret(name) else value
            reset = f"reset it with: duralog config reset {self.address} {name}"
            if self.config.is_fixed(name):
                why = "an override given at the start wins"
                logger.warning("%s", one_line(f"the stored config {name}={text} is not in force: {why}; {reset}"))
            elif name in self.config.ignored and name in BROKER_CONFIGS:
                why = self.config.ignored[name]
                logger.warning("%s", one_line(f"the stored config {name}={text} is ignored: {why}; {reset}"))

    def _serve_metrics(self, opened: ExitStack) -> None:
        if self._metrics_address is not None:
            # Imported late: a broker without metrics does not load prometheus_client.
            from duralog.broker.metrics import MeasuredParts
            from duralog.broker.metrics_server import serve_metrics

            parts = MeasuredParts(
                self.runtime,
                self.server,
                self.fetches,
                self.groups,
                self.transactions,
                lambda: self.is_stopping,
                None if self.audit is None else self.audit.log,
            )
            self.metrics = serve_metrics(parts, self._metrics_address, self.advertised_hosts)
            opened.callback(self.metrics.close)

    def serve_schema_registry(self, place: WebAddress) -> HttpServer:
        """Serve one there until `close` of what is returned."""
        # Imported late: only a broker with a registry needs it.
        from duralog.broker.registry.registry import Registry
        from duralog.broker.registry.schemas_log import SchemasLog
        from duralog.broker.registry.server import serve_registry
        from duralog.schemas.schemas_topic import SCHEMAS_TOPIC

        audit = self.audit
        on_created = None if audit is None else recorded_for_itself(audit, "schema registry", SCHEMAS_TOPIC)
        registry = Registry(SchemasLog(self.runtime, self.topics, self.partitions, on_created))

        def record(api: str, change: Changed, sender: Sender) -> None:
            if audit is not None:
                self.runtime.call_soon(lambda: audit.changed_itself(api, change, sender))

        return serve_registry(registry, place, self.advertised_hosts, self.runtime.log_lines, record)

    @property
    def advertised_hosts(self) -> list[str]:
        """The host of each advertised listener."""
        return [node.host for node in self._nodes]

    @property
    def config(self) -> BrokerConfig:
        """The configs in force, those included that were set while the broker ran."""
        return self.store.config if self._is_open else self._given_config

    # Work

    def run(self) -> None:
        """Serve in this thread until `stop`, then close everything."""
        self._check_process()
        try:
            self.loop.run()
        finally:
            self.close()

    def start(self) -> Broker:
        """Serve in a new thread."""
        self._check_process()
        self._thread = threading.Thread(target=self.run, name="duralog-broker")
        self._thread.start()
        return self

    def run_pending(self) -> None:
        """Run the loop once without waiting. Only for tests: they run the broker in their own thread."""
        self._check_process()
        self.loop.run_turn(0)

    def _check_process(self) -> None:
        self._process.check("the broker")

    # The end

    def stop(self) -> None:
        """Stop cleanly, from any thread. Returns when the broker has stopped, unless this is the loop's thread."""
        if not self._is_open:
            return
        if self._thread is None:
            self.loop.call_soon(self._begin_shutdown)
        elif self._thread is not threading.current_thread():
            self.loop.call_soon(self._begin_shutdown)
            self._thread.join()

    def _begin_shutdown(self) -> None:
        if self.is_stopping:
            return
        self.is_stopping = True
        self.server.stop_accepting()
        self._large_requests.stop()
        self._shutdown_deadline_ms = self._timer_clock() + _LONGEST_SHUTDOWN_MS
        self._stop_when_quiet()

    def _stop_when_quiet(self) -> None:
        if self.server.is_quiet or self._timer_clock() >= self._shutdown_deadline_ms:
            self.loop.stop()
        else:
            self.loop.timers.after(_SHUTDOWN_CHECK_MS, self._stop_when_quiet)

    def close(self) -> None:
        """Close everything, the store last. After `start`, call `stop` instead."""
        self.is_stopping = True
        self._opened.close()

    def _close_store(self) -> None:
        self._is_open = False
        self.store.close()

    def __enter__(self) -> Broker:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._thread is None:
            self.close()
