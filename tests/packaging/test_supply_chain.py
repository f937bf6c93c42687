"""Pinned requirements, their hashes and licences."""

from __future__ import annotations

import pytest

from scripts.hashed_requirements import _fits, hashed, requirements
from scripts.supply_chain import bill_of_materials, is_allowed, not_allowed, pinned_components
from tests.support.places import ROOT

FILES = sorted(ROOT.glob("requirements*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_has_hashes(path):
    lines = list(hashed(path))
    assert len(lines) == len(list(requirements(path))) > 0
    assert all(" --hash=sha256:" in line for line in lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_requirement_has_one_version(path):
    names = [name for _, name, _ in requirements(path)]
    assert len(names) == len(set(names))


def test_an_unpinned_requirement_and_one_without_hash_are_refused(tmp_path):
    loose = tmp_path / "loose.txt"
    loose.write_text("numpy>=2\n")
    with pytest.raises(SystemExit, match=r"loose.txt: 'numpy>=2' is not pinned"):
        list(hashed(loose))
    loose.write_text("numpy==0.0.1\n")
    with pytest.raises(SystemExit, match=r"no hash for numpy==0.0.1: run `make requirements`"):
        list(hashed(loose))


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND BSD-2-Clause", True),
        ("GPL-3.0-only OR MIT", True),
        ("LGPL-2.1-or-later", True),
        ("3-Clause BSD License", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-only", False),
        ("", False),
        ("Proprietary", False),
        ("4-Clause Proprietary BSD", False),
        ("Proprietary, see DISCLAIMER", False),
        ("GPL-3.0 LIMITED", False),
    ],
)
def test_licences(licence, allowed):
    assert is_allowed(licence) is allowed


def test_the_licences_of_all_pinned_requirements_are_allowed():
    assert not_allowed(pinned_components()) == []


def test_the_bill_of_materials_names_the_package():
    assert bill_of_materials([])["metadata"]["component"]["name"] == "duralog"


@pytest.mark.parametrize(
    ("file", "fits"),
    [
        ("a-1.0-py3-none-any.whl", True),
        ("a-1.0-py2.py3-none-any.whl", True),
        ("a-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1.0-cp39-abi3-musllinux_1_2_aarch64.whl", True),
        ("a-1.0-2-cp313-cp313-manylinux_2_28_x86_64.whl", True),
        ("a-1.0.tar.gz", True),
        ("a-1.0-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("a-1.0-cp311-cp311-win_amd64.whl", False),
        ("a-1.0-py2-none-any.whl", False),
        ("a-1.1-py3-none-any.whl", False),
        ("a-1.1.tar.gz", False),
    ],
)
def test_files_for_linux_and_our_pythons(file, fits):
    assert _fits(file, "a", "1.0") is fits
