"""Transactions of producers, as Kafka's coordinator runs them.

| module | what it is |
|---|---|
| `state` | where a transactional producer stands, and how it gets from there to the next state: values, no I/O |
| `decisions` | which request may do what in which state, in Kafka's order of checks: pure, too |
| `transaction_log` | the states as records of `__transaction_state`, written before they are in force |
| `markers` | the ends of transactions, written to each of their partitions, some at a time |
| `timeouts` | transactions that took too long, and producers that are gone |
| `coordinator` | what the handlers ask |
"""
