"""Judge the import by PyTorch's own database of operators (OpInfo): ``python -m tests.torch.opinfo [names]``.

For each entry its samples on the processor are traced to one functional graph of ATen overloads, converted, computed,
and compared with PyTorch's results within the entry's own tolerances. The summary counts entries of which all samples
pass, and lists the overloads without a converter by the number of entries that they keep from passing.

    python -m tests.torch.opinfo --compile --json verdicts.json --seconds 60
    python -m tests.torch.opinfo --compile --json verdicts.json             # goes on where that was
    python -m tests.torch.opinfo --dtype bfloat16 --samples 3
    python -m tests.torch.opinfo --gradients --samples 2
    python -m tests.torch.opinfo --fallback --samples 2                     # torch.compile, as programs call it
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import tilewright as tw
from tests.torch import judging
from tests.torch.judging import NotTracedError, OutOfScopeError
from tilewright import graphir as gi
from tilewright.graphir.expr import Expr, Function, Tuple, Var
from tilewright.graphir.frontend.torch.checks import take_checks
from tilewright.graphir.frontend.torch.decompositions import export_table
from tilewright.graphir.frontend.torch.importer import Importer, check_overloads
from tilewright.graphir.frontend.torch.tensors import as_array, as_tensor, stored_type
from tilewright.graphir.runtime_sizes import with_bound_sizes
from tilewright.graphir.structural import structural_equal, structural_hash

#: Entries whose elements PyTorch leaves undefined: shapes and element types are compared.
UNDEFINED = frozenset(("empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "empty"))


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


# Entries with random numbers set the seed in the operator, which PyTorch cannot trace: here it is set before a call.
common_methods_invocations.wrapper_set_seed = _unseeded

_SEED = 42

#: Judges a sample of an entry.
Judge = Callable[[Any, Any, torch.dtype], None]
#: Computes a function of arrays.
Compute = Callable[[Function, Sequence[Any]], Any]

_table = functools.cache(export_table)


def traced(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """Trace a function of tensors to one functional graph.

    Raises:
        NotTracedError: that fails.
    """

    def flat(*given: torch.Tensor) -> tuple[Any, ...]:
        own = [tensor.clone() for tensor in given]  # so that no result shares the memory of an argument
        return tuple(pytree.tree_leaves(function(*own)))

    try:
        graph = aot_export_joint_simple(flat, tuple(tensors), trace_joint=False, decompositions=_table())
    except Exception as error:
        raise NotTracedError(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error
    return _without_checks(graph)


def _without_checks(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Take out the checks that PyTorch makes after a call, and the tokens that keep their order."""
    checks = take_checks(graph)
    if checks:
        (output,) = graph.graph.find_nodes(op="output")
        results = output.args[0][: -len(checks)]
        tokens = [node for node in results if node.op == "placeholder"]  # other inputs are copied
        output.args = (tuple(node for node in results if node not in tokens),)
        for token in tokens:
            graph.graph.erase_node(token)
        graph.recompile()
    return graph


def converted(traced_graph: torch.fx.GraphModule) -> tuple[Function, list[int]]:
    """Convert a graph to a function of its tensors; return it, and the numbers of its results that are tensors."""
    graph = traced_graph.graph
    check_overloads(graph)
    importer = Importer()
    values: dict[torch.fx.Node, Any] = {}
    params: list[Var] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            value = node.meta["val"]
            param = Var(node.name, stored_type(value, tuple(value.shape)))
            params.append(param)
            values[node] = param
    outputs, _ = pytree.tree_flatten(importer.convert(graph, values))
    places = [number for number, output in enumerate(outputs) if isinstance(output, Expr)]
    results = with_bound_sizes([outputs[number] for number in places], importer.bound, params)
    return Function(params, Tuple(results)), places


def by_reference(function: Function, arrays: Sequence[Any]) -> Any:
    """Compute a function by the operators' NumPy references."""
    with np.errstate(all="ignore"):
        return gi.evaluate(function, *arrays)


class Compiled:
    """Compiles functions and calls them; equal ones are built once.

    Attributes:
        opt_level: the optimization level; None: the default.
        builds: how many functions were built.
    """

    def __init__(self, opt_level: int | None = None) -> None:
        self.opt_level = opt_level
        self.builds = 0
        self._built: dict[int, list[tuple[Function, tw.Executable]]] = {}

    def __call__(self, function: Function, arrays: Sequence[Any]) -> Any:
        known = self._built.setdefault(structural_hash(function), [])
        for other, executable in known:
            if structural_equal(function, other):
                return executable(*arrays)
        executable = tw.build(function, opt_level=self.opt_level)
        self.builds += 1
        known.append((function, executable))
        return executable(*arrays)


def tolerances(entry: Any, dtype: torch.dtype) -> dict[str, float]:
    """Return the greatest tolerances that an entry states for an element type; nothing if it states none."""
    found: list[Any] = []
    for decorator in entry.decorators or ():
        for each in getattr(decorator, "decorators", [decorator]):
            if isinstance(each, toleranceOverride) and dtype in each.d:
                found.append(each.d[dtype])
    if not found:
        return {}
    return {"rtol": max(each.rtol for each in found), "atol": max(each.atol for each in found)}


class _Module(torch.nn.Module):
    """A function as a module, for ``torch.export``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def _imported(run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> tuple[Function, list[int] | None]:
    """Return a function of tensors as a function of the graph, and the numbers of its results that are tensors, None
    for all. What depends on data is exported, as then sizes are symbols."""
    try:
        return converted(traced(run, tensors))
    except NotTracedError as error:
        if not re.search("DataDependent|DynamicOutput", str(error)):
            raise
        try:
            program = torch.export.export(_Module(run), tuple(tensors), strict=False)
        except Exception:
            raise error from None
        main = tw.from_exported(program)["main"]
        assert isinstance(main, Function)
        return main, None


def as_function(entry: Any, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Return the operator as a function of the tensors of a sample, and these."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def run(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for number, tensor in zip(places, given, strict=True):
            filled[number] = tensor
        x, args, kwargs = pytree.tree_unflatten(filled, spec)
        return entry.op(x, *args, **kwargs)

    return run, [leaves[number].detach() for number in places]


def judge_sample(entry: Any, sample: Any, dtype: torch.dtype, compute: Compute) -> None:
    """Compare one sample with PyTorch.

    Raises:
        NotTracedError, OutOfScopeError, TilewrightError, CloserError, AssertionError: as said.
    """
    run, tensors = as_function(entry, sample)
    with torch.no_grad():
        torch.manual_seed(_SEED)
        try:
            expected, _ = pytree.tree_flatten(run(*[tensor.clone() for tensor in tensors]))
        except Exception as error:
            raise OutOfScopeError(f"{type(error).__name__}: {error}") from error
        function, numbers = _imported(run, [tensor.clone() for tensor in tensors])
        arrays = compute(function, [np.array(as_array(tensor), order="C") for tensor in tensors])
        wanted = expected if numbers is None else [expected[number] for number in numbers]
        given = arrays if isinstance(arrays, tuple) else (arrays,)
        found = [_as_result(one, other) for one, other in zip(given, wanted, strict=True)]
        if entry.name in UNDEFINED:
            wanted = [torch.zeros_like(value) for value in wanted]
            found = [torch.zeros_like(value) for value in found]

        def exact() -> list[Any]:
            torch.manual_seed(_SEED)
            wide, _ = pytree.tree_flatten(run(*[_wide(tensor) for tensor in tensors]))
            return wide if numbers is None else [wide[number] for number in numbers]

        compare(found, wanted, exact, tolerances(entry, dtype))


def _as_result(array: Any, like: Any) -> Any:
    """Return a result as PyTorch's is: a tensor, of complex numbers perhaps, or a number."""
    tensor = as_tensor(np.array(array))
    if not isinstance(like, torch.Tensor):
        return tensor.item()
    return torch.view_as_complex(tensor) if like.is_complex() else tensor


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def compare(
    found: Sequence[Any], expected: Sequence[Any], exact: Callable[[], Sequence[Any]], tolerance: dict[str, float]
) -> None:
    """Compare results with PyTorch's.

    Args:
        found: the results.
        expected: PyTorch's.
        exact: returns PyTorch's in double precision.
        tolerance: the tolerances, where they are not the usual ones.

    Raises:
        AssertionError: one differs.
        CloserError: one differs, and agrees with double precision, as PyTorch's does not.
    """
    options: dict[str, Any] = {"equal_nan": True, "check_stride": False, **tolerance}
    try:
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, **options)
    except AssertionError as error:
        try:
            for one, wide in zip(found, exact(), strict=True):
                torch.testing.assert_close(one, wide, check_dtype=False, **_of(options, one))
        except Exception:
            raise error from None
        raise judging.CloserError(f"PyTorch's own result is not as exact: {error}") from None


def _of(options: dict[str, Any], found: Any) -> dict[str, Any]:
    """Return options with the usual tolerances of a result's own element type, which is not that of the exact one."""
    if "rtol" in options or not isinstance(found, torch.Tensor):
        return options
    rtol, atol = torch.testing._comparison.default_tolerances(found)
    return {**options, "rtol": rtol, "atol": atol}


def judge_gradients(entry: Any, sample: Any, dtype: torch.dtype, opt_level: int | None) -> None:
    """Compare the results of one sample, and the gradients of its tensors, compiled by ``torch.compile`` without
    fallback, with PyTorch's.

    Raises:
        NotTracedError: also if the graphs that PyTorch makes do not agree with it (backend ``aot_eager``).
        OutOfScopeError, TilewrightError, CloserError, AssertionError: as said.
    """
    run, tensors = as_function(entry, sample)
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    marked = [leaf.requires_grad for leaf in leaves if isinstance(leaf, torch.Tensor)]
    needed = [number for number, is_marked in enumerate(marked) if is_marked]

    def gradients(call: Callable[..., Any], given: Sequence[torch.Tensor]) -> Sequence[Any]:
        inputs = [leaf.detach().clone().requires_grad_(number in needed) for number, leaf in enumerate(given)]
        torch.manual_seed(_SEED)
        found = [leaf for leaf in pytree.tree_leaves(call(*inputs)) if isinstance(leaf, torch.Tensor)]
        results = [leaf for leaf in found if leaf.requires_grad]
        if not results:
            raise OutOfScopeError("no result has a gradient")
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(leaf.shape, generator=generator, dtype=dtype) for leaf in results]
        sums = [(leaf * weight.to(leaf.dtype)).sum() for leaf, weight in zip(results, weights, strict=True)]
        total = torch.stack([part.real + part.imag if part.is_complex() else part for part in sums]).sum()
        wanted = [inputs[number] for number in needed]
        found_gradients = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
        return [*(leaf.detach() for leaf in found), *found_gradients]

    def own(*given: torch.Tensor) -> Any:  # of copies: an operator that works in place must not change a leaf
        return run(*[tensor.clone() for tensor in given])

    try:
        expected = gradients(own, tensors)
    except Exception as error:
        raise OutOfScopeError(f"{type(error).__name__}: {error}") from error

    def agree(backend: str, **options: Any) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(own, backend=backend, fullgraph=True, dynamic=False, **options)
        wide = [_wide(tensor) for tensor in tensors]
        compare(gradients(compiled, tensors), expected, lambda: gradients(own, wide), tolerances(entry, dtype))

    with _pytorch_agrees(agree):
        agree("tilewright", options={"fallback": False, "opt_level": opt_level})


@contextlib.contextmanager
def _pytorch_agrees(agree: Callable[[str], None]) -> Iterator[None]:
    """Tell an error of a compilation from one that PyTorch's own graphs have, too.

    Args:
        agree: compares with a backend.

    Raises:
        NotTracedError: PyTorch makes no single graph, or one that does not agree with backend ``aot_eager`` either.
    """
    try:
        yield
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:
        raise NotTracedError(str(error).splitlines()[0]) from None
    except Exception:
        try:
            agree("aot_eager")
        except judging.CloserError:
            pass
        except Exception as error:
            raise NotTracedError(f"aot_eager fails, too: {type(error).__name__}: {error}"[:200]) from None
        raise


def judge_with_fallback(
    entry: Any, sample: Any, dtype: torch.dtype, opt_level: int | None, fallbacks: judging.Fallbacks
) -> None:
    """Compare the results of one sample, compiled by ``torch.compile``, with PyTorch's: what has no converter runs in
    PyTorch. What the operator makes of its arguments, if it works in place, is compared, too.

    Raises:
        NotTracedError: also if the graph that PyTorch makes does not agree with it (backend ``aot_eager``).
        FellBackError, SplitError: it agrees, and a part ran in PyTorch, or PyTorch makes several graphs.
        OutOfScopeError, TilewrightError, CloserError, AssertionError: as said.
    """
    run, tensors = as_function(entry, sample)

    def results(call: Callable[..., Any], given: Sequence[torch.Tensor]) -> list[Any]:
        inputs = [tensor.clone() for tensor in given]
        torch.manual_seed(_SEED)
        with torch.no_grad():
            found = pytree.tree_leaves(call(*inputs))
        leaves = [*found, *inputs]
        return [torch.zeros_like(leaf) for leaf in leaves] if entry.name in UNDEFINED else leaves

    try:
        expected = results(run, tensors)
    except Exception as error:
        raise OutOfScopeError(f"{type(error).__name__}: {error}") from error

    def agree(backend: str, **options: Any) -> None:
        torch._dynamo.reset()
        compiled = torch.compile(run, backend=backend, dynamic=False, **{"fullgraph": True, **options})
        wide = [_wide(tensor) for tensor in tensors]
        compare(results(compiled, tensors), expected, lambda: results(run, wide), tolerances(entry, dtype))

    level = {"opt_level": opt_level}
    try:
        with _pytorch_agrees(agree):
            agree("tilewright", options=level)
    except NotTracedError as error:
        with _pytorch_agrees(functools.partial(agree, fullgraph=False)):
            agree("tilewright", options=level, fullgraph=False)
        raise judging.SplitError(str(error)) from None
    fallbacks.check()


def cases(
    entry: Any, dtype: torch.dtype, most: int | None, judge_one: Judge, requires_grad: bool = False
) -> judging.Cases:
    """Yield the cases of an entry: its first samples, with marks at what is differentiated if asked."""
    torch.manual_seed(0)
    samples: Iterator[Any] = entry.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    for sample in itertools.islice(samples, most):
        yield functools.partial(judge_one, entry, sample, dtype)


def name_of(entry: Any) -> str:
    """Return the name of an entry with its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def entries(dtype: torch.dtype, gradients: bool = False) -> dict[str, Any]:
    """Return the entries that have samples of an element type on the processor, and gradients if asked, by name."""

    def fits(entry: Any) -> bool:
        if gradients and not (entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")):
            return False
        return dtype in entry.supported_dtypes("cpu")

    return {name_of(entry): entry for entry in filter(fits, op_db)}


def main() -> None:
    """Judge the entries and print the summary."""
    parser = judging.arguments(__doc__)
    parser.add_argument("--samples", type=int, help="judge so many samples of each entry at most")
    parser.add_argument("--dtype", default="float32", help="the element type of the samples")
    parser.add_argument("--compile", action="store_true", help="compile, rather than use the NumPy references")
    parser.add_argument("--gradients", action="store_true", help="compile, and compare the gradients")
    parser.add_argument("--fallback", action="store_true", help="compile, and let run in PyTorch what has no converter")
    parser.add_argument("--opt-level", type=int, help="the optimization level of --compile")
    options: argparse.Namespace = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._logging.set_logs(dynamo=logging.ERROR)
    torch.set_num_threads(1)
    dtype: torch.dtype = getattr(torch, options.dtype)
    fallbacks = judging.Fallbacks() if options.fallback else None

    def subject(entry: Any) -> judging.Cases:
        if options.gradients:
            judge_one: Judge = functools.partial(judge_gradients, opt_level=options.opt_level)
        elif fallbacks is not None:
            judge_one = functools.partial(judge_with_fallback, opt_level=options.opt_level, fallbacks=fallbacks)
        else:
            judge_one = functools.partial(
                judge_sample, compute=Compiled(options.opt_level) if options.compile else by_reference
            )
        return cases(entry, dtype, options.samples, judge_one, options.gradients)

    found = entries(dtype, options.gradients)
    subjects = {name: functools.partial(subject, entry) for name, entry in found.items()}
    judging.run(options, subjects, {name: entry.name for name, entry in found.items()})


if __name__ == "__main__":
    sys.exit(main())
