"""Test the installed package: one import name with every package of the repository in it, and nothing beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("graphir", "tensorir", "codegen", "runtime", "passes", "tilewright")
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "build_support", *ROOMS)
TOP_LEVEL = {"pyproject.toml", "graphir", "tensorir", "codegen", "runtime", "passes", "tests", "bench", "build_support"}
BESIDE = {"tilewright", "README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "docs", "examples"}

IMPORT_EVERYTHING = """
import importlib, sys
from pathlib import Path

unpacked, *names = sys.argv[1:]
sys.path.insert(0, unpacked)
for name in names:
    module = importlib.import_module(name)
    assert Path(unpacked) in Path(module.__file__).parents, f"{name} came from {module.__file__}"
"""

#: Packages that import PyTorch, an extra.
OF_TORCH = ("tilewright.graphir.frontend.torch", "tilewright.runtime.torch")


def project_table() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def import_name(path: Path) -> str:
    """``graphir/ops/nn.py`` is ``tilewright.graphir.ops.nn``; a package stands for its ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "tilewright" else ("tilewright", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files(suffix: str) -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob(f"*{suffix}"))]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built from a copy: an old build folder must not slip deleted modules into it."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    result = subprocess.run([*command, "--wheel-dir", str(dist), str(source)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_nothing_outside_the_import_name(unpacked: Path) -> None:
    version = project_table()["project"]["version"]
    assert {path.name for path in unpacked.iterdir()} == {"tilewright", f"tilewright-{version}.dist-info"}


def test_the_wheel_holds_every_module_of_the_rooms(unpacked: Path) -> None:
    packed = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*.py")}
    expected = set()
    for path in source_files(".py"):
        parts = path.relative_to(ROOT).parts
        expected.add("/".join(parts if parts[0] == "tilewright" else ("tilewright", *parts)))
    assert packed == expected


@pytest.mark.parametrize("suffix", [".lark", "py.typed"])
def test_the_wheel_holds_the_data_files(unpacked: Path, suffix: str) -> None:
    in_rooms = sorted(path.name for path in source_files(suffix))
    assert sorted(path.name for path in (unpacked / "tilewright").rglob(f"*{suffix}")) == in_rooms
    assert in_rooms, f"no {suffix} file in the rooms"


def test_every_module_can_be_imported_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    modules = [".".join(path.relative_to(unpacked).with_suffix("").parts) for path in unpacked.rglob("*.py")]
    names = sorted(name.removesuffix(".__init__") for name in modules)
    if find_spec("torch") is None:
        names = [name for name in names if not name.startswith(OF_TORCH)]
    # -I: neither the working folder nor PYTHONPATH can lend a module from the checkout.
    command = [sys.executable, "-I", "-c", IMPORT_EVERYTHING, str(unpacked), *names]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_wheel_states_licence_and_dependencies(unpacked: Path) -> None:
    (folder,) = unpacked.glob("*.dist-info")
    metadata = Parser().parsestr((folder / "METADATA").read_text(encoding="utf-8"))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert (folder / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {line.split(";")[0].split(">")[0].strip().replace("-", "_") for line in required}
    assert names == {"numpy", "numba", "llvmlite", "ml_dtypes", "rich", "lark", "click", "tbb"}


def test_every_package_of_the_rooms_is_listed_in_pyproject() -> None:
    found = {import_name(path) for path in source_files("__init__.py")}
    assert set(project_table()["tool"]["setuptools"]["packages"]) == found


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in source_files(".py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_top_level_holds_the_rooms_and_what_stands_beside_them() -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    entries = {line.split("/")[0] for line in tracked.splitlines()}
    entries = {name for name in entries if not name.startswith(".")}
    assert entries - BESIDE == TOP_LEVEL
