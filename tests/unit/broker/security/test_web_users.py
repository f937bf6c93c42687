"""The file of users of web pages: its lines, its checks, and the bounds of wrong passwords."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from duralog.broker.security.directory_credentials import DirectoryCredentials
from duralog.broker.security.web_tls import WebTls
from duralog.broker.security.web_users import (
    AttemptLimit,
    Role,
    TooManyFailures,
    WebUser,
    WebUsers,
    parse_users,
    password_entry,
    token_entry,
)
from duralog.errors import InvalidConfig, StorageError
from duralog.format.filenames import CLUSTER_METADATA_FOLDER
from duralog.storage.metadata.scram import ScramCredential, ScramMechanism, ScramUser

PASSWORD = "s3cret-ünd"
ANA = password_entry("ana", Role.ADMINISTER, PASSWORD)
CI, TOKEN = token_entry("ci", Role.LOOK)
HERE = "127.0.0.1"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def credentials() -> Mapping[ScramUser, ScramCredential]:
    mechanism = ScramMechanism.SCRAM_SHA_512
    return {("ben", mechanism): ScramCredential.of_password(mechanism, "of-scram")}


def of_directory(file: Path) -> DirectoryCredentials:
    return DirectoryCredentials(str(file.parent), credentials)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# people\n{ANA}\nben change scram\n\n{CI}\n* look header\ncarol change header\n")
    return path


def test_each_way_to_prove_who_one_is(file: Path) -> None:
    users = WebUsers(str(file), of_directory(file))
    for name, password, role in (("ana", PASSWORD, Role.ADMINISTER), ("ben", "of-scram", Role.CHANGE)):
        found = users.with_password(name, password, HERE)
        assert found is not None
        assert (found.name, found.role) == (name, role)
        assert users.with_password(name, "wrong", HERE) is None
    for name in ("nobody", "*", "", "ci", "carol"):
        assert users.with_password(name, PASSWORD, HERE) is None
    found = users.with_token(TOKEN)
    assert found is not None
    assert (found.name, found.role) == ("ci", Role.LOOK)
    assert users.with_token("") is users.with_token(TOKEN + "x") is users.with_token("\udcff") is None
    named = [users.with_header(name) for name in ("carol", "dora", "*")]
    assert [None if each is None else (each.name, each.role) for each in named] == [
        ("carol", Role.CHANGE),
        ("dora", Role.LOOK),
        None,
    ]


def test_no_secret_is_shown(file: Path) -> None:
    users = WebUsers(str(file), of_directory(file))
    shown = repr(users.with_token(TOKEN)) + repr(parse_users("f", ANA.encode()))
    assert CI.split("$")[1] not in shown
    assert ANA.split("$")[-1] not in shown


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no user in it"),
        ("# only this", "there is no user in it"),
        ("ana look", "line 1: expected a name, a role and how the user logs in; found 2 words"),
        ("ana root scram", "line 1: expected a role, look, change, administer; found 'root'"),
        ("ana look hunter2", "line 1: expected scrypt"),
        ("ana look scrypt$16384$8$5$AAAA$AAAA", "line 1: expected scrypt"),
        ("ana look scrypt$16383$8$5$AAAA$AAAA", "line 1: the costs of scrypt"),
        ("ana look scrypt$4194304$32$5$AAAA$AAAA", "line 1: the costs of scrypt"),
        ("ana look scram\nana change scram", "line 2: ana has such a line already"),
        (f"ana look scram\n{ANA}", "line 2: ana has such a line already"),
        (f"* look {CI.split()[2]}", "line 1: * is for scram and header only"),
    ],
    # Salts and tokens are random, and names of tests are the same in every process.
    ids=itertools.count(),
)
def test_faults_are_named_without_what_the_line_holds(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match="users") as caught:
        parse_users("users", text.encode())
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_scram_needs_a_directory(file: Path) -> None:
    with pytest.raises(InvalidConfig, match="users of scram need the log directory"):
        WebUsers(str(file))


def test_a_user_ends_with_its_credential(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    mechanism = ScramMechanism.SCRAM_SHA_512
    held = {("ben", mechanism): ScramCredential.of_password(mechanism, "of-scram")}
    log = file.parent / CLUSTER_METADATA_FOLDER / "0.log"
    log.parent.mkdir()
    log.write_bytes(b"")
    reads: list[object] = []

    def read() -> Mapping[ScramUser, ScramCredential]:
        reads.append(held)
        if not held:
            raise StorageError("no directory")
        return dict(held)

    users = WebUsers(str(file), DirectoryCredentials(str(file.parent), read, clock))
    ben = users.with_password("ben", "of-scram", HERE)
    assert ben is not None
    assert "stored_key" not in repr(ben)

    def is_there(asked: WebUser) -> bool:
        clock.now += 5
        users.has_still(asked)
        for thread in threading.enumerate():
            if thread.name == "duralog-credentials":
                thread.join()
        return users.has_still(asked)

    assert is_there(ben)
    assert len(reads) == 1, "nothing is read while no file has changed"
    held[("zoe", mechanism)] = ScramCredential.of_password(mechanism, "x")
    log.write_bytes(b"zoe")
    assert is_there(ben)
    assert len(reads) == 2
    held[("ben", mechanism)] = ScramCredential.of_password(mechanism, "other")
    log.write_bytes(b"zoe, ben")
    assert not is_there(ben)
    again = users.with_password("ben", "other", HERE)
    assert again is not None
    assert is_there(again)
    held.clear()
    log.write_bytes(b"nothing at all")
    assert is_there(again)
    assert caplog.text.count("SCRAM credentials cannot be read, and stay as they were: no directory") == 1


def test_a_changed_file_counts_at_once_and_a_broken_one_does_not(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    users = WebUsers(str(file), of_directory(file), clock)
    ci = users.with_token(TOKEN)
    assert ci is not None
    for text, is_known in (
        ("ana look", True),
        (ANA, False),
        (f"{ANA}\n{CI}", True),
        (CI.replace("look", "change"), False),
    ):
        file.write_text(text)
        clock.now += 2
        assert users.has_still(ci) is is_known
    file.unlink()
    clock.now += 2
    assert users.with_token(TOKEN) is not None
    assert "the users stay as they were" in caplog.text


def test_wrong_passwords_are_bounded(file: Path) -> None:
    clock = Clock()
    limit = AttemptLimit(clock)
    assert sum(limit.begin("a") for _ in range(50)) == 10
    assert sum(limit.begin(f"b{i}") for i in range(200)) == 90
    clock.now += 61
    for _ in range(1000):
        assert limit.begin("a"), "right ones are not counted"
        limit.succeeded("a")
    users = WebUsers(str(file), of_directory(file))
    for _ in range(10):
        users.with_password("ben", "x" * 2000, HERE)
    with pytest.raises(TooManyFailures):
        users.with_password("ben", "of-scram", HERE)
    assert users.with_password("ben", "of-scram", "10.0.0.1") is not None


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "certificate.pem"
    with pytest.raises(InvalidConfig, match=r"certificate.pem: it cannot be read"):
        WebTls(str(path), None)
    path.write_text("nothing")
    with pytest.raises(InvalidConfig, match=r"expected a certificate and its key in PEM"):
        WebTls(str(path), None)
