"""A single-node broker that speaks Kafka's wire protocol over a store.

Each package imports only those below it, and `broker` is imported by none of them:

| package or module | what it is |
|---|---|
| `broker` | the composition root: makes the parts below and binds the handlers to them |
| `ephemeral_folder` | the temporary directory of a broker that keeps nothing |
| `warm_up` | loads the kernels before the first append needs them |
| `metrics`, `metrics_server` | metrics for Prometheus |
| `registry` | a schema registry over HTTP |
| `handlers` | one module for each API of the protocol |
| `produce`, `fetch`, `groups`, `transactions` | the work of these APIs; none of the four imports another |
| `configs` | reads and changes configs of brokers, topics and groups |
| `topics` | topics and partitions for clients, appends, the logs of coordinators |
| `runtime` | shared by all parts: store, clock, timers, worker threads |
| `net` | sockets, the event loop, worker threads, limits, dispatch |
| `wire` | bytes and messages of the protocol; no sockets |
"""
