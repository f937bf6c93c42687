"""One node that speaks Kafka's wire protocol over a store.

| module | what it is |
|---|---|
| `frames` | bytes in, requests out: where a request ends, and what its header says; no sockets |
| `connection` | one client: what it sent, what it is owed, what it may cost |
| `event_loop` | the only thread that touches sockets and the broker's state |
| `dispatch` | from a request to its handler, and from the handler's answer to bytes |
| `messages` | requests and answers as values, by the schemas of `kio` |
| `handlers` | one file for each API |
| `broker` | what the handlers share: the store, partitions, topics, groups, transactions, the clock, timers |
"""
