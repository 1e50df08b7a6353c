"""Name the strides of buffers of unknown sizes: each is computed once, at the top of the function.

A stride is the product of the inner extents. Multiplied out in an index, a product of three sums of sizes becomes seven
products, which every access would compute again. With names, an index is a sum with one product for each dimension,
for any number of sizes, and equal strides of several buffers share a name::

    T[i, j, k] = 0.0                                let stride: int64 = m + 2
                                       ->           let stride_1: int64 = n * stride
                                                    T[i * stride_1 + j * stride + k] = 0.0

A constant factor is part of the name, so that it needs no product of its own in each index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.arith.linear import Linear, constant
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import BinaryOp, Buffer, Expr, IntImm, Var
from tilewright.tensorir.functor import INTEGER_DIVISIONS, leaves, substitute, walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import LetStmt, Stmt

#: Operators that cannot trap for any values of the parameters: at the top of a function, the conditions that guard the
#: use of a size do not hold yet. Divisions are safe, too, if they are by positive constants.
_SAFE = frozenset({"add", "sub", "mul", "min", "max"})


class Stride(NamedTuple):
    """The distance, in elements, of two neighbours in a dimension.

    Attributes:
        form: the stride as a factor in an index.
        whole: the same in terms of sizes only; None if it has no value at the top of the function.
        name: the name, if ``form`` is one.
    """

    form: Linear
    whole: Linear | None
    name: Var | None = None


_ONE = Stride(constant(1), constant(1))


class StrideNames:
    """Give names to strides.

    Args:
        sizes: the parameters of the function.
        algebra: computes linear forms of expressions; it learns that names are not negative.
    """

    def __init__(self, sizes: Iterable[Var], algebra: Analyzer) -> None:
        self._sizes = frozenset(sizes)
        self._algebra = algebra
        #: Names by the linear form of their values.
        self._names: dict[object, Var] = {}
        #: Their values, in terms of sizes and of earlier names.
        self._values: dict[Var, Expr] = {}
        self._used: set[Var] = set()

    def of(self, buffer: Buffer) -> list[Stride]:
        """Return the strides of all dimensions of a buffer."""
        if buffer.strides:
            forms = [(each, self._algebra.linear(each)) for each in buffer.strides]
            return [self._named(form, form if self._is_size(each) else None) for each, form in forms]
        found: list[Stride] = []
        step = _ONE
        for position in range(buffer.ndim - 1, -1, -1):
            found.append(step)
            if position > 0:
                step = self._times(buffer.shape[position], step)
        return found[::-1]

    def use(self, stride: Stride) -> Linear:
        """Return a stride as a factor in an index, and mark its name as used."""
        if stride.name is not None:
            self._used.add(stride.name)
        return stride.form

    def around(self, body: Stmt) -> Stmt:
        """Wrap ``body`` in the definitions of the names that are used in it."""
        for name, value in reversed(self._values.items()):
            if name in self._used:
                self._used.update([leaf for leaf in leaves(value) if isinstance(leaf, Var)])
                body = LetStmt(name, value, body)
        return body

    def _times(self, extent: Expr, step: Stride) -> Stride:
        if type(extent) is IntImm and not step.form.terms:  # both are numbers
            number = constant(extent.value * step.form.const)
            return Stride(number, None if step.whole is None else number)
        algebra = self._algebra
        size = algebra.linear(extent)
        form = algebra.multiply(size, step.form)
        if step.whole is None or not self._is_size(extent):
            return Stride(form, None)
        return self._named(form, form if step.name is None else algebra.multiply(size, step.whole))

    def _named(self, form: Linear, whole: Linear | None) -> Stride:
        """Build the stride of ``form`` and ``whole``, with a name if that is shorter."""
        if whole is None or _is_short(whole):
            return Stride(form, whole)
        name = self._names.get(whole.key)
        if name is None:
            name = self._names[whole.key] = Var("stride", INT64)
            self._values[name] = self._algebra.expr(form)
            self._algebra.bind_nonnegative(name)
        return Stride(self._algebra.linear(name), whole, name)

    def _is_size(self, expr: Expr) -> bool:
        """Return whether ``expr`` can be computed at the top of the function for all values of the sizes."""
        if isinstance(expr, (Var, IntImm)):
            return isinstance(expr, IntImm) or expr in self._sizes
        return leaves(expr) <= self._sizes and all(_is_safe(node) for node in walk(expr))


class NamedSizes:
    """The sizes of a function, and the lets that name expressions of them, for visitors that meet such lets top-down.

    Attributes:
        sizes: parameters and names: numbers that are invariant in all loops.
        values: the values of the names, in terms of parameters.
    """

    def __init__(self, sizes: Iterable[Var]) -> None:
        self.sizes: set[Node] = set(sizes)
        self.values: dict[Var, Expr] = {}

    def learn(self, let: LetStmt) -> bool:
        """Record ``let`` if it names a size, and return whether it does."""
        if let.var.dtype is not INT64 or not leaves(let.value) <= self.sizes:
            return False
        self.sizes.add(let.var)
        self.values[let.var] = substitute(let.value, self.values)
        return True

    def expand(self, expr: Expr) -> Expr:
        """Replace names in ``expr`` by their values."""
        return substitute(expr, self.values)


def _is_short(form: Linear) -> bool:
    """Return whether ``form`` is a number, or a multiple of one size."""
    if len(form.terms) != 1 or form.const:
        return form.is_const
    (term,) = form.terms
    return isinstance(term, Var)


def _is_safe(node: object) -> bool:
    if not isinstance(node, BinaryOp):
        return isinstance(node, (Var, IntImm))
    if node.dtype is not INT64:
        return False
    return node.op in _SAFE or (node.op in INTEGER_DIVISIONS and isinstance(node.b, IntImm) and node.b.value > 0)
