"""A shop whose database changes at random: rows come, change, get other keys and go, in transactions."""

from __future__ import annotations

import random
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

TABLES = ["products", "orders"]
SQLITE_SCHEMA = """
CREATE TABLE IF NOT EXISTS products (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, note TEXT, price REAL, picture BLOB
);
CREATE TABLE IF NOT EXISTS orders (
    customer TEXT NOT NULL, number INTEGER NOT NULL, note TEXT, amount INTEGER, PRIMARY KEY (customer, number)
);
"""
POSTGRES_SCHEMA = """
CREATE TABLE products (id integer PRIMARY KEY, name text NOT NULL, note text, price double precision, picture bytea);
CREATE TABLE orders (
    customer text NOT NULL, number integer NOT NULL, note text, amount numeric(12,2), PRIMARY KEY (customer, number)
);
"""
_WORDS = [
    "red",
    "green",
    "small",
    "old",
    "kettle",
    "chair",
    "lamp",
    "spoon",
    "straße",
    "茶",
    "l'été",
    "naïve",
    '"best"',
]

Statement = tuple[str, tuple[Any, ...]]


class Transaction(NamedTuple):
    statements: list[Statement]
    is_committed: bool

    @property
    def end(self) -> str:
        return "COMMIT;" if self.is_committed else "ROLLBACK;"


class RandomShop:
    """Statements that SQLite and PostgreSQL both understand, with `?` for values."""

    def __init__(self, seed: int, *, products: int = 400, customers: int = 60) -> None:
        self._chance = random.Random(seed)
        self._products = products
        self._customers = customers

    def transactions(self, changes: int) -> Iterator[Transaction]:
        """So many statements, a few in each transaction, and one in ten of those rolled back."""
        left = changes
        while left > 0:
            size = min(left, self._chance.choice((1, 1, 2, 5, 12)))
            yield Transaction([self._statement() for _ in range(size)], self._chance.random() > 0.1)
            left -= size

    def postgres_transactions(self, changes: int) -> Iterator[str]:
        """The same as scripts: values become literals."""
        for transaction in self.transactions(changes):
            statements = (_with_literals(sql, values) for sql, values in transaction.statements)
            yield f"BEGIN; {' '.join(statements)} {transaction.end}"

    def _statement(self) -> Statement:
        chance = self._chance
        product, customer = chance.randrange(self._products), f"customer {chance.randrange(self._customers)}"
        match chance.randrange(10):
            case 0 | 1 | 2:
                return (
                    "INSERT INTO products (id, name, note, price, picture) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id)"
                    " DO UPDATE SET name = excluded.name, note = NULL, price = excluded.price;",
                    (product, self._text(), self._text(), chance.uniform(0.01, 1e6), chance.randbytes(6)),
                )
            case 3 | 4:
                return "UPDATE products SET price = price * ?, note = ? WHERE id = ?;", (
                    chance.random(),
                    self._text(),
                    product,
                )
            case 5:
                return "DELETE FROM products WHERE id BETWEEN ? AND ?;", (product, product + chance.randrange(3))
            case 6 | 7:
                return (
                    "INSERT INTO orders (customer, number, note, amount) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (customer, number) DO UPDATE SET amount = excluded.amount;",
                    (customer, chance.randrange(8), self._text(), chance.randrange(1, 100_000)),
                )
            case 8:
                # To a key that nobody has: most updates of keys that exist would fail.
                return "UPDATE orders SET number = number + ? WHERE customer = ? AND number < 8;", (
                    chance.randrange(1, 1_000) * 10,
                    customer,
                )
            case _:
                return "DELETE FROM orders WHERE customer = ? AND number >= ?;", (customer, chance.randrange(8, 5_000))

    def _text(self) -> str:
        return " ".join(self._chance.choices(_WORDS, k=self._chance.randrange(1, 6)))


def run_in_sqlite(database: sqlite3.Connection, transactions: Iterable[Transaction]) -> None:
    """The connection has no transactions of its own: its isolation level is None."""
    for transaction in transactions:
        database.execute("BEGIN")
        for sql, values in transaction.statements:
            database.execute(sql, values)
        database.execute(transaction.end)


def run_in_postgres(psql: str, connection: str, *scripts: str) -> str:
    """What came back, as text."""
    done = subprocess.run(
        [psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", connection, "-f", "-"],
        input="\n".join(scripts),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def _with_literals(sql: str, values: tuple[Any, ...]) -> str:
    parts = sql.split("?")
    literals = [*map(_literal, values), ""]
    return "".join(part + literal for part, literal in zip(parts, literals, strict=True))


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    return repr(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"
