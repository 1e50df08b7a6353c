"""The table of all operators, as Markdown: ``python -m tilewright.graphir.operator_table > docs/operators.md``."""

from __future__ import annotations

import dataclasses

from tilewright.graphir.op import Operator, get_operator, list_operators
from tilewright.graphir.ops.common import ANY, FLOATS, INTEGERS, NUMBERS

_GROUPS = {ANY: "any", NUMBERS: "numbers", FLOATS: "floats", INTEGERS: "integers"}

_HEAD = """# Operators

Every operator of the graph-level IR. Written by `python -m tilewright.graphir.operator_table`; not edited by hand.

*Fusion* is how an operator takes part in fusion (see `FUSION_KINDS` in `graphir/op.py`). *Lowering*: `loops` are a
definition at loop level of its own, `decomposed` is one in other operators. *Types* are the element types of the
arguments, where the operator states them in one place. `help(tilewright.graphir.get_operator("name"))` says more.

| operator | arguments | attributes | types | fusion | lowering |
|---|---|---|---|---|---|
"""


def operator_table() -> str:
    """The table, one row for each operator, sorted by name."""
    return _HEAD + "".join(_row(get_operator(name)) for name in sorted(list_operators()))


def _row(op: Operator) -> str:
    attributes = ", ".join(f"`{field.name}`" for field in dataclasses.fields(op.Attrs))
    arguments = ", ".join(f"`{argument}`" for argument in op.arguments)
    lowering = "decomposed" if op.decompose is not None else "loops"
    cells = (f"`{op.name}`", arguments, attributes, _types(op), op.kind, lowering)
    return f"| {' | '.join(cells)} |\n"


def _types(op: Operator) -> str:
    stated = getattr(op, "dtypes", None)
    return "" if stated is None else _GROUPS.get(tuple(stated), ", ".join(stated))


if __name__ == "__main__":
    print(operator_table(), end="")
