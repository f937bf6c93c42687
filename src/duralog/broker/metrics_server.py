"""`/metrics` over HTTP, on threads of its own (`duralog.broker.net.http_server`).

The broker's loop is asked for its numbers and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from duralog.broker.metrics import BrokerCollector, MeasuredParts
from duralog.broker.net.http_hosts import LOOPBACK_NAMES, HttpHosts
from duralog.broker.net.http_server import HttpHandler, HttpServer
from duralog.broker.net.listening import WebAddress


def serve_metrics(parts: MeasuredParts, metrics: WebAddress, advertised_hosts: Iterable[str]) -> HttpServer:
    registry = CollectorRegistry()
    registry.register(BrokerCollector(parts))
    ProcessCollector(registry=registry)
    names = HttpHosts(metrics.bound.host, (*LOOPBACK_NAMES, *advertised_hosts, *metrics.hosts))

    class Handler(_MetricsHandler):
        found_in = registry
        hosts = names
        users = metrics.users

    return HttpServer(metrics, Handler, "metrics", parts.runtime.log_lines)


class _MetricsHandler(HttpHandler):
    found_in: CollectorRegistry

    def respond(self) -> None:
        if not self.is_admitted("these metrics", "--metrics-host"):
            return
        if self.command != "GET" or self.path.split("?")[0] != "/metrics":
            self.refuse(404, "there is only /metrics here")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        self.answer(200, content_type, encode(self.found_in))
