"""Test how the versions are chosen that ``make test-versions`` runs the tests on (build_support/check_versions.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import check_versions
import pytest
from packaging.requirements import Requirement


def test_the_oldest_supported_python_is_that_which_the_package_asks_for() -> None:
    table = check_versions.project()
    assert table["requires-python"] == f">={check_versions.supported(table)[0]}"


def test_versions_of_python_are_ordered_as_numbers() -> None:
    names = ["Programming Language :: Python :: 3.10", "Programming Language :: Python :: 3.9", "Typing :: Typed"]
    assert check_versions.supported({"classifiers": ["Programming Language :: Python :: 3", *names]}) == ["3.9", "3.10"]


def test_every_requirement_of_the_package_and_its_tests_is_pinned_to_its_lower_bound() -> None:
    table = check_versions.project()
    pinned = {Requirement(line).name: Requirement(line) for line in check_versions.lower_bounds(table)}
    requirements = [Requirement(line) for line in [*table["dependencies"], *table["optional-dependencies"]["test"]]]
    assert pinned.keys() == {requirement.name for requirement in requirements}
    for requirement in requirements:
        (bound,) = requirement.specifier
        assert str(pinned[requirement.name].specifier) == f"=={bound.version}"
        assert pinned[requirement.name].marker == requirement.marker


def test_a_requirement_without_a_lower_bound_is_refused() -> None:
    table = {"dependencies": ["numpy"], "optional-dependencies": {"test": []}}
    with pytest.raises(ValueError, match=r"expected a requirement with a lower bound alone .*, found 'numpy'"):
        check_versions.lower_bounds(table)


def test_an_interpreter_of_another_version_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "python2.0").symlink_to(sys.executable)
    assert check_versions.interpreter("2.0") is None
    here = ".".join(map(str, sys.version_info[:2]))
    assert check_versions.interpreter(here) == sys.executable


def test_a_package_has_the_same_bound_wherever_it_is_asked_for() -> None:
    table = check_versions.project()
    bounds: dict[str, set[str]] = {}
    for requirements in (table["dependencies"], *table["optional-dependencies"].values()):
        for requirement in map(Requirement, requirements):
            bounds.setdefault(requirement.name, set()).add(str(requirement.specifier))
    # PyTorch programs need more than comparisons with it.
    assert {name: found for name, found in bounds.items() if len(found) > 1 and name != "torch"} == {}
