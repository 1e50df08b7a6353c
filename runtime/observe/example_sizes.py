"""Choose sizes for symbolic dimensions that a model accepts, to try it on inputs that are made up.

A model may accept few sizes: a network that halves an image five times and doubles it again takes multiples of 32. Its
graph states what it takes for equal (:class:`~tilewright.runtime.steps.Claim`), and no tensor may have a negative size.
The search assigns sizes to one dimension after the other, and goes back where a condition fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tilewright.graphir.dims import Dim, symbols_of
from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import call_nodes
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.conditions import Condition, words_for
from tilewright.runtime.model_interface import claims_of
from tilewright.runtime.signature import Signature
from tilewright.runtime.steps import Claim
from tilewright.tensorir.errors import ArtifactError, CodegenError, InputError
from tilewright.tensorir.expr import Var

#: Sizes that are tried first for a dimension that counts examples, and for all others; then all up to ``MOST``.
_BATCHES, _LENGTHS = (1, 2, 4), (64, 32, 128, 224, 256, 16, 1, 48, 96, 192, 320, 384, 416, 480, 512, 640, 768, 1024)
_MOST = 1024
#: The greatest number of assignments that are tried.
_PATIENCE = 200_000


def conditions_of(module: IRModule, symbols: Sequence[Var]) -> list[Condition]:
    """List the conditions that the graph of a model states for the sizes of its inputs."""
    known = set(symbols)
    conditions = [Condition(*claim) for claim in _on(claims_of(module), known)]
    dims: dict[str, Dim] = {}
    for function in module.functions.values():
        if isinstance(function, Function):
            for call in call_nodes(function):
                dims.update((str(dim), dim) for dim in _dims(call.type) if not isinstance(dim, (int, Var)))
    for dim in dims.values():
        if known.issuperset(symbols_of([dim])):
            try:
                conditions.append(Condition(dim))
            except CodegenError:  # a size that is no formula of integers
                continue
    return conditions


def conditions_of_model(built: BuiltModel) -> list[Condition]:
    """List the conditions of a compiled model: those of its graph; without it, as in an artifact, its claims."""
    try:
        return conditions_of(built.module, built.signature.symbols)
    except ArtifactError:
        claims = [claim for segment in built.segments for claim in segment.claims]
        return [Condition(*claim) for claim in _on(claims, set(built.signature.symbols))]


def find_sizes(signature: Signature, conditions: Sequence[Condition], given: Mapping[Var, int]) -> dict[Var, int]:
    """Return sizes of all symbolic dimensions that fulfil the conditions, as far as the search goes: 1 for the first
    axis of inputs, 64 for others, or the next size that suits.

    Args:
        given: the sizes that are known.

    Raises:
        InputError: the given sizes do not fulfil a condition, or the search finds none; the message has the conditions.
    """
    for condition in conditions:
        if given.keys() >= set(condition.symbols) and not condition.holds(given):
            refused = ", ".join(f"{symbol.name}={given[symbol]}" for symbol in condition.symbols)
            where = f" ({condition.where})" if condition.where else ""
            words = words_for(condition, conditions, given)
            raise InputError(f"the model does not accept {refused}: {words}{where}")
    unknown = [symbol for symbol in signature.symbols if symbol not in given]
    ready: list[list[Condition]] = [[] for _ in unknown]
    for condition in conditions:
        last = max((unknown.index(symbol) for symbol in condition.symbols if symbol in unknown), default=None)
        if last is not None:
            ready[last].append(condition)
    sizes = dict(given)
    choices = [_candidates(signature, symbol) for symbol in unknown]
    if not _assign(unknown, choices, ready, sizes, [_PATIENCE]):
        said = "; ".join(dict.fromkeys(str(condition) for each in ready for condition in each))
        raise InputError(f"no sizes of {', '.join(s.name for s in unknown)} were found that the model accepts: {said}")
    return sizes


def _assign(
    unknown: Sequence[Var],
    choices: Sequence[Callable[[], Iterator[int]]],
    ready: Sequence[Sequence[Condition]],
    sizes: dict[Var, int],
    patience: list[int],
) -> bool:
    """Assign sizes to the first of ``unknown`` and those after it; return whether that succeeded."""
    if not unknown:
        return True
    for size in choices[0]():
        patience[0] -= 1
        if patience[0] < 0:
            break
        sizes[unknown[0]] = size
        if all(condition.holds(sizes) for condition in ready[0]) and _assign(
            unknown[1:], choices[1:], ready[1:], sizes, patience
        ):
            return True
    sizes.pop(unknown[0], None)
    return False


def _candidates(signature: Signature, symbol: Var) -> Callable[[], Iterator[int]]:
    """Return what makes the sizes to try, in order. A dimension that is only the first of inputs with more counts
    examples."""
    places = [
        (axis, argument.type.ndim)
        for argument in signature.inputs
        for axis, dim in enumerate(argument.type.shape)
        if dim is symbol
    ]
    is_batch = all(axis == 0 for axis, _ in places) and any(ndim > 1 for _, ndim in places)
    first = _BATCHES if is_batch else _LENGTHS

    def sizes() -> Iterator[int]:
        yield from first
        yield from (size for size in range(1, _MOST + 1) if size not in first)

    return sizes


def _on(claims: Sequence[Claim], symbols: set[Var]) -> list[Claim]:
    """Return the claims about these symbols alone; the sizes that others are about are known in a call only."""
    return [claim for claim in claims if symbols.issuperset(symbols_of([claim.found, claim.expected]))]


def _dims(found: Type | None) -> Iterator[Dim]:
    if isinstance(found, TensorType):
        yield from found.shape
    elif isinstance(found, TupleType):
        for field in found.fields:
            yield from _dims(field)
