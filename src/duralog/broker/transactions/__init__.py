"""Transactions of producers, as Kafka's coordinator runs them.

| module | what it is |
|---|---|
| `state` | the state of a transactional producer, and its transitions: values, no I/O |
| `decisions` | which request is allowed in which state, in Kafka's order of checks: pure functions |
| `transaction_log` | the states as records of `__transaction_state`, written before they take effect |
| `markers` | the markers that end transactions, written to each of their partitions, some in each turn of the loop |
| `timeouts` | transactions that timed out, and expired transactional ids |
| `coordinator` | what the handlers call |
"""
