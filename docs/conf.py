"""The documentation as a site: `make docs` builds it into build/docs, with every warning an error.

The root of the project is the root of the pages, so that a link means the same here, in an editor and on a code host.
What the sidebar shows, in which order, is `NAVIGATION`; a page that is missing there fails the build.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, using
from pygments.lexers.shell import BashLexer
from pygments.token import Generic

import duralog

NAVIGATION = {
    "Learn": ["In three minutes <README>", "docs/tutorial", "docs/uses", "docs/first-minute"],
    "How to": [
        "docs/howto/read-a-backup-with-spark",
        "docs/howto/read-a-backup-with-no-registry",
        "docs/howto/find-a-record-by-time",
        "docs/howto/why-is-my-topic-not-compacted",
        "docs/howto/back-up-a-directory",
        "docs/howto/read-a-cluster-backup",
        "docs/howto/compare-replicas",
        "docs/howto/heal-a-replica",
        "docs/howto/restore-a-topic",
        "docs/howto/restore-after-corruption",
        "docs/howto/test-against-a-broker",
        "docs/howto/avro-in-pytest",
        "docs/howto/move-a-topic-to-kafka",
        "docs/howto/export-to-a-lakehouse",
        "docs/howto/avro-topic-as-a-table",
        "docs/howto/debezium-to-delta",
        "docs/howto/latest-state-of-every-key",
        "docs/howto/reset-a-consumer-group",
        "docs/howto/watch-lag-and-disk",
        "docs/howto/upgrade-old-logs",
        "docs/howto/several-disks",
        "docs/howto/tune-the-machine",
        "docs/howto/run-as-a-service",
        "docs/howto/spark-platforms",
    ],
    "Guides": [
        "docs/store",
        "docs/broker",
        "docs/security",
        "docs/spark",
        "docs/schemas",
        "docs/console",
        "docs/compaction",
        "docs/durability",
        "docs/reliability",
        "docs/recovery",
        "docs/scale",
    ],
    "Reference": [
        "docs/commands",
        "docs/dump",
        "docs/reference/options",
        "docs/configs",
        "docs/reference/python",
        "docs/formats",
        "docs/glossary",
    ],
    "Inside": [
        "docs/architecture",
        "docs/locks",
        "docs/decisions/index",
        "docs/comparison",
        "NOT_SUPPORTED",
        "bench/README",
        "bench/RESULTS",
        "CONTRIBUTING",
        "docs/style",
        "SECURITY",
        "CHANGELOG",
    ],
}

ROOT = Path(__file__).parents[1]

project = "duralog"
version = release = duralog.__version__
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "bench/*.md", "bench/results/*.md", "docs/**.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "src",
    "tests",
    "oracle",
    "examples",
    "bench/data",
    "bench/work",
    "**.template.md",
]

nitpicky = True
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "duralog"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

_HTML_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', re.MULTILINE)
_FRONT = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}"><a href="{0}">duralog</a>\n'
)


def _toctree(caption: str, pages: list[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", *map(_from_root, pages), "```", ""])


def _pages(folder: str, pattern: str) -> list[str]:
    return [f"{folder}/{path.stem}" for path in sorted((ROOT / folder).glob(pattern))]


def _from_root(page: str) -> str:
    title, bracket, name = page.partition("<")
    return f"{title}</{name}" if bracket else f"/{page}"


class _Session(RegexLexer):  # type: ignore[misc]
    """A session as pages show it: commands behind `$ `, and what they print, in which `#` begins a note, no prompt."""

    name = "Session"
    aliases = ("console",)
    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"^(\$ |> )(.*\n)", bygroups(Generic.Prompt, using(BashLexer))),
            (r".*\n", Generic.Output),
        ]
    }


def _prepare(_app: Any, page: str, source: list[str]) -> None:
    """Anchors made by hand become targets; the front page, decisions and benchmarks get their part of the sidebar."""
    text = _HTML_ANCHOR.sub(r"(\1)=", source[0])
    if page == root_doc:
        text += "\n" + "\n".join(_toctree(caption, pages) for caption, pages in NAVIGATION.items())
    elif page == "docs/decisions/index":
        text += "\n" + _toctree("Decisions", _pages("docs/decisions", "0*.md"))
    elif page == "bench/RESULTS":
        text += "\n" + _toctree("Jobs", _pages("bench/results", "*.md"))
    source[0] = text


def _add_front(app: Any, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        (Path(app.outdir) / "index.html").write_text(_FRONT.format(f"{root_doc}.html"), encoding="utf-8")


def setup(app: Any) -> None:
    app.add_lexer("console", _Session)
    app.connect("source-read", _prepare)
    app.connect("build-finished", _add_front)
