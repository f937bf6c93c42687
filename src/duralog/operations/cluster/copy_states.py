"""The state of each copy of a cluster's partitions, by the worst of its findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from duralog.operations.cluster.verify import ComparedPartition

EQUAL, SHORT, DAMAGED, OTHER = "equal", "short", "damaged", "other"
STATES = {
    EQUAL: "has all batches of the log",
    SHORT: "ends early, or starts late",
    OTHER: "has another history",
    DAMAGED: "is damaged, has holes, or is missing",
}
"""In ascending severity."""
_OF_FINDING = {"lag": SHORT, "cut": SHORT, "divergence": OTHER, "other-topic": OTHER, "stray": OTHER}
"""All other findings are damage."""
_RANKS = {state: rank for rank, state in enumerate(STATES)}


def states_of(rows: Sequence[ComparedPartition]) -> list[dict[str, tuple[str, str]]]:
    """Of each partition, by node: the state of its copy, and a text about it."""
    nodes = {copy.directory: node_name(copy.node_id) for found in rows for copy in found.explained.copies}
    return [_states(found, nodes) for found in rows]


def _states(found: ComparedPartition, nodes: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """By node: the state of its copy, and a text about it. A node without its replica counts as damaged.

    `nodes` are those of all directories.
    """
    wrong: dict[str, list[str]] = defaultdict(list)
    lagging = [each for each in found.notes if each.finding in _OF_FINDING]
    for each in (*found.findings, *lagging):
        wrong[each.directory].append(each.finding)
    states: dict[str, tuple[str, str]] = {}
    for copy in found.explained.copies:
        kinds = wrong[copy.directory]
        state = max((_OF_FINDING.get(kind, DAMAGED) for kind in kinds), key=_RANKS.__getitem__, default=EQUAL)
        role = "the copy that counts, " if copy.is_chosen else ""
        counts = ", ".join(f"{kind} ({count})" for kind, count in Counter(kinds).items()) or "equal"
        text = f"{copy.directory}: {role}offsets {copy.start_offset} to {copy.end_offset}: {counts}"
        node = node_name(copy.node_id)
        known = states.get(node)
        if known is not None:
            state, text = max(known[0], state, key=_RANKS.__getitem__), f"{known[1]}; {text}"
        states[node] = state, text
    for each in found.findings:
        # A folder that cannot be read, or is that of another topic, is not a copy.
        if each.directory in nodes:
            state = _OF_FINDING.get(each.finding, DAMAGED)
            states.setdefault(nodes[each.directory], (state, f"{each.directory}: {each.finding}: {each.text}"))
    for node_id in found.explained.missing_nodes:
        states.setdefault(node_name(node_id), (DAMAGED, "there is no copy"))
    return states


def node_name(node_id: int | None) -> str:
    return "?" if node_id is None else str(node_id)
