"""A single-node broker that speaks Kafka's wire protocol over a store.

Each package imports only those below it, and `broker` is imported by none of them:

| package or module | what it is |
|---|---|
| `broker` | the composition root: makes the parts below and binds the handlers to them |
| `ephemeral_folder` | the temporary directory of a broker that keeps nothing |
| `warm_up` | loads the kernels before the first append needs them |
| `metrics`, `metrics_server` | what Prometheus scrapes |
| `registry` | a schema registry over HTTP |
| `handlers` | one module for each API of the protocol |
| `produce`, `fetch`, `groups`, `transactions` | what these APIs do; none of the four knows another |
| `configs` | configs of brokers, topics and groups: reading and changing them |
| `topics` | topics and partitions as clients see them, appends, the logs of coordinators |
| `runtime` | what every part works with: store, clock, timers, worker threads |
| `net` | sockets, the event loop, worker threads, limits, dispatch |
| `wire` | bytes and messages of the protocol; no sockets |
"""
