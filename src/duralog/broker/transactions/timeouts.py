"""Aborts transactions that time out, and removes transactional ids that expire.

A transaction that is open for longer than its timeout is aborted, and its producer fenced. A producer that had no
transaction for `transactional.id.expiration.ms` is forgotten, with a tombstone in the log; when it comes back, it is a
new one. Both are checked at the intervals of the configs. Ids are checked some in each turn of the loop, so that very
many do not delay clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from duralog.broker.net.log_lines import logger
from duralog.broker.runtime import Runtime
from duralog.broker.topics.tombstone_batches import tombstone_batches
from duralog.broker.transactions.state import Transaction
from duralog.broker.transactions.transaction_log import TransactionLog
from duralog.broker.wire.error_codes import NONE
from duralog.format.internal.transaction_records import AT_REST

IDS_PER_TURN = 5_000


class Timeouts:
    def __init__(
        self,
        runtime: Runtime,
        log: TransactionLog,
        states: dict[str, Transaction],
        ongoing: Mapping[str, Transaction],
        abort: Callable[[str], int],
    ) -> None:
        """`abort` ends the open transaction of an id, and returns an error code."""
        self._runtime = runtime
        self._log = log
        self._states = states
        self._ongoing = ongoing
        self._abort = abort

    def start(self) -> None:
        """Start both checks. They end with the timers of the broker."""
        self._schedule_overdue()
        self._schedule_unused()

    # Transactions that timed out

    def _schedule_overdue(self) -> None:
        interval_ms = self._runtime.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._runtime.timers.after(interval_ms, self._check_overdue)

    def _check_overdue(self) -> None:
        try:
            self.abort_overdue()
        finally:
            self._schedule_overdue()

    def abort_overdue(self) -> None:
        now_ms = self._runtime.clock()
        overdue = [
            transactional_id
            for transactional_id, transaction in self._ongoing.items()
            if transaction.is_overdue(now_ms)
        ]
        for transactional_id in overdue:
            error = self._abort(transactional_id)
            if error == NONE:
                logger.info("the transaction of %s timed out and is aborted", transactional_id)
            else:
                reason = f"the transaction of {transactional_id} timed out and cannot be aborted yet"
                self._runtime.log_lines.warn("overdue transaction", f"{reason}: error code {error}")

    # Unused ids

    def _schedule_unused(self) -> None:
        interval_ms = self._runtime.config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._runtime.timers.after(interval_ms, self._check_unused)

    def _check_unused(self) -> None:
        self._forget_unused_of(iter(tuple(self._states)))

    def _forget_unused_of(self, transactional_ids: Iterator[str]) -> None:
        try:
            some = list(islice(transactional_ids, IDS_PER_TURN))
            self.forget_unused(some)
        except BaseException:
            self._schedule_unused()
            raise
        if some:
            self._runtime.timers.after(0, lambda: self._forget_unused_of(transactional_ids))
        else:
            self._schedule_unused()

    def forget_unused(self, transactional_ids: list[str]) -> None:
        """Remove those of the ids that have expired."""
        before_ms = self._runtime.clock() - self._runtime.config.transactional_id_expiration_ms
        by_partition: dict[int, list[str]] = {}
        for transactional_id in transactional_ids:
            known = self._states.get(transactional_id)
            if known is not None and _is_unused(known, before_ms):
                number = self._log.partition_for(transactional_id)
                if number is not None:
                    by_partition.setdefault(number, []).append(transactional_id)
        for number, unused in by_partition.items():
            for some in tombstone_batches(unused, len, self._log.max_message_bytes):
                if self._log.forget(number, some) == NONE:
                    for transactional_id in some:
                        del self._states[transactional_id]


def _is_unused(transaction: Transaction, before_ms: int) -> bool:
    return transaction.status in AT_REST and transaction.updated_ms <= before_ms
