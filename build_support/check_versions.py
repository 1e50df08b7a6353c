"""Run the tests on the oldest and on the newest versions of Python and of all dependencies.

``make test-versions`` runs this. The classifiers of ``pyproject.toml`` list the supported versions of Python. The
oldest one gets the lower bound of every requirement, of the extra ``test`` as well; the newest one gets the newest
release of each that the package index has. Both are environments below ``build/versions``. An interpreter that this
machine lacks is reported and left out. Arguments are pytest's; ``oldest`` or ``newest`` before them chooses one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "versions"

CHOICES = ("oldest", "newest")

#: The packages whose versions are printed before the tests.
SHOWN = ("numpy", "numba", "llvmlite", "ml_dtypes", "rich", "lark", "click", "onnx", "pytest", "hypothesis")


def project() -> dict[str, Any]:
    """Return the table ``[project]`` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def supported(table: dict[str, Any]) -> list[str]:
    """Return the supported versions of Python ("3.10"), oldest first, as the classifiers of ``table`` list them."""
    found = re.findall(r"Programming Language :: Python :: (3\.\d+)$", "\n".join(table["classifiers"]), re.MULTILINE)
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def lower_bounds(table: dict[str, Any]) -> list[str]:
    """Return constraints for pip that pin the requirements of ``table``, and of its extra ``test``, to lower bounds.

    Raises:
        ValueError: a requirement has no lower bound, or has more than that.
    """
    pinned = []
    for requirement in [*table["dependencies"], *table["optional-dependencies"]["test"]]:
        found = re.fullmatch(r"([\w.-]+)>=([\d.]+)(\s*;.*)?", requirement)
        if found is None:
            raise ValueError(f"expected a requirement with a lower bound alone (name>=version), found {requirement!r}")
        name, version, marker = found.groups()
        pinned.append(f"{name}=={version}{marker or ''}")
    return pinned


def interpreter(version: str) -> str | None:
    """Return a command of Python ``version`` that makes environments: one on the PATH, or one of pyenv's; None if there
    is none. A name on the PATH may be a shim whose version is not selected, so each candidate is run."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [f"python{version}", sys.executable, *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    wanted = f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for candidate in candidates:
        path = shutil.which(candidate)
        if path is not None and subprocess.run([path, "-c", wanted], capture_output=True).returncode == 0:
            return path
    return None


def install(python: str, choice: str, version: str, constraints: list[str]) -> Path:
    """Return the interpreter of the environment for ``choice``, with this tree and what its tests need installed."""
    folder = FOLDER / f"{choice}-{version}"
    environment = folder / "bin" / "python"
    if not environment.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    bounds = folder / "constraints.txt"
    bounds.write_text("".join(f"{line}\n" for line in constraints), encoding="utf-8")
    command = [str(environment), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--constraint", str(bounds), "--upgrade", "--upgrade-strategy", "eager", "-e", f"{ROOT}[test]"]
    subprocess.run(command, check=True)
    return environment


def test(python: Path, arguments: list[str]) -> int:
    """Print the versions of an environment and run pytest in it; return its exit status."""
    shown = f"from importlib.metadata import version; print(*(f'{{n}} {{version(n)}}' for n in {SHOWN}), sep=', ')"
    subprocess.run([str(python), "-c", shown], check=True)
    return subprocess.run([str(python), "-m", "pytest", *arguments], cwd=ROOT).returncode


def main(arguments: list[str]) -> int:
    chosen = CHOICES
    if arguments and arguments[0] in CHOICES:
        chosen, arguments = (arguments[0],), arguments[1:]
    table = project()
    versions = supported(table)
    failed = []
    for choice in chosen:
        version = versions[0 if choice == "oldest" else -1]
        python = interpreter(version)
        if python is None:
            print(f"The tests with the {choice} versions are skipped: Python {version} is not on this machine.")
            continue
        print(f"The {choice} versions, on Python {version}:", flush=True)
        environment = install(python, choice, version, lower_bounds(table) if choice == "oldest" else [])
        if test(environment, arguments) != 0:
            failed.append(choice)
    if failed:
        print(f"FAILED with the {' and the '.join(failed)} versions")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
