"""Renders docs/configs.md from the declarations of the configs.

python docs/render_configs.py           writes it
python docs/render_configs.py --check   fails when it is stale
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rendering import main, table

from duralog.config import BROKER_CONFIGS, TOPIC_CONFIGS, ConfigDef, Synonym
from duralog.config.definitions import DOUBLE_MAX, INT32_MAX, INT64_MAX

TARGET = Path(__file__).with_name("configs.md")

TEXT = """<!-- Made by render_configs.py: change the declarations in src/duralog/config. -->

# Configs

duralog takes Kafka's configs under Kafka's names, with the types, defaults and ranges of Kafka 4.3.1.

- `duralog.open(directory, config={{...}})` takes broker configs. A name that Kafka does not know is refused, and so is
  a value that is not allowed: the error names the config, the value, and what is allowed.
- A `server.properties` is taken as it is. Configs that only Kafka has a use for have no effect. Those that Kafka does
  not know either have none, and are listed in `BrokerConfig.ignored`.
- A topic's own configs win over the broker's. They are stored in the cluster metadata, where Kafka keeps them.
- Where several broker configs set one topic config, the first that is given counts, in the order of the table.
- Configs that were set while a broker ran, or with [`duralog config`](commands.md#config), are in the cluster metadata
  too, and win over `server.properties`. `duralog serve --override` wins over both.
- Values that leave no way into a broker are [refused](broker.md#configs), though Kafka allows them.

Values may be Python values or text as in `server.properties`. Lists are divided by commas.

## Of a topic

{topic}

## Of a broker

{broker}
"""

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def render() -> str:
    return TEXT.format(topic=topic_table(TOPIC_CONFIGS.values()), broker=broker_table(BROKER_CONFIGS.values()))


def topic_table(definitions: Iterable[ConfigDef]) -> str:
    head = ("topic config", "type", "default", "allowed", "for all topics", "what it does")
    rows = [(*columns(each), ", ".join(map(synonym_text, each.synonyms)), each.doc) for each in definitions]
    return table(head, rows)


def broker_table(definitions: Iterable[ConfigDef]) -> str:
    return table(
        ("broker config", "type", "default", "allowed", "what it does"),
        [(*columns(each), each.doc) for each in definitions],
    )


def columns(definition: ConfigDef) -> tuple[str, str, str, str]:
    return f"`{definition.name}`", definition.kind.name, default_text(definition), definition.allowed.text


def synonym_text(synonym: Synonym) -> str:
    return f"`{synonym.name}`" if synonym.multiplier == 1 else f"`{synonym.name}` x {synonym.multiplier}"


def default_text(definition: ConfigDef) -> str:
    """The default as Kafka writes it, and in words where the number says little."""
    value = definition.default
    if value is None:
        return "not set"
    text = definition.text(value) or "empty"
    if value in (INT32_MAX, INT64_MAX, DOUBLE_MAX):
        return f"{text} (no limit)"
    if isinstance(value, int) and not isinstance(value, bool):
        units = _UNITS if definition.name.endswith(".ms") else _SIZES
        for name, size in units:
            if value >= size and value % size == 0:
                count = value // size
                return f"{text} ({count} {name}{'s' if units is _UNITS and count > 1 else ''})"
    return text


if __name__ == "__main__":
    sys.exit(main(Path(__file__), __doc__, TARGET, render))
