"""Judge the import by PyTorch's own database of operators (OpInfo): ``python -m tests.torch.opinfo [names]``.

For each entry with float32 on the processor its samples are traced to one functional graph of ATen overloads,
converted, computed, and compared with PyTorch's results within the entry's own tolerances. The summary counts entries
of which all samples pass, and lists the overloads without a converter by the number of entries that they keep from
passing.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.expr import Expr, Function, Tuple, Var
from tilewright.graphir.frontend.torch.decompositions import export_table
from tilewright.graphir.frontend.torch.importer import Importer, check_overloads
from tilewright.graphir.frontend.torch.tensors import as_array, stored_type
from tilewright.graphir.runtime_sizes import with_bound_sizes
from tilewright.tensorir.errors import TilewrightError


class NotTracedError(Exception):
    """PyTorch makes no single functional graph of a sample."""


def samples_of(entry: Any, most: int) -> Iterator[Any]:
    """Yield the first samples of an entry."""
    for number, sample in enumerate(entry.sample_inputs("cpu", torch.float32, requires_grad=False)):
        if number == most:
            return
        yield sample


def traced(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """Trace a function of tensors to one functional graph.

    Raises:
        NotTracedError: that fails.
    """

    def flat(*given: torch.Tensor) -> tuple[Any, ...]:
        own = [tensor.clone() for tensor in given]  # so that no result shares the memory of an argument
        return tuple(pytree.tree_leaves(function(*own)))

    try:
        return aot_export_joint_simple(flat, tuple(tensors), trace_joint=False, decompositions=export_table())
    except Exception as error:
        raise NotTracedError(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error


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


def computed(function: Function, arrays: Sequence[Any], compile: bool) -> Sequence[Any]:
    """Return the results of a function: compiled, or by the operators' NumPy references."""
    if compile:
        found = tw.build(function)(*arrays)
    else:
        with np.errstate(all="ignore"):
            found = gi.evaluate(function, *arrays)
    return found if isinstance(found, tuple) else (found,)


def tolerances(entry: Any) -> dict[str, float]:
    """Return the greatest tolerances for float32 that an entry states; nothing if it states none."""
    found: list[Any] = []
    for decorator in entry.decorators or ():
        for each in getattr(decorator, "decorators", [decorator]):
            if isinstance(each, toleranceOverride) and torch.float32 in each.d:
                found.append(each.d[torch.float32])
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


def judge_sample(entry: Any, sample: Any, compile: bool) -> None:
    """Compare one sample with PyTorch.

    Raises:
        NotTracedError, TilewrightError, AssertionError: as said.
    """
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[number].detach() for number in places]

    def run(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for number, tensor in zip(places, given, strict=True):
            filled[number] = tensor
        x, args, kwargs = pytree.tree_unflatten(filled, spec)
        return entry.op(x, *args, **kwargs)

    with torch.no_grad():
        function, numbers = _imported(run, [tensor.clone() for tensor in tensors])
        expected, _ = pytree.tree_flatten(run(*[tensor.clone() for tensor in tensors]))
        found = computed(function, [np.array(as_array(tensor), order="C") for tensor in tensors], compile)
        wanted = expected if numbers is None else [expected[number] for number in numbers]
        for one, other in zip(found, wanted, strict=True):
            array = torch.from_numpy(np.array(one)) if one.dtype.name != "bfloat16" else other
            if isinstance(other, torch.Tensor) and other.is_complex():
                array = torch.view_as_complex(array)
            elif not isinstance(other, torch.Tensor):
                array = array.item()
            torch.testing.assert_close(array, other, equal_nan=True, check_stride=False, **tolerances(entry))


def judge(entry: Any, most: int, compile: bool) -> tuple[str, str]:
    """Return how an entry fares: ``passed``, ``not traced``, ``unsupported``, ``wrong`` or ``error``, and why."""
    try:
        for sample in samples_of(entry, most):
            judge_sample(entry, sample, compile)
    except NotTracedError as error:
        return "not traced", str(error)
    except NotImplementedError as error:
        return "unsupported", str(error)
    except AssertionError as error:
        return "wrong", str(error)
    except TilewrightError as error:
        return "error", f"{type(error).__name__}: {error}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "error", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    return "passed", ""


def name_of(entry: Any) -> str:
    """Return the name of an entry with its variant."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def main() -> None:
    """Judge the entries and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="entries to judge (default: all)")
    parser.add_argument("--samples", type=int, default=1 << 30, help="judge so many samples of each entry at most")
    parser.add_argument("--compile", action="store_true", help="compile, rather than use the NumPy references")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--part", default="0/1", help="judge every n-th entry: number/n")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results: dict[str, tuple[str, str]] = {}
    number, parts = map(int, options.part.split("/"))
    for entry in op_db[number::parts]:
        name = name_of(entry)
        if options.names and name not in options.names and entry.name not in options.names:
            continue
        if torch.float32 not in entry.supported_dtypes("cpu"):
            results[name] = "no float32", ""
            continue
        start = time.perf_counter()
        results[name] = judge(entry, options.samples, options.compile)
        print(
            f"{name}: {': '.join(filter(None, results[name]))[:300]} [{time.perf_counter() - start:.1f} s]", flush=True
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    summarize(results)


def summarize(results: dict[str, tuple[str, str]]) -> None:
    """Print the counts of outcomes, and the missing overloads by the entries that need them."""
    counts = collections.Counter(outcome for outcome, _ in results.values())
    missing = collections.Counter(
        overload
        for outcome, reason in results.values()
        if outcome == "unsupported"
        for overload in re.findall(r"([\w.]+) \(nodes:", reason)
    )
    print(*(f"{overload}: {count}" for overload, count in missing.most_common()), sep="\n")
    print(f"{len(results)} entries:", ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))


if __name__ == "__main__":
    sys.exit(main())
