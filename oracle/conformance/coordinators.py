"""A server whose coordinators have all begun: nothing that a scenario asks for is still being loaded.

Kafka makes its two internal topics when a coordinator is first looked for, and loads each of their 50 partitions for
itself. A scenario that asks about several groups meets several partitions, and a list of groups meets all of them.
"""

from __future__ import annotations

from oracle.conformance.dialog import Dialog, is_ready
from oracle.conformance.normal_form import Address

_NAMES = [f"every-{number}" for number in range(200)]
"""Their hashes meet every partition of an internal topic of 50."""
_TRANSACTIONS = 1


def wait_for_coordinators(address: Address) -> None:
    """Of groups, of transactions, and of producer ids."""
    dialog = Dialog(address, "coordinators")
    group, transaction = {"key": _NAMES[0]}, {"key": _NAMES[0], "key_type": _TRANSACTIONS}
    try:
        for api, version, fields in (
            ("find_coordinator", 1, group),
            ("describe_groups", 0, {"groups": _NAMES}),
            ("list_groups", 0, {}),
            ("find_coordinator", 1, transaction),
            ("describe_transactions", 0, {"transactional_ids": _NAMES}),
            ("list_transactions", 0, {}),
            ("init_producer_id", 4, {"transactional_id": None, "transaction_timeout": 60_000}),
        ):
            for _ in dialog.tries():
                if is_ready(dialog.connection("preparing").ask(api, version, fields)):
                    break
    finally:
        dialog.close()
