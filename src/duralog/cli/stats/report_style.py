"""The style sheet of a report, for light, dark and print."""

KINDS = ("before", "after", "gone", "clean", "dirty", "active", "kept")
"""The kinds of marks of a chart. Each has a colour of its name."""

_BASE = """
:root {
  color-scheme: light dark;
  --page: #f6f5f2; --card: #ffffff; --ink: #1d1d1b; --quiet: #67655f; --line: #e4e1da;
  --before: #a9b2bd; --after: #0b7a75; --gone: #d9692c;
  --clean: #0b7a75; --dirty: #d9692c; --active: #4a7fd0; --kept: #7c8794;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #121417; --card: #1a1d22; --ink: #e9e7e3; --quiet: #9b9fa7; --line: #2d3138;
    --before: #5c6673; --after: #35c4b5; --gone: #f08b4f;
    --clean: #35c4b5; --dirty: #f08b4f; --active: #7fabee; --kept: #8b96a4;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 2.5rem 1.25rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 56rem; margin: 0 auto; }
h1 { font-size: 1.75rem; line-height: 1.2; letter-spacing: -0.02em; margin: 0 0 0.4rem; }
h2 { font-size: 1.1rem; letter-spacing: -0.005em; margin: 0; }
p { margin: 0.25rem 0 0; color: var(--quiet); max-width: 46rem; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.9rem; margin: 1.8rem 0 0.9rem;
}
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 0.9rem 1.1rem 1rem; }
.tile b { display: block; font-size: 1.5rem; font-weight: 600; letter-spacing: -0.02em; line-height: 1.3; }
.tile span { display: block; color: var(--quiet); font-size: 0.87rem; line-height: 1.4; }
.tile span:first-child { color: var(--ink); font-weight: 550; }
section { padding: 1.2rem 1.4rem 1.3rem; margin-bottom: 0.9rem; }
section h3 { font-size: 1.02rem; margin: 0; }
.chapter { margin: 2.6rem 0 1rem; overflow-wrap: anywhere; }
.chapter h2 { font-size: 1.35rem; letter-spacing: -0.015em; }
h1, header p { overflow-wrap: anywhere; }
.keys { margin: 0.6rem 0 0; font-size: 0.87rem; color: var(--quiet); }
.key { margin-right: 1.3rem; white-space: nowrap; }
.key i { display: inline-block; width: 0.75rem; height: 0.75rem; border-radius: 3px; margin-right: 0.45rem; }
svg { display: block; width: 100%; height: auto; margin-top: 0.9rem; }
.narrow { display: none; }
@media screen and (max-width: 40rem) { .wide { display: none; } .narrow { display: block; } }
svg text { font: 12px/1 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
svg .tick { fill: var(--quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
svg .value { fill: var(--quiet); font-variant-numeric: tabular-nums; }
svg .middle { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg rect:hover { opacity: 0.75; }
svg .area { opacity: 0.28; stroke: none; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .touch { fill: var(--ink); opacity: 0; } svg .touch:hover { opacity: 0.07; }
details { margin-top: 0.9rem; font-size: 0.87rem; }
summary { color: var(--quiet); cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin-top: 0.6rem; font-variant-numeric: tabular-nums; }
th, td {
  padding: 0.28rem 1.3rem 0.28rem 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap;
}
th { font-weight: 550; color: var(--quiet); }
th.number, td.number { text-align: right; }
footer { color: var(--quiet); font-size: 0.87rem; margin-top: 1.4rem; }
@media (max-width: 30rem) {
  body { padding: 1.4rem 0.7rem 3rem; }
  section { padding: 1rem 0.9rem 1.1rem; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: 0.6rem; }
  .tile { padding: 0.7rem 0.8rem 0.8rem; }
  .tile b { font-size: 1.25rem; }
}
@media print { body { background: none; padding: 0; } section, .tile { break-inside: avoid; } }
"""

STYLE = _BASE + "".join(
    f".key i.{kind} {{ background: var(--{kind}); }}\n"
    f"svg .{kind} {{ fill: var(--{kind}); }}\n"
    f"svg .line.{kind} {{ fill: none; stroke: var(--{kind}); }}\n"
    for kind in KINDS
)
