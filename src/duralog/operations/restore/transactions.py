"""Transactions that are open where a log is cut: how they end in the new one.

A consumer of committed records stops at the first open transaction, and nothing in the new home would ever end it: its
coordinator is not restored. So each gets a marker after the last record. It commits if the coordinator had decided so:

- the marker is in the log, above the cut (the high watermark on disk is some seconds old), or
- `__transaction_state` has the transaction as prepared to commit, with this partition.

A transaction of which some records are above the cut is aborted in any case: half of it must not be visible. All others
are aborted, as the coordinator does after `transaction.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from duralog.broker.transactions.state import Transaction
from duralog.errors import CorruptRecord
from duralog.format.control_records import ControlType
from duralog.format.internal.transaction_records import TransactionStatus
from duralog.format.layout import CONTROL_BIT
from duralog.format.producer_snapshot import ProducerEntry
from duralog.format.topic_partition import TopicPartition
from duralog.operations.restore.report import EndedTransaction
from duralog.storage.append.producer_batch import decode_marker, reader_of
from duralog.storage.log.partition_log import PartitionLog
from duralog.storage.log.view import LogView

Prepared = Callable[[], Mapping[int, Transaction]]
"""The transactions that were prepared to commit, by producer id. It is read when it is first needed."""


def end_transactions(
    log: PartitionLog, source: LogView, cut_offset: int, partition: TopicPartition, prepared: Prepared
) -> tuple[EndedTransaction, ...]:
    """Write markers for the open transactions of a new log, a copy of the source up to `cut_offset`."""
    waiting = [entry for entry in log.producers() if entry.transaction_first_offset >= 0]
    ended: list[EndedTransaction] = []
    for entry in sorted(waiting, key=lambda entry: entry.transaction_first_offset):
        commit, reason = _outcome(entry, source, cut_offset, partition, prepared)
        written = log.end_transaction(entry.producer_id, entry.producer_epoch, commit=commit)
        ended.append(
            EndedTransaction(
                producer_id=entry.producer_id,
                first_offset=entry.transaction_first_offset,
                marker_offset=written.base_offset,
                committed=commit,
                reason=reason,
            )
        )
    return tuple(ended)


def _outcome(
    entry: ProducerEntry, source: LogView, cut_offset: int, partition: TopicPartition, prepared: Prepared
) -> tuple[bool, str]:
    marker, has_more = _above(entry.producer_id, source, cut_offset)
    if has_more:
        return False, "some of its records are above the high watermark; restore with --to-end to keep it whole"
    if marker is not None:
        return marker is ControlType.COMMIT, "the log has its marker above the high watermark"
    known = prepared().get(entry.producer_id)
    if (
        known is not None
        and partition in known.partitions
        and known.producer_epoch in (entry.producer_epoch, entry.producer_epoch + 1)
    ):
        return True, "its coordinator had decided to commit it"
    return False, "it had not been committed"


def _above(producer_id: int, source: LogView, cut_offset: int) -> tuple[ControlType | None, bool]:
    """The marker that ends the transaction, and whether it has records before that."""
    has_more = False
    if cut_offset >= source.end_offset:
        return None, False
    for piece in source.scanned_from(cut_offset):
        read = reader_of(piece)
        rows = piece.batches
        for row in rows[(rows["producer_id"] == producer_id) & (rows["base_offset"] >= cut_offset)]:
            if not row["attributes"] & CONTROL_BIT:
                has_more = True
                continue
            try:
                marker = decode_marker(read(int(row["position"]), int(row["size"])))
            except CorruptRecord:
                return None, has_more
            return (None if marker is None else marker.type), has_more
    return None, has_more


def is_committing(transaction: Transaction) -> bool:
    return transaction.status is TransactionStatus.PREPARE_COMMIT
