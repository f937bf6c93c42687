r"""Parses conditions in the language of the console's search.

    expression  alternative ("or" alternative)*
    alternative term ("and" term)*
    term        "not" term | "(" expression ")" | condition | text
    condition   place operator operand ["ignoring" "case"] | place "exists"
    place       "key" | "value" | "header" [name] | "anywhere"
                each but the last may have a path after it; a path alone is one into the value
    path        "$" ( "." name | "[" string "]" | "[" number "]" | "[*]" )*
    operator    = != < <= > >= contains matches
    operand     a word, or a string in quotes with the escapes of JSON

A text alone is searched for anywhere. Words of the language are lower case; as an operand or a name in quotes they are
text. On a path, `7`, `-1.5e3`, `true`, `false` and `null` are numbers and constants, and text in quotes. On a key, a
value or a header everything is text, but `null`, and `0x00ff`, which is bytes.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import NamedTuple

from duralog.filters.conditions import (
    EVERY,
    All,
    Any,
    Condition,
    Every,
    Field,
    FilterError,
    Json,
    Not,
    Operator,
    Path,
    Scalar,
    Text,
)

LONGEST = 4_000
_DEEPEST = 50
_MOST_PATH_STEPS = 100
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<mark>[()]|==|=|!=|<=|>=|<|>)|(?P<word>[^\s()"'=<>!$]+)"""
)
_NAME = re.compile(r"""[^\s.\[\]()=<>!"',$]+""")
_ELEMENT = re.compile(r"""\[\s*(?:(?P<every>\*)|(?P<number>[0-9]{1,9})|(?P<string>"(?:[^"\\]|\\.)*"|'[^']*'))\s*\]""")
_NUMBER = re.compile(r"-?[0-9]{1,400}(?P<fraction>\.[0-9]{1,400})?(?P<exponent>[eE][+-]?[0-9]{1,6})?")
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})+")
_FIELDS = {str(field): field for field in Field}
_OPERATORS = {str(operator): operator for operator in Operator} | {"==": Operator.EQUALS}
_ORDERING = frozenset({Operator.LESS, Operator.AT_MOST, Operator.MORE, Operator.AT_LEAST})
_CONSTANTS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_TEXTUAL = frozenset({Operator.CONTAINS, Operator.MATCHES})
_PLACES = "key, value, header, anywhere or a path such as $.customer.id"
_OPERATOR_NAMES = "=, !=, <, <=, >, >=, contains, matches or exists"


class _Token(NamedTuple):
    kind: str
    """`string`, `mark`, `word`, `path` or `end`."""
    text: str
    """As written."""
    position: int
    path: Path = ()


def parse(text: str) -> Condition:
    """Raises `FilterError`, which names the place."""
    if len(text) > LONGEST:
        raise FilterError(f"an expression has at most {LONGEST} characters, this one {len(text)}", text, LONGEST)
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        condition = self._alternatives()
        if self._next.kind != "end":
            raise self._error("expected and, or, or the end")
        return condition

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _error(self, why: str) -> FilterError:
        token = self._next
        found = "the end" if token.kind == "end" else token.text if len(token.text) <= 40 else f"{token.text[:40]}…"
        return FilterError(f"{why}, found {found}", self._text, token.position)

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _takes(self, *words: str) -> bool:
        """Whether the next tokens are these words, which are taken then."""
        following = self._tokens[self._at : self._at + len(words)]
        if [(token.kind == "word" and token.text) for token in following] != list(words):
            return False
        self._at += len(words)
        return True

    def _alternatives(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} levels")
        found = [self._terms()]
        while self._takes("or"):
            found.append(self._terms())
        self._depth -= 1
        return found[0] if len(found) == 1 else Any(tuple(found))

    def _terms(self) -> Condition:
        found = [self._term()]
        while self._takes("and"):
            found.append(self._term())
        return found[0] if len(found) == 1 else All(tuple(found))

    def _term(self) -> Condition:
        negations = 0
        while self._takes("not"):
            negations += 1
        if self._next.text == "(" and self._next.kind == "mark":
            self._at += 1
            found = self._alternatives()
            if self._next.text != ")":
                raise self._error("expected )")
            self._at += 1
        else:
            found = self._condition()
        return Not(found) if negations % 2 else found

    def _condition(self) -> Condition:
        token = self._next
        if token.kind == "path":
            self._at += 1
            return self._json(Field.VALUE, None, token.path)
        if token.kind == "word" and (field := _FIELDS.get(token.text)) is not None:
            self._at += 1
            header = self._header_name() if field is Field.HEADER else None
            if self._next.kind == "path":
                if field is Field.ANYWHERE or (field is Field.HEADER and header is None):
                    raise self._error("a path is into the value, the key, or a header with a name")
                return self._json(field, header, self._take().path)
            return self._text_condition(field, header)
        if token.kind == "string" or (token.kind == "word" and token.text not in ("and", "or")):
            self._at += 1
            if self._next.kind in ("word", "mark") and self._next.text in _OPERATORS:
                self._at -= 1
                raise self._error(f"expected {_PLACES}")
            text = _string(self._text, token) if token.kind == "string" else token.text
            ignores_case = self._takes("ignoring", "case")
            found = Text(
                field=Field.ANYWHERE, operator=Operator.CONTAINS, operand=_bytes(text), ignores_case=ignores_case
            )
            self._check(found, token)
            return found
        raise self._error(f"expected {_PLACES}")

    def _header_name(self) -> str | None:
        token = self._next
        if token.kind == "string":
            self._at += 1
            return _string(self._text, token).encode("utf-8", "replace").decode()
        if token.kind == "word" and token.text not in _OPERATORS:
            self._at += 1
            return token.text
        return None

    def _operator(self) -> Operator:
        operator = _OPERATORS.get(self._next.text) if self._next.kind in ("word", "mark") else None
        if operator is None:
            raise self._error(f"expected {_OPERATOR_NAMES}")
        self._at += 1
        return operator

    def _operand(self, operator: Operator) -> _Token:
        if self._next.kind not in ("string", "word") or self._next.text in ("and", "or"):
            raise self._error(f"expected a text or a number after {operator}")
        return self._take()

    def _text_condition(self, field: Field, header: str | None) -> Text:
        place = self._next
        operator = self._operator()
        if operator in _ORDERING:
            raise FilterError(f"{field} is text: compare it by =, !=, contains or matches", self._text, place.position)
        if operator is Operator.EXISTS and field is not Field.ANYWHERE:
            return Text(field=field, header=header, operator=operator)
        token = self._operand(operator)
        is_bytes = token.kind == "word" and _HEX.fullmatch(token.text) is not None and operator is not Operator.MATCHES
        operand: bytes | None
        if token.kind == "string":
            operand = _bytes(_string(self._text, token))
        elif token.text == "null" and operator not in _TEXTUAL and field is not Field.ANYWHERE:
            operand = None
        else:
            operand = bytes.fromhex(token.text[2:]) if is_bytes else _bytes(token.text)
        ignores_case = operand is not None and not is_bytes and self._takes("ignoring", "case")
        found = Text(field=field, header=header, operator=operator, operand=operand, ignores_case=ignores_case)
        self._check(found, token)
        return found

    def _json(self, field: Field, header: str | None, path: Path) -> Json:
        operator = self._operator()
        if operator is Operator.EXISTS:
            return Json(field=field, header=header, path=path, operator=operator)
        token = self._operand(operator)
        operand: Scalar = _string(self._text, token) if token.kind == "string" else token.text
        if token.kind == "word" and operator not in _TEXTUAL:
            operand = _CONSTANTS[token.text] if token.text in _CONSTANTS else _number(token.text)
        if operator in _ORDERING and (operand is None or isinstance(operand, bool)):
            raise FilterError(f"{token.text} has no order: compare it by = or !=", self._text, token.position)
        ignores_case = isinstance(operand, str) and operator not in _ORDERING and self._takes("ignoring", "case")
        found = Json(
            field=field, header=header, path=path, operator=operator, operand=operand, ignores_case=ignores_case
        )
        self._check(found, token)
        return found

    def _check(self, condition: Text | Json, token: _Token) -> None:
        """Check that RE2 accepts the pattern. REQUIRES: `token` is the operand."""
        if not condition.ignores_case and condition.operator is not Operator.MATCHES:
            return
        operand = condition.operand
        try:
            text = operand.decode() if isinstance(operand, bytes) else str(operand).encode().decode()
        except UnicodeError:
            raise FilterError("a lone surrogate is not text", self._text, token.position) from None
        why = why_not_a_pattern(text) if condition.operator is Operator.MATCHES else None
        if why is not None:
            raise FilterError(f"not a regular expression of RE2: {why}", self._text, token.position)


def why_not_a_pattern(pattern: str) -> str | None:
    """RE2's error; None for a valid pattern."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = _skip_space(text, 0)
    while position < len(text):
        if text[position] == "$":
            path, end = _path(text, position)
            found.append(_Token("path", text[position:end], position, path))
        elif (token := _TOKEN.match(text, position)) is not None:
            end = token.end()
            found.append(_Token(str(token.lastgroup), token[0], position))
        elif text[position] in "\"'":
            raise FilterError("the text has no closing quote", text, position)
        else:
            raise FilterError(f"unexpected {text[position]}", text, position)
        position = _skip_space(text, end)
    return [*found, _Token("end", "", len(text))]


def _skip_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return position if space is None else space.end()


def _path(text: str, begin: int) -> tuple[Path, int]:
    steps: list[str | int | Every] = []
    position = begin + 1
    while position < len(text) and text[position] in ".[":
        if text[position] == ".":
            name = _NAME.match(text, position + 1)
            if name is None:
                raise FilterError('expected a name after the dot: $.name, or $["a name"]', text, position + 1)
            steps.append(name[0])
            position = name.end()
        else:
            element = _ELEMENT.match(text, position)
            if element is None:
                raise FilterError('expected [0], [*] or ["name"]', text, position)
            if element["every"]:
                steps.append(EVERY)
            elif element["number"]:
                steps.append(int(element["number"]))
            else:
                steps.append(_unquoted(text, element["string"], element.start("string")))
            position = element.end()
        if len(steps) > _MOST_PATH_STEPS:
            raise FilterError(f"a path has at most {_MOST_PATH_STEPS} steps", text, position)
    if position < len(text) and not (text[position].isspace() or text[position] in "()=<>!"):
        raise FilterError("expected .name, [0], [*] or an operator", text, position)
    return tuple(steps), position


def _string(text: str, token: _Token) -> str:
    return _unquoted(text, token.text, token.position)


def _unquoted(text: str, quoted: str, position: int) -> str:
    """In double quotes with the escapes of JSON, in single quotes as it is."""
    if quoted[0] == "'":
        return quoted[1:-1]
    try:
        return str(json.loads(quoted, strict=False))
    except json.JSONDecodeError as error:
        raise FilterError(
            "an escape that JSON does not have: write \\\\ for \\, or use single quotes", text, position + error.pos
        ) from None


def _number(word: str) -> Scalar:
    """A word that is not a number is text."""
    number = _NUMBER.fullmatch(word)
    if number is None:
        return word
    return Decimal(word) if number["fraction"] or number["exponent"] else int(word)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
