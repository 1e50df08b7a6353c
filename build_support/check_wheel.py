"""Build the accelerated wheel, install it isolated from the checkout, and run a part of the tests on it.

``make wheel`` runs this, and so does ``.ci/run``. Without a C compiler, or without Python's headers, it reports that
and succeeds: the wheel is optional. Arguments are pytest's, in place of :data:`TESTS`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "wheel"

#: The tests that run on the wheel: those of compiled modules, and complete builds.
TESTS = (
    "tests/packaging/test_accelerated.py",
    "tests/tensorir",
    "tests/graphir/test_dims.py",
    "tests/graphir/test_known_values.py",
    "tests/graphir/test_printer.py",
    "tests/graphir/test_structural.py",
    "tests/passes/graph/test_alter_op_layout.py",
    "tests/passes/graph/test_dominators.py",
    "tests/passes/graph/test_fold_scale_axis.py",
    "tests/passes/graph/test_functions.py",
    "tests/passes/graph/test_fuse_ops.py",
    "tests/passes/graph/test_infer_type.py",
    "tests/passes/graph/test_normal_forms.py",
    "tests/passes/graph/test_walk.py",
    "tests/passes/lower",
    "tests/passes/schedule",
    "tests/passes/tensor",
    "tests/codegen",
    "tests/runtime/test_workers.py",
    "tests/runtime/test_stored_kernels.py",
)

#: Tests that look into modules in ways that compiled ones do not offer, or read messages of interpreted ones, each
#: with the reason.
LEFT_OUT = {
    "tests/graphir/test_dims.py::test_a_formula_is_simplified_once": "replaces a function",
    "tests/tensorir/schedule/test_legality.py::test_the_ir_is_printed_when_the_message_is_read": "replaces a function",
    "tests/passes/schedule/test_schedule_kernels.py::test_block_that_cannot_be_scheduled_keeps_its_loops": (
        "replaces a function"
    ),
    "tests/tensorir/schedule/test_refused_steps.py::test_the_key_of_an_annotation_is_a_text": (
        "the type of an argument is checked by mypyc, which raises a TypeError with a text of its own"
    ),
    "tests/tensorir/test_arith_witness.py::test_what_a_witness_refutes_is_not_searched_for": "replaces a method",
    "tests/passes/tensor/test_lower_intrin.py::test_equal_divisions_are_asked_about_once": "replaces a method",
    "tests/tensorir/test_rules_proved.py::test_a_number_wraps_to_the_one_number_of_the_type_with_the_same_low_bits": (
        "executes code on formulas"
    ),
    "tests/tensorir/test_rules_proved.py::test_a_truncated_quotient_is_rounded_toward_zero": (
        "executes code on formulas"
    ),
    "tests/passes/tensor/test_coverage.py::test_conditions_may_follow_from_those_of_the_read": "replaces a method",
}


def missing() -> str | None:
    """Return the tool for the wheel that this machine lacks; None if it has all."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return f"no headers of Python {sysconfig.get_python_version()}"
    for module in ("mypyc", "setuptools"):
        if find_spec(module) is None:
            return f"no module {module}"
    return None


def build() -> Path:
    """Build the wheel of this tree."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    environment = {**os.environ, "TILEWRIGHT_MYPYC": "1"}
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(FOLDER), str(ROOT)], env=environment, check=True
    )
    (wheel,) = FOLDER.glob("*.whl")
    return wheel


def install(wheel: Path) -> Path:
    """Return the interpreter of an environment with ``wheel``, which borrows all other packages of this one. Editable
    installs here are invisible there: a ``.pth`` file in a borrowed folder has no effect."""
    folder = FOLDER / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    packages = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    return python


def test(python: Path, tests: list[str]) -> int:
    """Run pytest; return its exit status. It runs in an empty folder, and so do the programs that tests start: files of
    the checkout must not hide installed ones."""
    command = [str(python), "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
    command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    command += [f"--deselect={name}" for name in LEFT_OUT]
    environment = {**os.environ, "TILEWRIGHT_EXPECTS_COMPILED": "1"}
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as empty:
        return subprocess.run([*command, *tests], cwd=empty, env=environment).returncode


def main(arguments: list[str]) -> int:
    lacking = missing()
    if lacking is not None:
        print(f"The accelerated wheel is not built, and its tests are skipped: {lacking}.")
        return 0
    begin = time.monotonic()
    wheel = build()
    print(f"Built {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB) in {time.monotonic() - begin:.0f} s")
    chosen = arguments or [str(ROOT / name) for name in TESTS]
    return test(install(wheel), chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
