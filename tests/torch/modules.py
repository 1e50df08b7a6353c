"""Judge ``torch.compile`` by PyTorch's own database of modules: ``python -m tests.torch.modules [names]``.

Each module is compiled for each of its inputs, in training and in evaluation, and compared with PyTorch: results, the
buffers that it changes, and the gradients of parameters and inputs.
"""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

from tests.torch import judging

#: The greatest difference from PyTorch, as a part of an element, and of the greatest element of a tensor.
RTOL, ATOL = 1e-4, 1e-5


def compare(found: Any, expected: Any, what: str) -> None:
    """Compare the tensors in nested values.

    Raises:
        AssertionError: they differ.
    """
    pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True)
    for one, other in ((one, other) for one, other in pairs if isinstance(other, torch.Tensor)):
        plain = other.detach().flatten().abs()
        greatest = float(plain.max()) if plain.numel() and other.is_floating_point() else 1.0
        atol = ATOL * max(greatest if greatest < float("inf") else 1.0, 1.0)
        tolerance = {"rtol": RTOL, "atol": atol} if other.is_floating_point() or other.is_complex() else {}

        def told(text: str) -> str:
            return f"{what}: {text}"

        torch.testing.assert_close(one, other, equal_nan=True, check_stride=False, msg=told, **tolerance)


def step(
    call: Callable[..., Any], module: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any], gradients: bool
) -> tuple[Any, Any, Any]:
    """Call a module, or a function that calls it; return its results, its buffers, and the gradients of what needs
    one."""
    torch.manual_seed(0)
    results = call(*args, **kwargs)
    given: list[torch.Tensor] = []
    if gradients:
        tensors = [
            leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        torch.manual_seed(1)
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        needed = [leaf for leaf in (*inputs, *module.parameters()) if leaf.requires_grad]
        if tensors and needed:
            ones = [torch.randn_like(tensor) for tensor in tensors]
            given = list(torch.autograd.grad(tensors, needed, ones, allow_unused=True, materialize_grads=True))
    return results, [buffer.clone() for buffer in module.buffers()], given


def judge_input(info: Any, given: Any, training: bool, fallbacks: judging.Fallbacks) -> None:
    """Compare a module with PyTorch for one input.

    Raises:
        NotTracedError: the graphs that PyTorch makes do not agree with it (backend ``aot_eager``).
        OutOfScopeError, SplitError, FellBackError, AssertionError, TilewrightError: as said.
    """
    torch.manual_seed(0)
    made = info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)
    module = made.to(torch.float32).train(training)  # buffers among the arguments may have another type
    if info.is_lazy:
        with torch.no_grad():
            module(*given.forward_input.args, **given.forward_input.kwargs)
    inputs = given.forward_input.args, given.forward_input.kwargs
    other, (args, kwargs) = copy.deepcopy(module), _copied(inputs)
    try:
        expected = step(module, module, *inputs, gradients=True)
    except Exception as error:
        raise judging.OutOfScopeError(f"{type(error).__name__}: {error}") from error
    twin, copied = copy.deepcopy(other), _copied((args, kwargs))
    found, split = _compiled_step(other, args, kwargs, "tilewright")
    try:
        _compare_steps(found, expected)
    except AssertionError:
        try:
            _compare_steps(_compiled_step(twin, *copied, "aot_eager")[0], expected)
        except AssertionError as error:
            raise judging.NotTracedError(f"aot_eager fails, too: {error}"[:200]) from None
        raise
    fallbacks.check()
    if split:
        raise judging.SplitError(split)


def _compare_steps(found: Any, expected: Any) -> None:
    for one, wanted, what in zip(found, expected, ("results", "buffers", "gradients"), strict=True):
        compare(one, wanted, what)


def _compiled_step(module: torch.nn.Module, args: Any, kwargs: Any, backend: str) -> tuple[Any, str]:
    """Do a step with a compiled module, as one graph if PyTorch makes one; return what it returns, and why PyTorch
    splits the graph, if it does."""
    torch._dynamo.reset()
    kept = copy.deepcopy(module.state_dict())
    try:
        whole = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
        return step(whole, module, args, kwargs, gradients=True), ""
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:
        module.load_state_dict(kept)
        parts = torch.compile(module, backend=backend, dynamic=False)
        return step(parts, module, args, kwargs, gradients=True), str(error).splitlines()[0]


def _copied(values: Any) -> Any:
    """Copy the tensors in nested values: a tensor that is there twice stays one."""
    copies: dict[int, torch.Tensor] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return copies.setdefault(id(tensor), tensor.detach().clone().requires_grad_(tensor.requires_grad))

    return pytree.tree_map_only(torch.Tensor, copied, values)


def cases(info: Any, most: int | None, fallbacks: judging.Fallbacks) -> judging.Cases:
    """Yield the cases of a module: its first inputs in training and in evaluation, in turn."""
    torch.manual_seed(0)

    def inputs(training: bool) -> Iterator[Any]:
        found = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        return ((given, training) for given in found)

    pairs = itertools.zip_longest(inputs(True), inputs(False))
    for given, training in itertools.islice(filter(None, itertools.chain.from_iterable(pairs)), most):
        yield functools.partial(judge_input, info, given, training, fallbacks)


def main() -> None:
    """Judge the modules and print the summary."""
    parser = judging.arguments(__doc__)
    parser.add_argument("--samples", type=int, help="judge so many inputs of each module at most")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch._logging.set_logs(dynamo=logging.ERROR)
    torch._dynamo.config.allow_rnn = True  # otherwise PyTorch runs recurrent networks itself
    fallbacks = judging.Fallbacks()
    subjects = {info.name: functools.partial(cases, info, options.samples, fallbacks) for info in module_db}
    judging.run(options, subjects)


if __name__ == "__main__":
    sys.exit(main())
