"""From a client certificate to the name of a user: the distinguished name, and `ssl.principal.mapping.rules`.

The name is written as Java writes it (RFC 2253): the last part first, known attributes by their keywords, others by
number with their value in hex. Rules are tried in order, and the first that fits the whole name counts. If none does,
as in Kafka, the certificate is refused.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from duralog.broker.security.failures import LoginFailed
from duralog.errors import InvalidConfig

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ENCODINGS = {12: "utf-8", 18: "ascii", 19: "ascii", 20: "latin-1", 22: "ascii", 28: "utf-32-be", 30: "utf-16-be"}
"""By the tag of an ASN.1 string."""
_ESCAPED = re.compile(r'[,+"\\<>;=]')
_SEQUENCE, _SET, _OID = 0x30, 0x31, 0x06
_EXPLICIT_VERSION = 0xA0
_DEFAULT = "DEFAULT"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_RULES = re.compile(r"\s*(DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?)\s*(?:[,\n]|$)")
_REFERENCE = re.compile(r"\$(\d)|\\(.)")


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    replacement: str
    case: str


class PrincipalMapping:
    """The rules of a listener."""

    def __init__(self, rules: str) -> None:
        self._rules: list[_Rule | None] = []
        """None for DEFAULT."""
        position, text = 0, rules.strip()
        while position < len(text):
            match = _RULES.match(text, position)
            if match is None:
                raise InvalidConfig(
                    f"ssl.principal.mapping.rules: expected RULE:pattern/replacement/[LU] or DEFAULT at {position}"
                )
            self._rules.append(_parsed(match[1]))
            position = match.end()

    def user(self, distinguished_name: str) -> str:
        for rule in self._rules or [None]:
            if rule is None:
                return distinguished_name
            match = rule.pattern.fullmatch(distinguished_name)
            if match is not None:
                name = _REFERENCE.sub(partial(_referred, match), rule.replacement)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        raise LoginFailed(f"No rules apply to {distinguished_name}, rules: see ssl.principal.mapping.rules")


def _parsed(text: str) -> _Rule | None:
    if text == _DEFAULT:
        return None
    match = _RULE.fullmatch(text)
    assert match is not None
    try:
        # As in Java, \w and the like are of ASCII.
        pattern = re.compile(match[1], re.ASCII)
    except re.error as error:
        raise InvalidConfig(f"ssl.principal.mapping.rules: {match[1]!r} is not a pattern: {error}") from None
    for reference in re.findall(r"\$(\d)", match[2]):
        if int(reference) > pattern.groups:
            raise InvalidConfig(f"ssl.principal.mapping.rules: ${reference} has no group in {match[1]!r}")
    return _Rule(pattern, match[2], match[3])


def _referred(match: re.Match[str], found: re.Match[str]) -> str:
    return found[2] if found[1] is None else match[int(found[1])] or ""


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate (DER) that OpenSSL has verified, as a text."""
    _, to_be_signed, _ = _element(_element(certificate, 0)[1], 0)
    position = 0
    if to_be_signed[0] == _EXPLICIT_VERSION:
        position = _element(to_be_signed, 0)[2]
    for _ in range(4):  # Serial number, algorithm, issuer, validity.
        position = _element(to_be_signed, position)[2]
    parts = [_relative(part) for _, part in _elements(_element(to_be_signed, position)[1])]
    return ",".join(reversed(parts))


def _relative(part: bytes) -> str:
    return "+".join(_attribute(attribute) for _, attribute in _elements(part))


def _attribute(attribute: bytes) -> str:
    _, oid_bytes, end = _element(attribute, 0)
    oid = _oid(oid_bytes)
    tag, value, _ = _element(attribute, end)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _ENCODINGS:
        return f"{keyword or oid}=#{attribute[end:].hex()}"
    text = value.decode(_ENCODINGS[tag], "replace")
    escaped = _ESCAPED.sub(lambda found: f"\\{found[0]}", text)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if text.endswith(" ") and len(text) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{keyword}={escaped}"


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    found, position = [], 0
    while position < len(data):
        tag, value, position = _element(data, position)
        found.append((tag, value))
    return found


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """The tag and the content of a DER element, and where it ends."""
    if position + 2 > len(data):
        raise LoginFailed("the certificate cannot be decoded")
    tag, size = data[position], data[position + 1]
    start = position + 2
    if size >= 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    if start + size > len(data):
        raise LoginFailed("the certificate cannot be decoded")
    return tag, data[start : start + size], start + size


def _oid(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(str(number) for number in (first, numbers[0] - 40 * first if numbers else 0, *numbers[1:]))
