"""`RESULTS.md`: one table of all jobs, the missed targets before it, the machine after it.

Each job's details are on a page of their own (`details`).
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from bench import details
from bench.job import Contender, Job
from bench.jobs import LIMITS
from bench.measured import Json, Measured, limits
from bench.wording import mode, number, peer_and_mode, ratio, reached, table, target, verdict_word, with_mode

_SHOWN = 3
"""Modes of duralog in one cell."""

_OPENING = """# Benchmarks

<!-- Made by `python -m bench --render` from results.json; do not edit. -->

Medians, in the unit of the row. A job's page has every round and mode, CPU, memory and a plot. [How the figures are
taken](README.md#how-the-figures-are-taken).
"""
_LIMIT = "*limit*: what no program can beat on this machine, where the job measures it. "
_QUICK = "*quick*: a quarter of the data and fewer rounds, so more noise."


def pages(jobs: Mapping[str, Job], results: Mapping[str, Json], *, plotted: Collection[str]) -> dict[str, str]:
    """The text of every page by its path, for the jobs that have a result."""
    measured = [Measured(job, results[name]) for name, job in jobs.items() if name in results]
    machines = _machines(measured)
    texts = {"RESULTS.md": _overview(measured, machines)}
    for one in measured:
        differences = _differences(one.run["machine"], machines[0]) if machines else []
        texts[details.path(one.job)] = details.page(one, differences, has_plot=one.job.name in plotted)
    return texts


def _overview(measured: Sequence[Measured], machines: Sequence[Json]) -> str:
    head = ["job", "unit", "duralog", "peers", "ratio", "limit", "target", "measured"]
    rows = table(head, [_row(one, machines) for one in measured])
    parts = [_OPENING, _missed(measured), rows, _LIMIT + _QUICK + "\n", _machine(machines)]
    return "\n".join([*parts, _limits([one for one in measured if one.run["machine"] == machines[0]])])


def _missed(measured: Sequence[Measured]) -> str:
    all_verdicts = [(one, verdict) for one in measured for verdict in one.verdicts]
    missed = [(one, verdict) for one, verdict in all_verdicts if not verdict.is_met]
    if not missed:
        return f"All {len(all_verdicts)} targets are met.\n"
    lines = [
        f"- {details.link(one.job)}: {reached(verdict, one)}; target "
        f"{with_mode(target(verdict.target, is_rate=one.job.unit.is_rate), mode(verdict.target.contender))}"
        for one, verdict in missed
    ]
    return f"**{len(missed)} of {len(all_verdicts)} targets are missed:**\n\n" + "\n".join(lines) + "\n"


def _row(one: Measured, machines: Sequence[Json]) -> list[str]:
    ours, note = _shown(one)
    duralog = ", ".join(with_mode(_value(one, each), mode(each.name)) for each in ours) + note
    limit = one.limit
    ceiling = "" if limit is None else f"{number(limit.value)}{' per thread' * limit.is_per_thread} ({limit.name})"
    when = one.run["when"].split()[0] + (" quick" if one.run["quick"] else "")
    footnote = machines.index(one.run["machine"])
    return [
        # Pages of others link to a job by its name.
        f'<a id="{one.job.name}"></a>{details.link(one.job)}',
        one.job.unit.name,
        duralog,
        _peers(one),
        _ratios(one, ours),
        ceiling,
        _targets(one),
        when + (f" [^{footnote}]" if footnote else ""),
    ]


def _shown(one: Measured) -> tuple[Sequence[Contender], str]:
    """The modes of duralog to show: all if they are few, else those with a target, else the one nearest to its own."""
    if len(one.ours) <= _SHOWN:
        return one.ours, ""
    aimed = {verdict.target.contender: verdict.share for verdict in one.verdicts}
    chosen = [each for each in one.ours if each.name in aimed] or one.ours
    if len(chosen) <= _SHOWN:
        return chosen, ""
    worst = min(chosen, key=lambda each: aimed.get(each.name, 0.0))
    return [worst], f", worst of {len(chosen)}"


def _value(one: Measured, contender: Contender) -> str:
    median = one.median(contender.name)
    if median is not None:
        return number(median)
    return "failed" if contender.name in one.stored else "not measured"


def _compared(one: Measured) -> dict[str, list[Contender]]:
    """The peers for the overview, with their modes; those modes are left out where the peer is measured without one."""
    by_peer: dict[str, list[Contender]] = {}
    for each in one.peers:
        by_peer.setdefault(peer_and_mode(each.name)[0], []).append(each)
    return {peer: [each for each in modes if each.name == peer] or modes for peer, modes in by_peer.items()}


def _peers(one: Measured) -> str:
    return ", ".join(
        f"{peer} " + ", ".join(with_mode(_value(one, each), peer_and_mode(each.name)[1]) for each in modes)
        for peer, modes in _compared(one).items()
    )


def _ratios(one: Measured, ours: Sequence[Contender]) -> str:
    is_rate = one.job.unit.is_rate
    compare_with = one.job.compare_with
    compared = _compared(one)
    if compared:
        cells = [(peer, [_ratio_to(one, each, modes) for each in ours]) for peer, modes in compared.items()]
        return ", ".join(
            ", ".join([*(number(value) + "x" for value in known[:-1]), ratio(known[-1], peer, is_rate=is_rate)])
            for peer, values in cells
            if (known := [value for value in values if value is not None])
        )
    if compare_with is None:
        return ""
    pairs = [(each, one.ratio(each.name, compare_with)) for each in ours if each.name != compare_with]
    return ", ".join(
        f"{mode(each.name)}: " * (len(ours) > 1) + ratio(value, mode(compare_with), is_rate=is_rate)
        for each, value in pairs
        if value is not None
    )


def _ratio_to(one: Measured, ours: Contender, peers: Sequence[Contender]) -> float | None:
    """Against the same mode of the peer if it has it, or else against its first."""
    alike = [each for each in peers if peer_and_mode(each.name)[1] == mode(ours.name)]
    return one.ratio(ours.name, (alike or peers)[0].name)


def _targets(one: Measured) -> str:
    modes: dict[tuple[str, bool], list[str]] = {}
    for verdict in one.verdicts:
        asked = target(verdict.target, is_rate=one.job.unit.is_rate)
        modes.setdefault((asked, verdict.is_met), []).append(mode(verdict.target.contender))
    return "; ".join(
        f"{with_mode(asked, _which(names) if len(one.ours) > 1 else '')}: {verdict_word(is_met)}"
        for (asked, is_met), names in modes.items()
    )


def _which(modes: Sequence[str]) -> str:
    return f"each of {len(modes)}" if len(modes) > _SHOWN else ", ".join(modes)


def _machines(measured: Sequence[Measured]) -> list[Json]:
    """The different machines and sets of versions, that of the most jobs first."""
    counted = Counter(tuple(one.run["machine"].items()) for one in measured)
    return [dict(facts) for facts, _ in counted.most_common()]


def _differences(machine: Json, usual: Json) -> list[str]:
    names = [*machine, *(name for name in usual if name not in machine)]
    return [f"{name}: {machine.get(name, 'unknown')}" for name in names if machine.get(name) != usual.get(name)]


def _machine(machines: Sequence[Json]) -> str:
    if not machines:
        return ""
    facts = "; ".join(f"{name}: {value}" for name, value in machines[0].items())
    others = [
        f"[^{number}]: On another machine or with other versions: {'; '.join(_differences(machine, machines[0]))}.\n"
        for number, machine in enumerate(machines[1:], 1)
    ]
    return "\n".join([f"## Machine\n\n{facts}.\n", *others])


def _limits(measured: Sequence[Measured]) -> str:
    runs = {one.run["when"]: one.run for one in measured}.values()
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, value in limits(run).items():
            values.setdefault(name, []).append(value)
    if not values:
        return ""
    figures = "; ".join(
        f"{name} {number(statistics.median(each))} ({number(min(each))} to {number(max(each))})"
        for name, each in values.items()
    )
    return f"Its limits, GB/s, median of all runs (lowest to highest): {figures}. {LIMITS.about}\n"
