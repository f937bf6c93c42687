"""`/metrics` over HTTP, in a thread of its own: one scrape at a time, whatever clients do.

A client that is slow is dropped; others wait in the kernel's queue meanwhile, so memory does not grow with them. The
broker's loop is asked for its numbers and nothing else.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

from duralog.broker.listening import Address
from duralog.broker.metrics import BrokerCollector

if TYPE_CHECKING:
    from duralog.broker.broker import Broker

_SLOWEST_CLIENT_SECONDS = 2.0
_STOP_CHECK_SECONDS = 0.1


class MetricsServer:
    """Serves from `__init__` to `close`."""

    def __init__(self, broker: Broker, address: Address) -> None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(broker))
        ProcessCollector(registry=registry)

        class Handler(_MetricsHandler):
            found_in = registry

        try:
            self._server = HTTPServer((address.host, address.port), Handler)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics on {address}: {error.strerror}") from error
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_STOP_CHECK_SECONDS,), name="duralog-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = _SLOWEST_CLIENT_SECONDS
    found_in: CollectorRegistry

    def do_GET(self) -> None:
        if self.path.split("?")[0] != "/metrics":
            self.send_error(404, "there is only /metrics here")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept", ""))
        body = encode(self.found_in)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Scrapes are no news."""
