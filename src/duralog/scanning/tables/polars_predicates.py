"""What a predicate of Polars says of the records that a query wants: their partitions, offsets and times.

Polars gives an IO source the predicate of a query as an expression. A conjunction of comparisons of `offset` and
`timestamp` with literals narrows what is read, and so does any condition on `topic` and `partition` alone, which is
tried on the partitions that there are. All else narrows nothing. Polars' own filter is applied to the rows in any case.

Polars writes expressions as JSON, in a form that may change with a version. What is not understood narrows nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from io import StringIO
from typing import TYPE_CHECKING, Any

from duralog.columnar.schema import OFFSET, PARTITION, TIMESTAMP, TOPIC
from duralog.format.topic_partition import TopicPartition
from duralog.scanning.row_bounds import INT64_MAX, RowBounds

if TYPE_CHECKING:
    import polars as pl

_MIRRORED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}
_UNITS_PER_MS = {"Nanoseconds": 1_000_000, "Microseconds": 1_000, "Milliseconds": 1}
_MOST_DEPTH = 100


class PolarsPredicate:
    """`bounds` are those of all rows that satisfy the predicate."""

    def __init__(self, predicate: pl.Expr) -> None:
        self.bounds = RowBounds()
        self._of_partitions: list[dict[str, Any]] = []
        try:
            tree = json.loads(predicate.meta.serialize(format="json"))
            for each in _conjuncts(tree, 0):
                self._take(each)
        except Exception:
            # Another version of Polars may write it in any way. The filter is enough, and what was found is right.
            return

    def partitions(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those that may have wanted rows."""
        import polars as pl

        listed = list(partitions)
        columns = {TOPIC: [each.topic for each in listed], PARTITION: [each.partition for each in listed]}
        frame = pl.DataFrame(columns, schema={TOPIC: pl.String, PARTITION: pl.Int32})
        for condition in self._of_partitions:
            try:
                frame = frame.filter(pl.Expr.deserialize(StringIO(json.dumps(condition)), format="json"))
            except Exception:
                # As above.
                continue
        return {TopicPartition(topic, number) for topic, number in frame.iter_rows()}

    def _take(self, condition: dict[str, Any]) -> None:
        if _columns(condition) <= {TOPIC, PARTITION}:
            self._of_partitions.append(condition)
            return
        for column, operator, value in _comparisons(condition):
            if column == OFFSET and type(value) is int:
                self._take_offset(operator, value)
            elif column == TIMESTAMP and (time := _time_ms(value)) is not None:
                self._take_time(operator, *time)

    def _take_offset(self, operator: str, value: int) -> None:
        first = {"Gt": value + 1, "GtEq": value, "Eq": value}.get(operator, 0)
        last = {"Lt": value - 1, "LtEq": value, "Eq": value}.get(operator, INT64_MAX - 1)
        self.bounds.between(first, last)

    def _take_time(self, operator: str, floor_ms: int, is_whole: bool) -> None:
        """A time between two milliseconds is after the first one."""
        if operator in ("Gt", "GtEq", "Eq"):
            self.bounds.since(floor_ms)
        if operator in ("Lt", "LtEq", "Eq"):
            self.bounds.until(floor_ms if is_whole and operator == "Lt" else floor_ms + 1)


def _conjuncts(node: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The conditions that a row must satisfy all of."""
    binary = node.get("BinaryExpr") if isinstance(node, dict) else None
    if binary is not None and binary["op"] in ("And", "LogicalAnd") and depth < _MOST_DEPTH:
        yield from _conjuncts(binary["left"], depth + 1)
        yield from _conjuncts(binary["right"], depth + 1)
    elif isinstance(node, dict):
        yield node


def _columns(node: Any) -> set[str]:
    """All columns of an expression; more than a name for what is not known to have none."""
    if isinstance(node, list):
        return set().union(*map(_columns, node)) if all(isinstance(each, dict | list) for each in node) else set()
    if not isinstance(node, dict):
        return set()
    found: set[str] = set()
    for name, value in node.items():
        if name == "Column":
            found.add(str(value))
        elif name == "Selector":
            found.add("*")
        else:
            found |= _columns(value)
    return found


def _comparisons(node: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Of a column with a literal: its name, the operator as if the column were on the left, the literal."""
    binary = node.get("BinaryExpr")
    if binary is not None and binary["op"] in _MIRRORED:
        left, right = binary["left"], binary["right"]
        if "Column" in left and "Literal" in right:
            yield left["Column"], binary["op"], _literal(right)
        elif "Column" in right and "Literal" in left:
            yield right["Column"], _MIRRORED[binary["op"]], _literal(left)
    function = node.get("Function")
    if function is not None and isinstance(function.get("function"), dict):
        between = function["function"].get("Boolean")
        if isinstance(between, dict) and "IsBetween" in between:
            column, lower, upper = function["input"]
            if "Column" in column and "Literal" in lower and "Literal" in upper:
                # Whether its ends belong to it does not matter: they are read then, too.
                yield column["Column"], "GtEq", _literal(lower)
                yield column["Column"], "LtEq", _literal(upper)


def _literal(node: dict[str, Any]) -> Any:
    """A whole number, or a time as `{"Datetime": ...}`; None for anything else."""
    found = node["Literal"]
    for name in ("Scalar", "Dyn"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    if not isinstance(found, dict) or len(found) != 1:
        return None
    [(kind, value)] = found.items()
    if kind.startswith(("Int", "UInt")) and type(value) is int:
        return value
    return found if kind == "Datetime" else None


def _time_ms(value: Any) -> tuple[int, bool] | None:
    """In milliseconds, and whether it is a whole number of them. Only times that have a zone are those of records."""
    if not isinstance(value, dict):
        return None
    number, unit, zone = value["Datetime"]
    per_ms = _UNITS_PER_MS.get(unit)
    if per_ms is None or zone is None or type(number) is not int:
        return None
    return number // per_ms, number % per_ms == 0
