"""Modules load when something in them is used, and no program notices: each in an interpreter without any of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.packaging.fresh import FreshProcesses

HEAVY = {"click", "google", "lark", "llvmlite", "ml_dtypes", "numba", "numpy", "onnx", "rich"}
#: What a model that is built and called needs nothing of.
UNUSED = (
    "cli",
    "codegen.numba_.compile",
    "graphir.frontend",
    "graphir.interpreter",
    "graphir.parser",
    "graphir.verify",
)
UNUSED += ("passes.everything", "runtime.artifact", "runtime.observe")
UNUSED += ("tensorir.interpreter", "tensorir.parser", "tensorir.verify")

BUILD = """
import numpy as np
import tilewright as tw
from tilewright import graphir as gi
x = gi.var("x", shape=("n", 8), dtype="float32")
model = tw.build(gi.Function([x], gi.tanh(x + 1)), tw.Target("llvm", num_threads=1))
assert np.allclose(model(np.zeros((2, 8), "float32")), np.tanh(1.0))
"""

ENVIRONMENT = {**os.environ, "TILEWRIGHT_CACHE": "off"}


@pytest.fixture(scope="module")
def fresh() -> Iterator[Callable[[str], None]]:
    """Runs a program in a process without modules of the package."""
    processes = FreshProcesses()

    def run(program: str) -> None:
        ended = processes.run(program, [], ENVIRONMENT)
        assert ended.status == 0, ended.errors

    yield run
    processes.stop()


def loaded_by(program: str) -> set[str]:
    """The modules that are there after ``program`` in a new interpreter, but for those that each starts with."""
    program = f"import sys\nbefore = set(sys.modules)\n{program}\nprint(*(sys.modules.keys() - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_what_loads_the_rest_and_no_library() -> None:
    loaded = loaded_by("import tilewright")
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    own = {name for name in loaded if name.startswith("tilewright")}
    assert own == {"tilewright", "tilewright.tensorir", "tilewright.tensorir.lazy"}


def test_building_and_calling_a_model_loads_no_tool() -> None:
    loaded = loaded_by(BUILD)
    assert not loaded & {"click", "lark", "numba", "onnx", "rich"}
    unused = [f"tilewright.{name}" for name in UNUSED]
    assert [name for name in loaded if name in unused or name.startswith(tuple(f"{each}." for each in unused))] == []


def test_the_command_line_loads_a_command_when_it_is_used() -> None:
    program = """
import contextlib
from tilewright.cli import cli
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    cli(["--version"])
"""
    loaded = loaded_by(program)
    assert not loaded & {"numpy", "llvmlite", "tilewright.cli.run", "tilewright.runtime"}
    assert "tilewright.cli.inspect_" in loaded_by(program.replace("--version", 'inspect", "--help'))


@pytest.mark.parametrize(
    "package",
    [
        "",
        ".tensorir",
        ".graphir",
        ".passes",
        ".passes.graph",
        ".runtime",
        ".runtime.observe.numeric",
        ".codegen.numba_",
    ],
)
def test_every_name_of_a_package_is_there(fresh: Callable[[str], None], package: str) -> None:
    fresh(f"""
import importlib
package = importlib.import_module("tilewright{package}")
missing = set(package.__all__) - set(dir(package))
assert not missing, missing
for name in package.__all__:
    value = getattr(package, name)
    assert vars(package)[name] is value, f"{{name}} is looked up again and again"
    exec(f"from {{package.__name__}} import {{name}} as imported")
    assert imported is value
try:
    package.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error) and package.__name__ in str(error)
else:
    raise AssertionError("a name that is not there")
""")


@pytest.mark.parametrize(
    ("package", "name"),
    [("runtime", "build"), ("runtime.observe.numeric", "minimize"), ("graphir", "verify")],
)
def test_a_name_that_is_also_a_submodules_is_not_replaced_when_that_loads(
    fresh: Callable[[str], None], package: str, name: str
) -> None:
    fresh(f"""
import tilewright.{package}.{name}
from tilewright.{package} import {name}
assert type({name}).__name__ == "function", {name}
assert tilewright.{package}.{name} is {name}
""")


def test_packages_and_modules_are_attributes_without_an_import(fresh: Callable[[str], None]) -> None:
    fresh("""
import tilewright as tw
assert tw.runtime.observe.numeric.ulps.ulp_distance and tw.codegen.llvm.compile_module and tw.graphir.types.TensorType
assert tw.passes.pipelines.STAGES and tw.passes.tensor.Simplify and tw.tensorir.schedule.Schedule
""")


@pytest.mark.parametrize(
    "program",
    {
        "operator": "from tilewright.graphir.op import get_operator; assert get_operator('nn.relu').name == 'nn.relu'",
        "alias": "from tilewright import graphir as gi; assert gi.strided_slice is gi.slice",
        "list": "from tilewright.graphir import list_operators; assert {'add', 'nn.softmax'} <= set(list_operators())",
        "namespace": "from tilewright.graphir import nn; assert 'conv2d' in dir(nn) and nn.relu.name == 'nn.relu'",
        "method": "from tilewright.graphir.expr import const; assert (const([1.0]) + 1).op.name == 'add'",
        "index": "from tilewright.graphir.expr import const; assert const([[1.0]])[0].shape == (1,)",
        "numpy": "import numpy, tilewright; assert numpy.exp(tilewright.graphir.const([1.0])).op.name == 'exp'",
        "text": "from tilewright.graphir.expr import var; assert '%x' in str(var('x', None))",
        "loop text": "from tilewright.tensorir.expr import Var; assert repr(Var('i', 'int64')) == 'i'",
        "parser": "import tilewright as t; t.graphir.parse('def @main(%x: Tensor[(2,), int8]) { %0 = abs(%x) %0 }')",
        "pass": "from tilewright.passes import get_pass; assert get_pass('FuseOps').info.name == 'FuseOps'",
        "passes": "from tilewright.passes import list_passes; assert {'FuseOps', 'UnrollLoop'} <= set(list_passes())",
        "option": "from tilewright import PassContext; PassContext(config={'tensorir.UnrollLoop': {}})",
        "options": "from tilewright import PassContext; assert 'tensorir.UnrollLoop' in PassContext.list_configs()",
    }.values(),
)
def test_what_registers_is_there_when_it_is_asked_for_first(fresh: Callable[[str], None], program: str) -> None:
    fresh(program)


def test_names_of_the_project_are_taken_before_its_modules_are_loaded(fresh: Callable[[str], None]) -> None:
    fresh("""
import dataclasses
from tilewright.graphir import Operator, register_operator
from tilewright.passes import function_pass, register_config_option, register_pass
from tilewright.tensorir.errors import PassError

class Add(Operator):
    name = "add"

@dataclasses.dataclass(frozen=True)
class Options:
    steps: int = 1

mine = function_pass(lambda func, mod, ctx: func, opt_level=1, name="FuseOps")
attempts = {
    ValueError: lambda: register_operator(Add),
    PassError: lambda: (register_pass(mine), register_config_option("tensorir.UnrollLoop", Options)),
}
for expected, attempt in attempts.items():
    try:
        attempt()
    except expected:
        continue
    raise AssertionError(f"no {expected.__name__}")
try:
    register_config_option("tensorir.UnrollLoop", Options)
except PassError:
    pass
else:
    raise AssertionError("the option is taken")
""")


def test_a_change_of_the_source_after_the_first_import_is_seen_by_what_loads_later(
    fresh: Callable[[str], None],
) -> None:
    fresh("""
import time
import tilewright
changed = time.time()
from tilewright.runtime import build_cache
assert build_cache._BEGIN < changed, "code that is not what runs would be kept under the digest of what is on disk"
""")


def test_threads_may_ask_for_the_first_time_together(fresh: Callable[[str], None]) -> None:
    fresh("""
import threading
import tilewright as tw
together, failed = threading.Barrier(4), []

def ask(number):
    together.wait()
    try:
        for turn in range(4):
            what = (number + turn) % 4
            if what == 0:
                tw.passes.get_pass("FuseOps")
            elif what == 1:
                tw.graphir.nn.relu(tw.graphir.const([1.0]))
            elif what == 2:
                tw.build, tw.tensorir.Schedule, str(tw.graphir.var("x", None))
            else:
                tw.PassContext.list_configs()
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
""")
