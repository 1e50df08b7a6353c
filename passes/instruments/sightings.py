"""Find where a name occurs in a module: as a function, a variable, an operator of the graph or its location."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Loop, Var
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.origins import Origin, call_origins, operator_origins
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.walk import children_outside_groups, is_primitive
from tilewright.tensorir.keys import CALLS, PARAMETERS
from tilewright.tensorir.stmt import PrimFunc

#: Checks whether a name, or the label of a span, is the symbol that is searched for.
Match = Callable[[str], bool]


@dataclass(frozen=True)
class Sighting:
    """One occurrence of the symbol.

    Attributes:
        what: the operator, variable or function.
        where: its location as a phrase, such as ``"in @main"``.
        type: the type of the value as text; empty if there is none.
    """

    what: str
    where: str
    type: str = ""


def label_matches(symbol: str) -> Match:
    """Return a function that matches ``symbol``, or a label that quotes it as imported models do (``Conv 'conv1'``)."""
    quoted = f"'{symbol}'"
    return lambda label: label == symbol or quoted in label


def sightings(mod: IRModule, match: Match) -> Counter[Sighting]:
    """Count the occurrences in ``mod``."""
    found: Counter[Sighting] = Counter()
    for key, function in mod.functions.items():
        if match(key.name):
            kind = "a graph function" if isinstance(function, Function) else "a loop nest"
            found[Sighting(kind, f"in the module, @{key.name}")] += 1
        found.update(_in_function(key.name, function, match))
    return found


def names_in(mod: IRModule) -> set[str]:
    """Return the names that occur in ``mod``."""
    found = {key.name for key in mod.functions}
    for function in mod.functions.values():
        if isinstance(function, Function):
            for node in post_order(function):
                found.update([node.name] if isinstance(node, Var) else [node.span] if node.span else [])
    return found


def kernels_of(mod: IRModule, match: Match) -> set[str]:
    """Return the kernels that match, or compute an operator that matches."""
    found = {key.name for key, function in mod.functions.items() if match(key.name) and isinstance(function, PrimFunc)}
    for function in mod.functions.values():
        for node in post_order(function) if isinstance(function, Function) else ():
            if isinstance(node, Call) and isinstance(node.op, GlobalVar) and _matching(call_origins(node), match):
                found.add(node.op.name)
    return found


def _in_function(name: str, function: AnyFunction, match: Match) -> Iterator[Sighting]:
    where = f"in @{name}"
    if isinstance(function, PrimFunc):
        yield from (
            Sighting(f"parameter {param}", where) for param in function.attrs.get(PARAMETERS, ()) if match(param)
        )
        for number, (kernel, labels) in enumerate(function.attrs.get(CALLS, ())):
            if any(label is not None and match(label) for label in labels):
                yield Sighting(f"call {number} (@{kernel})", where)
        return
    for param in function.params:
        if match(param.name):
            yield Sighting(f"parameter %{param.name}", where, str(param.type))
    for node in post_order(function.body, children_of=children_outside_groups):
        if node not in function.params:
            yield from _of_node(node, where, match)


def _of_node(node: Expr, where: str, match: Match) -> Iterator[Sighting]:
    named = node.span is not None and match(node.span)
    if isinstance(node, Var):
        if match(node.name):
            yield Sighting(f"variable %{node.name}", where, str(node.type))
    elif isinstance(node, Constant):
        if named:
            yield Sighting("a constant", where, str(node.type))
    elif isinstance(node, Call):
        if isinstance(node.op, Operator):
            if named:
                yield Sighting(node.op.name, where, str(node.type))
        elif is_primitive(node.op):
            assert isinstance(node.op, Function)
            yield from _computed(operator_origins(node.op.body), match, f"in a fused group {where}")
        elif isinstance(node.op, GlobalVar) and call_origins(node):
            yield from _computed(call_origins(node), match, f"in kernel @{node.op.name}, called {where}")
        elif named:
            yield Sighting("a call", where, str(node.type))
    elif named and isinstance(node, (If, Loop)):
        yield Sighting(f"a {type(node).__name__}", where)


def _computed(origins: Iterable[Origin], match: Match, where: str) -> Iterator[Sighting]:
    origins = tuple(origins)
    for origin in _matching(origins, match):
        others = [str(other) for other in origins if other not in _matching(origins, match)]
        yield Sighting(origin.operator, where + (f", with {', '.join(others)}" if others else ""))


def _matching(origins: Iterable[Origin], match: Match) -> list[Origin]:
    return [origin for origin in origins if origin.label is not None and match(origin.label)]


def describe(found: Counter[Sighting]) -> str:
    """Return the occurrences as one phrase."""
    places: dict[str, Counter[tuple[str, str]]] = {}
    for sighting, count in found.items():
        places.setdefault(sighting.where, Counter())[sighting.what, sighting.type] += count
    parts = []
    for where, kinds in places.items():
        if len(kinds) == 1 and kinds.total() == 1:
            ((what, type),) = kinds
            names = f"{what} : {type}" if type else what
        else:
            counts: Counter[str] = Counter()
            for (what, _), count in kinds.items():
                counts[what] += count
            names = ", ".join(what if count == 1 else f"{count} x {what}" for what, count in counts.items())
        parts.append(f"{names} {where}")
    return "; ".join(parts)
