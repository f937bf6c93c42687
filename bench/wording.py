"""Numbers, names and tables as both kinds of report pages show them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.job import Target
from bench.measured import Measured, Verdict


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def number(value: float) -> str:
    """Three digits that count, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def mode(name: str) -> str:
    """A contender's name without `duralog`: empty for duralog itself."""
    return name.removeprefix("duralog").lstrip(", ")


def peer_and_mode(name: str) -> tuple[str, str]:
    peer, _, its_mode = name.partition(", ")
    return peer, its_mode


def with_mode(text: str, its_mode: str) -> str:
    return f"{text} ({its_mode})" if its_mode else text


def ratio(value: float, other: str, *, is_rate: bool) -> str:
    if is_rate:
        return f"{number(value)}x {other}"
    return f"{number(value)}x less than {other}" if value >= 1 else f"{number(1 / value)}x more than {other}"


def target(one: Target, *, is_rate: bool) -> str:
    if one.than is None:
        return f"{'≥' if is_rate else '≤'} {number(one.bound)}"
    # A bound below 1 of what should be little is a limit of how much more it may be.
    sign = "≥" if is_rate or one.bound >= 1 else "≤"
    return f"{sign} {ratio(one.bound, mode(one.than), is_rate=is_rate)}"


def reached(verdict: Verdict, measured: Measured) -> str:
    if verdict.reached is None:
        return "not measured"
    unit = measured.job.unit
    if verdict.target.than is None:
        return f"{number(verdict.reached)} {unit.name}"
    return ratio(verdict.reached, mode(verdict.target.than), is_rate=unit.is_rate)


def verdict_word(is_met: bool) -> str:
    return "met" if is_met else "**missed**"
