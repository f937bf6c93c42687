"""A JAAS configuration in a config: one login module with its options, and a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";

Errors name the config, never a value: the options are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from duralog.errors import InvalidConfig

_FLAGS = ("required", "requisite", "sufficient", "optional")
_OPTION = re.compile(r"\s*([A-Za-z0-9_.$\-@+]+)\s*=\s*(?:\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|([^\s;\"'=]+))")
_HEAD = re.compile(r"\s*([A-Za-z_$][A-Za-z0-9_.$]*)\s+([A-Za-z]+)(?=[\s;])")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_LONGEST_TEXT = 1 << 20


def jaas_options(config_name: str, text: str, module: str) -> Mapping[str, str]:
    """The options of the login module, which must be the class of this name."""
    head = _HEAD.match(text)
    if head is None or len(text) > _LONGEST_TEXT:
        raise InvalidConfig(f'{config_name}: expected {module} required NAME="VALUE" ...; found something else')
    if head[1].rpartition(".")[2] != module.rpartition(".")[2]:
        raise InvalidConfig(f"{config_name}: expected the login module {module}, found {head[1][:100]}")
    if head[2].lower() not in _FLAGS:
        raise InvalidConfig(f"{config_name}: expected one of {', '.join(_FLAGS)} after the login module")
    options: dict[str, str] = {}
    position = head.end()
    while (option := _OPTION.match(text, position)) is not None:
        quoted = option[2] if option[2] is not None else option[3]
        options[option[1]] = _ESCAPE.sub(_unescaped, quoted) if quoted is not None else option[4]
        position = option.end()
    if text[position:].strip() != ";":
        place = f"after {len(options)} options"
        raise InvalidConfig(f"{config_name}: expected one login module that ends with a semicolon, {place}")
    return options


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[1], match[1])
