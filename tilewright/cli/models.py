"""Load MODEL: a name in a Python file, IR text, an artifact, or an ONNX model.

=================  ===================================================================================
``net.py:make``    a function without arguments that returns the model, or the model itself: an IRModule,
                   a function of the graph-level IR, or an Executable
``net.ir, .txt``   the text of a module, as ``print`` writes it, with its constants
``net.tw``         an artifact of ``tilewright compile``
``net.onnx``       an ONNX model, with the package onnx
=================  ===================================================================================
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import importlib.util
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

import tilewright as tw
from tilewright.cli.console import compiling, working
from tilewright.cli.options import BuildOptions, wrong_use
from tilewright.cli.shapes import Narrowed, split_shapes, values_of
from tilewright.graphir.expr import Function
from tilewright.graphir.op import get_operator
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import call_nodes, free_vars
from tilewright.passes.graph import InferType
from tilewright.passes.tables import format_seconds
from tilewright.runtime.conditions import Condition
from tilewright.runtime.model_interface import signature_of
from tilewright.runtime.observe.example_inputs import example_array
from tilewright.runtime.observe.example_sizes import conditions_of, conditions_of_model, find_sizes
from tilewright.runtime.signature import Signature
from tilewright.tensorir.errors import InputError

#: A constant in IR text that is given only by its digest.
_DESCRIBED = re.compile(r'^(const#\d+): Tensor\[\(([\d, ]*)\), (\w+)\] sha256="[0-9a-f]+"', re.MULTILINE)


class BuildSeconds(float):
    """The seconds that a build took.

    Attributes:
        was_found: whether it was found in the cache of kept builds.
        was_built: whether there was a build at all, which a compiled model needs none of.
    """

    def __new__(cls, seconds: float, was_found: bool = False, was_built: bool = True) -> BuildSeconds:
        made = super().__new__(cls, seconds)
        made.was_found, made.was_built = was_found, was_built
        return made

    was_found: bool
    was_built: bool

    def in_words(self) -> str:
        """Return what the build did, and how long it took."""
        if not self.was_built:
            return "compiled already"
        return f"{'found in the cache' if self.was_found else 'compiled'} in {format_seconds(self)}"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that a command has loaded.

    Attributes:
        path: the file.
        name: its name in messages.
        module: the graph; None for a compiled model.
        executable: the model if it is compiled already.
        source: the Python module that contains it, if any.
        narrowed: the values of ``--shape``.
        fixed: the values of inputs that became constants, by the names that the file has for them.
    """

    path: Path
    name: str
    module: tw.IRModule | None
    executable: tw.Executable | None
    source: ModuleType | None
    narrowed: Narrowed
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def graph(self, command: str) -> tw.IRModule:
        """Return the graph.

        Raises:
            click.UsageError: the model is compiled already.
        """
        if self.module is None:
            raise click.UsageError(f"{self.name} is compiled already; {command} needs the graph")
        return self.module

    def interface(self) -> tuple[Signature, list[Condition]] | None:
        """Return the inputs of the model, and the conditions that it has for their sizes, before it is compiled; None
        if its main is no graph.

        Raises:
            TilewrightError: the model is refused.
        """
        if self.executable is not None:
            return self.executable.signature, conditions_of_model(self.executable._built)
        assert self.module is not None
        typed = InferType()(self.module)
        main = typed["main"]
        if not isinstance(main, Function):
            return None
        signature = signature_of(main)
        return signature, conditions_of(typed, signature.symbols)

    def sized_by(self) -> list[str]:
        """Return the names of the inputs whose values sizes depend on, as far as the graph is there."""
        main = self.module.functions.get(self.module.get_global_var("main")) if self.module is not None else None
        if not isinstance(main, Function):
            return []
        numbers = [call.args[1] for call in call_nodes(main) if call.op is get_operator("bind_size")]
        used = {var for number in numbers for var in free_vars(number)}
        return [param.name for param in main.params if param in used]

    def build(self, options: BuildOptions) -> tuple[tw.Executable, BuildSeconds]:
        """Return the compiled model, and the seconds that this took.

        Raises:
            click.UsageError: the model is compiled already, and options of a build are given.
        """
        if self.executable is not None:
            given = [name for name in options.given() if name != "--threads"]
            if options.threads is not None:
                with wrong_use("--threads", ValueError):
                    self.executable.num_threads = options.threads
            if given:
                raise click.UsageError(f"{self.name} is compiled already: {', '.join(given)} cannot change it")
            return self.executable, BuildSeconds(0.0, was_built=False)
        assert self.module is not None
        with options.context(), compiling() as progress:
            built, seconds = timed(lambda: tw.build(self.module, target=options.target()))  # type: ignore[arg-type]
        return built, BuildSeconds(seconds, progress.was_found)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a function, and the seconds that it takes."""
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def load_model(
    place: tuple[Path, str],
    shapes: Sequence[str] = (),
    random_weights: bool = False,
    seed: int = 0,
    values: Sequence[str] = (),
) -> Model:
    """Load the model that a command names.

    Args:
        place: the file and, for Python, the name in it.
        shapes: the values of ``--shape``.
        random_weights: generate the constants that IR text gives only by their digests.
        seed: the seed of those.
        values: the values of ``--value``.

    Raises:
        click.UsageError: the suffix of the file is unknown, or a name is missing.
        InputError: the file contains no model.
        TilewrightError: the model is refused.
    """
    path, function = place
    if random_weights and path.suffix not in (".ir", ".txt"):
        raise click.UsageError(f"--random-weights is for IR text, and {path.name} is none")
    found: Any
    source = None
    with working("loading"):
        match path.suffix:
            case ".onnx":
                return _from_onnx(path, shapes, values)
            case ".py":
                found, source = _from_python(path, function)
            case ".ir" | ".txt":
                found = _from_text(path, random_weights, seed)
            case ".tw":
                found = tw.load(path)
            case _:
                raise click.BadParameter(
                    f"expected a file that ends in .onnx, .tw, .ir or .txt, or FILE.py:FUNCTION; found {path.name}",
                    param_hint="MODEL",
                )
    name = f"{path.name}:{function}" if function else path.name
    if isinstance(found, Function):
        found = tw.IRModule.from_expr(found)
    executable = found if isinstance(found, tw.Executable) else None
    names = [argument.name for argument in executable.signature.inputs] if executable else _parameters(found)
    narrowed = split_shapes(shapes, names)
    return Model(path, name, None if executable else found, executable, source, narrowed)


def _parameters(module: tw.IRModule) -> list[str]:
    main = module.functions.get(module.get_global_var("main")) if "main" in module else None
    return [param.name for param in main.params] if isinstance(main, Function) else []


def _from_onnx(path: Path, shapes: Sequence[str], values: Sequence[str]) -> Model:
    inputs = _onnx_inputs(path) if shapes or values else {}
    narrowed = split_shapes(shapes, list(inputs)) if shapes else Narrowed({}, {})
    fixed: dict[str, Any] = {}
    for name, value in values_of(values).items():
        kind = inputs[name].type.tensor_type if name in inputs else None
        if kind is not None and len(kind.shape.dim) <= 1:
            from onnx.helper import tensor_dtype_to_np_dtype

            dtype = tensor_dtype_to_np_dtype(kind.elem_type)
            if dtype.kind in "iub":
                sizes = [dim.dim_value for dim in kind.shape.dim]
                fixed[name] = np.full(sizes, value, dtype) if all(sizes) else np.atleast_1d(value).astype(dtype)
    try:
        module = tw.from_onnx(path, shapes={**narrowed.shapes, **narrowed.sizes}, values=fixed)
    except tw.TilewrightError:
        if shapes:
            _check_sizes(Model(path, path.name, tw.from_onnx(path, values=fixed), None, None, narrowed))
        raise
    return Model(path, path.name, module, None, None, Narrowed({}, {}), fixed)


def _check_sizes(model: Model) -> None:
    """Check the sizes of ``--shape`` by the conditions of a model that was imported without them: these say which ones
    fit, an error of the import only where they do not.

    Raises:
        InputError: the model does not accept the sizes.
    """
    found = model.interface()
    if found is not None:
        signature, conditions = found
        sizes = model.narrowed.sizes_in(signature)
        find_sizes(signature, conditions, {each: sizes[each] for each in signature.symbols if each in sizes})


def _onnx_inputs(path: Path) -> dict[str, Any]:
    """Return the descriptions of the inputs of an ONNX model by name."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError:
        return {}  # from_onnx reports the missing package
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except DecodeError:
        return {}  # from_onnx reports the error
    weights = {weight.name for weight in graph.initializer}
    return {value.name: value for value in graph.input if value.name not in weights}


# Python.


def _from_python(path: Path, name: str) -> tuple[Any, ModuleType]:
    module = _imported(path)
    found = getattr(module, name, None) if name else None
    if found is None:
        offered = ", ".join(f"{path.name}:{each}" for each in _offered(module)) or "nothing"
        said = f"{path.name} has no {name!r}" if name else f"expected the name of a model in it: {path.name}:FUNCTION"
        raise click.BadParameter(f"{said}; it offers {offered}", param_hint="MODEL")
    if callable(found) and not isinstance(found, (tw.Executable, Function)):
        with _blamed_on(f"{path.name}:{name}"):
            found = found()
    if not isinstance(found, (tw.IRModule, Function, tw.Executable)):
        raise InputError(
            f"{path.name}:{name}: expected an IRModule, a graphir.Function or an Executable, or a function without "
            f"arguments that returns one; found {type(found).__name__}"
        )
    return found, module


def _imported(path: Path) -> ModuleType:
    """Import the file as a module, with its directory on the import path."""
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_model"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses, among others, look it up there
    folder = str(path.resolve().parent)
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
    with _blamed_on(path.name):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _blamed_on(what: str) -> Iterator[None]:
    """Attribute errors of a user's code to that code."""
    try:
        yield
    except tw.TilewrightError:
        raise
    except Exception as error:
        raise InputError(f"{what} failed: {type(error).__name__}: {error}") from error


def _offered(module: ModuleType) -> list[str]:
    """Return the names in a module that may be models."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, (tw.IRModule, Function, tw.Executable))
            or (callable(value) and getattr(value, "__module__", None) == module.__name__)
        )
    ]


# Text.


def _from_text(path: Path, random_weights: bool, seed: int) -> tw.IRModule:
    text = path.read_text(encoding="utf-8")
    described = _DESCRIBED.findall(text)
    if described and not random_weights:
        raise InputError(
            f"{path.name} describes {len(described)} weights by digests only, such as {described[0][0]}; write it with "
            "graphir.to_text(module, constants='inline'), or generate them with --random-weights"
        )
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, shape, dtype in described:
        found = TensorType([int(size) for size in shape.split(",") if size.strip()], dtype)
        values = example_array(found, {}, generator)
        if found.dtype.is_float:  # so that the results of many layers stay in range
            fan_in = max(1, values.size // max(1, len(values)))
            values = (values.astype(np.float64) / fan_in**0.5).astype(values.dtype)
        arrays[name] = values

    def inline(found: re.Match[str]) -> str:
        data = base64.b64encode(arrays[found[1]].tobytes()).decode()
        return f'{found[1]}: Tensor[({found[2]}), {found[3]}] base64="{data}"'

    return tw.graphir.parse(_DESCRIBED.sub(inline, text))
