"""Draws which package imports which, from the code: pictures in docs/images and the table in docs/architecture.md.

python docs/render_imports.py           writes them
python docs/render_imports.py --check   fails when one is stale

Imports inside functions and under `TYPE_CHECKING` count. A cycle between packages is an error: it cannot be drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

import grimp
from rendering import table

DOCS = Path(__file__).parent
PAGE = DOCS / "architecture.md"
BEGIN, END = "<!-- Made by render_imports.py. -->\n", "<!-- End of what render_imports.py made. -->"
ROOT = "duralog"
ROOMS = ("storage", "broker", "spark", "operations", "console", "cli")
"""The packages with a picture of what is in them."""

Edges = Mapping[str, frozenset[str]]
"""By package: those that it imports."""

WIDTH, BOX_HEIGHT, ROW_GAP, LETTER_WIDTH = 960, 34, 30, 8.4
STYLE = """
    .card { fill: #ffffff; } .box { fill: #e6f0ff; stroke: #3b78d8; } .text { fill: #1c2733; }
    .line { stroke: #6b7c8f; fill: none; } .head { fill: #6b7c8f; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #12181f; } .box { fill: #16304f; stroke: #6aa5f5; } .text { fill: #e8eef5; }
      .line { stroke: #8598ad; } .head { fill: #8598ad; }
    }
"""


def package_edges(graph: grimp.ImportGraph, parent: str) -> dict[str, frozenset[str]]:
    """The imports between the packages and modules that lie in a package directly."""

    def child(module: str) -> str | None:
        if not module.startswith(f"{parent}."):
            return None
        return ".".join(module.split(".")[: parent.count(".") + 2])

    edges: dict[str, set[str]] = {}
    for module in sorted(graph.modules):
        importer = child(module)
        if importer is None or importer.endswith("__main__"):
            continue
        imported = {child(target) for target in graph.find_modules_directly_imported_by(module)}
        edges.setdefault(importer, set()).update(target for target in imported if target not in (None, importer))
    return {name: frozenset(targets) for name, targets in edges.items()}


def ranks(edges: Edges) -> dict[str, int]:
    """How high each package lies: one above the highest that it imports."""
    found: dict[str, int] = {}

    def rank(name: str, way: tuple[str, ...]) -> int:
        if name in way:
            raise SystemExit(f"a cycle of imports: {' -> '.join((*way[way.index(name) :], name))}")
        if name not in found:
            below = [rank(target, (*way, name)) for target in sorted(edges.get(name, ()))]
            found[name] = 1 + max(below, default=-1)
        return found[name]

    for name in edges:
        rank(name, ())
    return found


def direct(edges: Edges) -> list[tuple[str, str]]:
    """The arrows without those that others imply: of a -> b -> c and a -> c, the last is left out."""

    def reach(name: str) -> set[str]:
        found: set[str] = set()
        for target in edges.get(name, ()):
            found |= {target} | reach(target)
        return found

    return [
        (name, target)
        for name, targets in sorted(edges.items())
        for target in sorted(targets)
        if not any(target in reach(other) for other in targets if other != target)
    ]


def picture(edges: Edges, title: str) -> str:
    rank = ranks(edges)
    rows = [sorted(name for name in rank if rank[name] == level) for level in range(max(rank.values()), -1, -1)]
    height = 20 + len(rows) * (BOX_HEIGHT + ROW_GAP)
    boxes: list[str] = []
    middle: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        y = 20 + number * (BOX_HEIGHT + ROW_GAP)
        for place, name in enumerate(row):
            label = name.rpartition(".")[2]
            width = 28 + LETTER_WIDTH * len(label)
            x = WIDTH * (place + 1) / (len(row) + 1) - width / 2
            middle[name] = (x + width / 2, y)
            boxes.append(f'<rect class="box" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{BOX_HEIGHT}" rx="7"/>')
            boxes.append(f'<text class="text" x="{x + width / 2:.0f}" y="{y + 22}">{escape(label)}</text>')
    arrows = [_arrow(middle[upper], middle[lower]) for upper, lower in direct(edges)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif\">\n"
        f"  <title>{escape(title)}</title>\n"
        f"  <style>{STYLE}  </style>\n"
        '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'  <rect class="card" width="{WIDTH}" height="{height}" rx="14"/>\n'
        '  <g class="line" stroke-width="1.3" marker-end="url(#tip)">\n    '
        + "\n    ".join(arrows)
        + '\n  </g>\n  <g font-size="15" font-weight="600" text-anchor="middle" stroke-width="1.2">\n    '
        + "\n    ".join(box.replace("<text", '<text stroke="none"') for box in boxes)
        + "\n  </g>\n</svg>\n"
    )


def _arrow(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = upper, lower
    y1 += BOX_HEIGHT
    bend = min(40.0, (y2 - y1) / 2)
    return f'<path d="M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2 - 2:.0f}"/>'


def package_table(graph: grimp.ImportGraph, parents: Iterable[str]) -> str:
    rows = []
    for parent in parents:
        edges = package_edges(graph, parent)
        level = ranks(edges)
        for name in sorted(edges, key=lambda name: (-level[name], name)):
            below = [f"`{target.removeprefix('duralog.')}`" for upper, target in direct(edges) if upper == name]
            rows.append((f"`{name}`", ", ".join(below) or "nothing"))
    return table(("package", "imports, besides what those import"), rows)


def rendered() -> dict[Path, str]:
    graph = grimp.build_graph(ROOT, include_external_packages=False, cache_dir=None)
    pictures = {"layers": package_edges(graph, ROOT)}
    pictures |= {name: package_edges(graph, f"{ROOT}.{name}") for name in ROOMS}
    files = {
        DOCS / "images" / f"{name}.svg": picture(edges, f"Which package imports which: {name}")
        for name, edges in pictures.items()
    }
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{PAGE.name} must have the lines {BEGIN.strip()} and {END}")
    block = package_table(graph, [f"{ROOT}.{name}" for name in ROOMS])
    return {**files, PAGE: f"{before}{BEGIN}\n{block}\n\n{END}{after}"}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for path, text in rendered().items():
        if not arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"{path.name} is stale: run python docs/{Path(__file__).name}", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
