"""How-to pages work from pip alone: they say what to install, make the data that they work on, and hide no step."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import shown_commands
from markdown_blocks import Block, blocks
from packaging.requirements import Requirement

from tests.docs.documented_pages import PAGES, name_of
from tests.support.places import DOCS, ROOT

HOW_TO = [page for page in PAGES if page.parent.name == "howto"]
INSTALLING = [*HOW_TO, ROOT / "README.md", *(DOCS / f"{name}.md" for name in ("tutorial", "store", "schemas", "spark"))]
"""Pages that start with what to install."""

NEEDED = {
    r"duralog serve |kafka_broker|running_broker|schema_registry\b": "broker",
    r"duralog (?!serve)[^|;&]*(?:localhost|127\.0\.0\.1)": "kafka",
    r"duralog job |--engine spark|spark\.read": "spark",
    r"--format (?:delta|iceberg)": "lakehouse",
    r"duralog console ": "console",
    r"duralog\.scan\(|read_arrow|decode=|duralog (?:stats|cluster) |-(?:format|schema) |--to \S+\.parquet": "arrow",
    r"\.to_pandas\(": "pandas",
    r"\.to_polars\(": "polars",
    r"\.to_duckdb\(|duckdb\.sql\(": "duckdb",
}
"""What commands and programs of a page use, and the extra or the package that it needs."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
HOMES = metadata.packages_distributions()

_INSTALLED = re.compile(r"pip3? install (?P<requirements>[^#&;|`\n]*)")
_INLINE_PROGRAM = re.compile(r"python3? -c \"(.*?)\"(?=$|\s)", re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def requirements_of(name: str) -> set[str]:
    """The distributions of an extra of duralog, as pyproject.toml declares them, or the package of that name."""
    return {Requirement(each).name.lower() for each in EXTRAS.get(name, [name])}


def installed_by(page: str) -> set[str]:
    """The distributions that a page says to install, with those of duralog's extras."""
    found: set[str] = set()
    for line in _INSTALLED.finditer(page):
        words = [word.strip("'\"") for word in line["requirements"].split() if not word.startswith("-")]
        for requirement in map(Requirement, words):
            found.add(requirement.name.lower())
            if requirement.name == "duralog":
                found.update(Requirement(each).name.lower() for each in PROJECT["dependencies"])
                found.update(*(requirements_of(extra) for extra in requirement.extras & EXTRAS.keys()))
    return found


def typed(page: str) -> Iterator[str]:
    """Commands to type and programs to run, one after the other."""
    for block in blocks(page):
        if block.language == "console":
            yield from (step.text for step in shown_commands.steps(_as_page(block)) if not isinstance(step, Block))
        elif block.language == "sh":
            yield from (line for line in block.text.splitlines() if not _INSTALLED.search(line))
        elif block.language == "python":
            yield block.text


def _as_page(block: Block) -> str:
    return f"```console\n{block.text}```\n"


def imported_by(page: str) -> set[str]:
    """The distributions of what the programs of a page import."""
    programs = [block.text for block in blocks(page) if block.language == "python"]
    programs += [found for text in typed(page) for found in _INLINE_PROGRAM.findall(text)]
    modules: set[str] = set()
    for node in (node for program in programs for node in ast.walk(ast.parse(program))):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.add(node.module.partition(".")[0])
    return {HOMES[module][0].lower() for module in modules - sys.stdlib_module_names - {"duralog"}}


def missing_on(page: str) -> list[str]:
    """What a page uses and does not install."""
    installed = installed_by(page)
    missing = [f"{name} is imported" for name in sorted(imported_by(page) - installed)]
    for text in typed(page):
        for used, needed in NEEDED.items():
            if re.search(used, text) and not requirements_of(needed) <= installed:
                missing.append(f"{needed} is needed for {text}")
    return missing


def test_there_are_how_to_pages() -> None:
    assert len(HOW_TO) > 20


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_a_page_starts_with_what_to_install(page: Path) -> None:
    first = next(blocks(text_of(page)))
    assert first.language == "sh"
    assert re.search(r"pip install ['\"]?duralog", first.text)


@pytest.mark.parametrize("page", INSTALLING, ids=name_of)
def test_extras_of_a_page_exist(page: Path) -> None:
    named = re.findall(r"['\"]duralog\[([\w,]+)\]", text_of(page))
    assert {extra for extras in named for extra in extras.split(",")} <= EXTRAS.keys()


@pytest.mark.parametrize("page", INSTALLING, ids=name_of)
def test_what_a_page_uses_is_installed(page: Path) -> None:
    assert missing_on(text_of(page)) == []


@pytest.mark.parametrize("page", INSTALLING, ids=name_of)
def test_a_page_hides_no_step_and_takes_no_file_of_the_project(page: Path) -> None:
    text = text_of(page)
    assert "<!--" not in text
    for step in typed(text):
        assert not re.search(r"\$\{?ROOT\b|\btests/|\bexamples\b", step), step


@pytest.mark.parametrize("page", INSTALLING, ids=name_of)
def test_a_page_says_how_to_name_a_file(page: Path) -> None:
    """The page shows the contents of a file, and not its name."""
    text = text_of(page)
    for block in blocks(text):
        if block.file is not None:
            assert f"`{block.file}`" in "\n".join(text.splitlines()[: block.line]), block.file


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_a_page_says_what_can_go_wrong(page: Path) -> None:
    text = text_of(page)
    assert "\n> " in text, "the problem, in the reader's words"
    assert "## What can go wrong" in text


def test_every_page_is_on_the_front() -> None:
    front = text_of(DOCS / "index.md")
    for page in HOW_TO:
        assert f"(howto/{page.name})" in front, page.name


@pytest.mark.parametrize(
    ("extras", "step", "missing"),
    [
        ("[arrow]", '```console\n$ python -c "import polars; print(1)"\n```', ["polars is imported"]),
        ("", "```python file=a.py\nimport confluent_kafka\n```", ["confluent-kafka is imported"]),
        ("[kafka]", "```python file=a.py\nfrom confluent_kafka import Producer\n```", []),
        ("", "```console\n$ duralog group list localhost\n```", ["kafka is needed for duralog group list localhost"]),
        ("", "```sh\nduralog job export a b\n```", ["spark is needed for duralog job export a b"]),
        ("[spark]", "```sh\nduralog job export a b\n```", []),
        ("", "```python\nprint(duralog.scan('x'))\n```", ["arrow is needed for print(duralog.scan('x'))\n"]),
    ],
)
def test_what_is_missing_is_found(extras: str, step: str, missing: list[str]) -> None:
    assert missing_on(f"```sh\npip install 'duralog{extras}'\n```\n\n{step}\n") == missing
