"""Users of the web pages: those of the console and of `/metrics`, from a file with one line for each.

    # name  role        how the user proves who it is
    ana     administer  scrypt$16384$8$5$SALT$HASH
    ben     change      scram
    ci      look        token$SHA256
    *       look        header

| how | the user |
|---|---|
| `scrypt$...` | has this password |
| `scram` | has the password of its SCRAM credentials in the cluster metadata |
| `token$...` | sends a random token that has this SHA-256 |
| `header` | is named by a proxy that has checked it |

`*` stands for all other users, where the name alone says who it is: for `scram` and `header`. `duralog user entry`
prints such lines. The file is read again when it changes; one with a fault is logged, and the users stay as they were.
Errors name lines, never what they hold.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from duralog.broker.security.directory_credentials import DirectoryCredentials
from duralog.broker.security.web_tls import file_state
from duralog.errors import InvalidConfig
from duralog.storage.metadata.scram import LEAST_ITERATIONS, ScramCredential, ScramMechanism

_logger = logging.getLogger(__name__)

ANY = "*"
SCRAM, HEADER, TOKEN, SCRYPT = "scram", "header", "token", "scrypt"
LONGEST_PASSWORD = 1024
_LARGEST_FILE_BYTES = 1 << 20
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 1 << 14, 8, 5
"""As OWASP advises: 16 MiB, and about 0.2 s."""
_SALT_BYTES, _HASH_BYTES = 16, 32
_TOKEN_BYTES = 32
_CHECK_SECONDS = 1.0
"""How often the file is checked for changes."""
_SCRYPT_LINE = re.compile(r"scrypt\$([0-9]{1,7})\$([0-9]{1,2})\$([0-9]{1,2})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)")
_TOKEN_LINE = re.compile(r"token\$([0-9a-f]{64})")
_MOST_MEMORY_BYTES = 1 << 28
_CHECKS_AT_ONCE = 2
_WINDOW_SECONDS = 60.0
_MOST_FAILURES = 10
_MOST_FAILURES_OF_ALL = 100


class Role(IntEnum):
    """What a user may do. Each may do what those before it may."""

    LOOK = 1
    CHANGE = 2
    ADMINISTER = 3

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def of(cls, text: str) -> Role:
        for role in cls:
            if role.label == text:
                return role
        raise InvalidConfig(f"expected a role, {', '.join(role.label for role in cls)}; found {text[:40]!r}")


class UserEntry(NamedTuple):
    """A line of the file. It is not shown: `secret` is for comparisons only."""

    name: str
    role: Role
    kind: str
    secret: str

    def __repr__(self) -> str:
        return f"UserEntry({self.name!r}, {self.role.label}, {self.kind})"


class WebUser(NamedTuple):
    """An authenticated user, and the line of the file."""

    name: str
    entry: UserEntry
    credential: ScramCredential | None = None
    """The one that the password of a user of `scram` was checked with."""

    @property
    def role(self) -> Role:
        return self.entry.role


class TooManyFailures(Exception):
    """Passwords are not checked for a while: too many were wrong."""


class WebUsers:
    """The users of a file. Any thread may ask; checking a password takes a part of a second."""

    def __init__(
        self, path: str, credentials: DirectoryCredentials | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`credentials` are the SCRAM credentials of the cluster; without them, there are no users of `scram`."""
        self._path = path
        self._credentials = credentials
        self._clock = clock
        self._lock = threading.Lock()
        self._checking = threading.Semaphore(_CHECKS_AT_ONCE)
        self._attempts = AttemptLimit(clock)
        self._state = file_state(path)
        self._checked_at = clock()
        self._entries = self._read()

    @property
    def has_passwords(self) -> bool:
        return any(entry.kind in (SCRYPT, SCRAM) for entry in self._current())

    def with_password(self, name: str, password: str, address: str) -> WebUser | None:
        """The user, if this is its password. Raises `TooManyFailures` before it is checked."""
        if not self._attempts.begin(address):
            raise TooManyFailures
        if len(password) > LONGEST_PASSWORD:
            return None
        entry = self._entry(name, (SCRYPT, SCRAM))
        credential = None
        with self._checking:
            if entry is not None and entry.kind == SCRAM:
                credential = self._credential_with(name, password)
                is_right = credential is not None
            else:
                # An unknown user takes as long as a wrong password.
                is_right = _is_scrypt(entry.secret if entry is not None else _NO_PASSWORD, password)
        if entry is None or not is_right:
            return None
        self._attempts.succeeded(address)
        return WebUser(name, entry, credential)

    def with_token(self, token: str) -> WebUser | None:
        """The user that this token belongs to. A token cannot be guessed, so that wrong ones are not counted."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
        found = None
        for entry in self._current():
            if entry.kind == TOKEN and hmac.compare_digest(entry.secret, digest):
                found = WebUser(entry.name, entry)
        return found

    def with_header(self, name: str) -> WebUser | None:
        """The user that a proxy names. REQUIRES: the proxy is trusted."""
        entry = self._entry(name, (HEADER,))
        return None if entry is None else WebUser(name, entry)

    def has_still(self, user: WebUser) -> bool:
        """Whether the line of a user, and its SCRAM credential, are as they were when it logged in. It does not wait.

        A changed credential is noticed within seconds.
        """
        if user.entry not in self._current():
            return False
        if user.credential is None or self._credentials is None:
            return True
        known = self._credentials.known()
        return any(known.get((user.name, mechanism)) == user.credential for mechanism in ScramMechanism)

    def _entry(self, name: str, kinds: tuple[str, ...]) -> UserEntry | None:
        """The line of this name, or the one for all others."""
        of_kind = {entry.name: entry for entry in self._current() if entry.kind in kinds}
        return None if name in ("", ANY) else of_kind.get(name, of_kind.get(ANY))

    def _credential_with(self, name: str, password: str) -> ScramCredential | None:
        """The SCRAM credential of the user, if this is its password."""
        held = {} if self._credentials is None else self._credentials.read()
        for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
            credential = held.get((name, mechanism))
            if credential is not None:
                return credential if _is_scram(mechanism, credential, password) else None
        _is_scram(ScramMechanism.SCRAM_SHA_512, _NO_CREDENTIAL, password)
        return None

    def _current(self) -> tuple[UserEntry, ...]:
        with self._lock:
            if self._clock() - self._checked_at >= _CHECK_SECONDS:
                self._checked_at = self._clock()
                self._reload()
            return self._entries

    def _reload(self) -> None:
        try:
            state = file_state(self._path)
            if state == self._state:
                return
            self._entries = self._read()
            self._state = state
            _logger.info("%s was read again", self._path)
        except InvalidConfig as error:
            if self._state is not None:
                _logger.error("%s; the users stay as they were", error)
            self._state = None

    def _read(self) -> tuple[UserEntry, ...]:
        try:
            with open(self._path, "rb") as file:
                data = file.read(_LARGEST_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidConfig(f"{self._path}: {error.strerror}: give the file of the users") from None
        entries = parse_users(self._path, data)
        if self._credentials is None and any(entry.kind == SCRAM for entry in entries):
            raise InvalidConfig(f"{self._path}: users of scram need the log directory with the cluster metadata")
        return entries


class AttemptLimit:
    """Bounds wrong passwords: of one address, and of all, in a minute. Checks under way count as wrong ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._failures: Counter[str] = Counter()

    def begin(self, address: str) -> bool:
        with self._lock:
            if self._clock() - self._since >= _WINDOW_SECONDS:
                self._since = self._clock()
                self._failures.clear()
            if self._failures[address] >= _MOST_FAILURES or self._failures.total() >= _MOST_FAILURES_OF_ALL:
                return False
            self._failures[address] += 1
            return True

    def succeeded(self, address: str) -> None:
        with self._lock:
            if self._failures[address] > 0:
                self._failures[address] -= 1


def parse_users(path: str, data: bytes) -> tuple[UserEntry, ...]:
    if len(data) > _LARGEST_FILE_BYTES:
        raise InvalidConfig(f"{path}: a file of users has at most {_LARGEST_FILE_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidConfig(f"{path}: expected text in UTF-8") from None
    found: dict[tuple[str, str], UserEntry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"{path}, line {number}"
        if len(words) != 3:
            raise InvalidConfig(f"{place}: expected a name, a role and how the user logs in; found {len(words)} words")
        try:
            entry = UserEntry(words[0], Role.of(words[1]), *_proof(words[2]))
        except InvalidConfig as error:
            raise InvalidConfig(f"{place}: {error}") from None
        if entry.name == ANY and entry.kind not in (SCRAM, HEADER):
            raise InvalidConfig(f"{place}: * is for scram and header only")
        # A user has one password: that of a hash or that of SCRAM.
        key = (entry.name, "password" if entry.kind in (SCRYPT, SCRAM) else entry.kind)
        if key in found and entry.kind != TOKEN:
            raise InvalidConfig(f"{place}: {entry.name} has such a line already")
        found[(entry.name, entry.secret) if entry.kind == TOKEN else key] = entry
    if not found:
        raise InvalidConfig(f"{path}: there is no user in it: duralog user entry prints a line")
    return tuple(found.values())


def password_entry(name: str, role: Role, password: str) -> str:
    """The line of a user with this password."""
    salt = secrets.token_bytes(_SALT_BYTES)
    hashed = _scrypt(password, salt, _SCRYPT_N, _SCRYPT_R, _SCRYPT_P, _HASH_BYTES)
    secret = f"{SCRYPT}${_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${_text(salt)}${_text(hashed)}"
    return f"{name} {role.label} {secret}"


def token_entry(name: str, role: Role) -> tuple[str, str]:
    """The line of a user with a new token, and the token."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return f"{name} {role.label} {TOKEN}${hashlib.sha256(token.encode()).hexdigest()}", token


def _proof(text: str) -> tuple[str, str]:
    """The kind, and what the user is checked with."""
    if text in (SCRAM, HEADER):
        return text, ""
    if match := _TOKEN_LINE.fullmatch(text):
        return TOKEN, match[1]
    if match := _SCRYPT_LINE.fullmatch(text):
        n, r, p = int(match[1]), int(match[2]), int(match[3])
        if n < 2 or n & (n - 1) or not r or not p or _memory_bytes(n, r, p) > _MOST_MEMORY_BYTES:
            raise InvalidConfig("the costs of scrypt are not allowed: let duralog user entry print the line")
        try:
            salt, hashed = (base64.b64decode(part, validate=True) for part in (match[4], match[5]))
        except binascii.Error:
            salt = hashed = b""
        if len(salt) >= _SALT_BYTES and len(hashed) >= _HASH_BYTES:
            return SCRYPT, text
    raise InvalidConfig(f"expected {SCRYPT}$..., {TOKEN}$..., {SCRAM} or {HEADER}: duralog user entry prints a line")


def _is_scrypt(secret: str, password: str) -> bool:
    _, n, r, p, salt, hashed = secret.split("$")
    wanted = base64.b64decode(hashed)
    return hmac.compare_digest(_scrypt(password, base64.b64decode(salt), int(n), int(r), int(p), len(wanted)), wanted)


def _is_scram(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    salted = hashlib.pbkdf2_hmac(
        mechanism.hash_name, password.encode("utf-8", "surrogatepass"), credential.salt, credential.iterations
    )
    found = ScramCredential.of_salted(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int, size: int) -> bytes:
    most = _memory_bytes(n, r, p) * 2
    return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=salt, n=n, r=r, p=p, maxmem=most, dklen=size)


def _memory_bytes(n: int, r: int, p: int) -> int:
    return 128 * r * (n + p + 2)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_NO_PASSWORD = f"{SCRYPT}${_SCRYPT_N}${_SCRYPT_R}${_SCRYPT_P}${_text(bytes(_SALT_BYTES))}${_text(bytes(_HASH_BYTES))}"
_NO_CREDENTIAL = ScramCredential(b"0" * 20, bytes(64), bytes(64), LEAST_ITERATIONS)
