"""Renders docs/reference/python.md from the signatures and docstrings of the public names.

python docs/render_python.py           writes it
python docs/render_python.py --check   fails when it is stale
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rendering import main, table

import duralog

TARGET = Path(__file__).parent / "reference" / "python.md"
MOST_COLUMNS = 100

TEXT = """<!-- Made by render_python.py: change the docstrings in src/duralog. -->

# Python

The names that `import duralog` gives, and those of Spark and of tests; other modules may change. With examples:
[the store](../store.md), [Spark](../spark.md), [tests against a broker](../howto/test-against-a-broker.md).

## duralog

{functions}

{classes}

### Errors

All of them are `DuralogError`, so one `except` catches what can go wrong. Those about bytes have the file, the
position, what was expected and what was found.

{errors}

## duralog.spark

`spark.read.format("duralog")` and its options: [Spark](../spark.md).

{spark}

## duralog.spark.jobs

Each is a function of a session and a path, and returns a report; the report's `to_dict()` is what `--json` prints. As
commands: [`duralog job`](../commands.md#job).

{jobs}

## duralog.testing

{testing}
"""


def render() -> str:
    names = [name for name in duralog.__all__ if not name.startswith("__")]
    values = {name: getattr(duralog, name) for name in names}
    errors = {name: value for name, value in values.items() if inspect.isclass(value) and issubclass(value, Exception)}
    others = {name: value for name, value in values.items() if inspect.isclass(value) and name not in errors}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    return TEXT.format(
        functions=listed(functions, "###"),
        classes=listed({name: others[name] for name in sorted(others, key=by_use)}, "###"),
        errors=table(("error", "when"), [(f"`{name}`", summary(value)) for name, value in errors.items()]),
        spark=listed(module_functions("duralog.spark"), "###"),
        jobs=listed(module_functions("duralog.spark.jobs"), "###"),
        testing=listed(module_names("duralog.testing"), "###"),
    ).replace("\n\n\n", "\n\n")


def by_use(name: str) -> tuple[int, str]:
    """What one meets first comes first."""
    first = ["Store", "PartitionLog", "Record", "TimestampType", "TimestampedOffset", "BrokerConfig"]
    return (first.index(name) if name in first else len(first), name)


def module_names(module: str) -> dict[str, Any]:
    loaded = importlib.import_module(module)
    return {name: getattr(loaded, name) for name in loaded.__all__}


def module_functions(module: str) -> dict[str, Any]:
    return {name: value for name, value in module_names(module).items() if inspect.isfunction(value)}


def listed(values: dict[str, Any], level: str) -> str:
    return "\n\n".join(entry(name, value, level) for name, value in values.items())


def entry(name: str, value: Any, level: str) -> str:
    if not inspect.isclass(value):
        return f"{level} {name}\n\n```text\n{folded(signature(name, value))}\n```\n\n{described(value)}"
    parts = [f"{level} {name}", described(value)]
    if issubclass(value, enum.Enum):
        return "\n\n".join([*parts, ", ".join(f"`{member.name}`" for member in value)])
    members = [*fields(value), *methods(value)]
    if members:
        parts.append(table(("name", "what it is"), members))
    return "\n\n".join(part for part in parts if part)


def folded(line: str) -> str:
    """A signature over several lines, if it is a long one."""
    if len(line) <= MOST_COLUMNS:
        return line
    inside, arrow, returned = line.partition(") -> ")
    name, _, parameters = inside.partition("(")
    return "\n".join([f"{name}(", *(f"    {each}," for each in split_outside(parameters)), f"){arrow[1:]}{returned}"])


def split_outside(parameters: str) -> list[str]:
    """At the commas that are not inside of brackets."""
    parts, depth = [""], 0
    for character in parameters:
        depth += (character in "[(") - (character in "])")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def fields(value: type) -> Iterator[tuple[str, str]]:
    """What an object has: fields with the text behind them in the source, and properties."""
    if dataclasses.is_dataclass(value):
        told = field_texts(value)
        for field in dataclasses.fields(value):
            if not field.name.startswith("_"):
                yield cell(f"`{field.name}: {shown_type(field.type)}`"), told.get(field.name, "")
    elif hasattr(value, "_fields"):
        for name in value._fields:
            yield f"`{name}`", ""
    for name, member in inspect.getmembers(value, lambda each: isinstance(each, property)):
        if not name.startswith("_"):
            yield f"`{name}`", summary(member)


def field_texts(value: type) -> dict[str, str]:
    """The string behind a field, which Python itself forgets."""
    found = re.findall(r'^    (\w+): [^\n]+\n    """(.*?)"""', inspect.getsource(value), re.MULTILINE | re.DOTALL)
    return {name: cell(told) for name, told in found}


def methods(value: type) -> Iterator[tuple[str, str]]:
    for name, member in inspect.getmembers(value, callable):
        plain = inspect.isfunction(member) or inspect.ismethod(member)
        if plain and not name.startswith("_") and member.__module__.startswith("duralog") and member.__doc__:
            yield cell(f"`{signature(name, member)}`"), summary(member)


class _Written:
    """An annotation or a default as it is shown, without the quotes that a string would have."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def signature(name: str, value: Any) -> str:
    whole = inspect.signature(value)
    parameters = [
        each.replace(annotation=written(each.annotation), default=shown_default(each.default))
        for each in whole.parameters.values()
        if each.name != "self"
    ]
    return name + str(whole.replace(parameters=parameters, return_annotation=written(whole.return_annotation)))


def written(annotation: Any) -> Any:
    return annotation if annotation is inspect.Signature.empty else _Written(shown_type(annotation))


def shown_default(default: Any) -> Any:
    if default is duralog.BUILT_IN_POLICIES:
        return _Written("BUILT_IN_POLICIES")
    return _Written(f"{type(default).__name__}.{default.name}") if isinstance(default, enum.Enum) else default


def shown_type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def described(value: Any) -> str:
    """The docstring; indented parts of it as code."""
    document = inspect.getdoc(value) or ""
    if document.startswith(f"{getattr(value, '__name__', '')}("):
        return ""  # What a dataclass says of itself is its signature.
    return re.sub(
        r"((?:^    .+\n?|^\n(?=    ))+)",
        lambda code: f"```python\n{inspect.cleandoc(code[1])}\n```\n",
        document,
        flags=re.M,
    )


def summary(value: Any) -> str:
    return cell((inspect.getdoc(value) or "").split("\n\n")[0])


def cell(content: str) -> str:
    return " ".join(content.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(Path(__file__), __doc__, TARGET, render))
