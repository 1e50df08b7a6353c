"""Traits: what passes ask of an operator. Each has a default, with which the operator takes no part.

Passes ask for traits rather than for names, so that an operator of a user's takes part by stating them;
docs/extending.md lists which pass reads which. ``tests/graphir/test_traits.py`` checks the algebraic ones of every
operator that states any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np

    from tilewright.graphir.dims import Dim
    from tilewright.graphir.expr import Expr
    from tilewright.graphir.meaning import Meaning
    from tilewright.graphir.ops.narrow import SumOfProducts
    from tilewright.graphir.types import TensorType
    from tilewright.tensorir.dtype import DataType
    from tilewright.tensorir.expr import Var


@dataclasses.dataclass(frozen=True)
class LayoutChoice:
    """The layouts that an operator asks for.

    Attributes:
        plain: the layouts that it has now, one for each argument and, last, that of the result.
        blocked: those that it asks for, in the same order.
        attrs: its attributes then.
        op: the name of the operator that takes its place; None: none, it stays.
        once: the arguments whose layout is to be changed once, not by every call: the choice holds only where they are
            constants, or stay the same in the loop that the call is in.
    """

    plain: tuple[str, ...]
    blocked: tuple[str, ...]
    attrs: Any
    op: str | None = None
    once: tuple[int, ...] = ()


class Traits:
    """The traits, by the passes that ask for them."""

    # What a call computes, in terms that several passes know.

    def meaning(self, args: Sequence[Expr], attrs: Any) -> Meaning | None:
        """The form of :mod:`graphir.meaning` that the result has; None: none of them.

        ``FuseAttention`` finds attention in these forms, ``FoldScaleAxis`` the factors and addends that it moves,
        ``NarrowProducts`` the zero points of quantized numbers.
        """
        return None

    #: Whether the result has the elements of its one argument in row-major order, under another shape.
    keeps_order: ClassVar[bool] = False

    # Algebra on the operator itself, exact to the last bit (SimplifyExpr).

    #: Whether ``op(op(x))`` is ``x``, with equal attributes.
    involution: ClassVar[bool] = False
    #: Whether ``op(op(x))`` is ``op(x)``, with equal attributes; of an operator on two arguments, whether ``op(x, x)``
    #: is ``x``.
    idempotent: ClassVar[bool] = False
    #: Whether ``op(-x)`` is ``op(x)``, but for unsigned integers, whose negatives wrap.
    even: ClassVar[bool] = False
    #: Whether ``op(op(x, a), b)`` is ``op(x, op(a, b))``, for floats but for the rounding.
    associative: ClassVar[bool] = False

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        """The number that, as ``argument`` (0 or 1) of element type ``dtype``, leaves the other argument as it is.

        The sign of a zero counts: ``x + -0.0`` is ``x``, ``-0.0 + 0.0`` is not ``-0.0``.
        """
        return None

    def is_identity(self, args: Sequence[Expr], attrs: Any) -> bool:
        """Whether a call with one argument returns it unchanged, provided that the result has the argument's type."""
        return self.keeps_order

    # Integers that are known when a model is built (graphir/known_values.py).

    #: Whether ``reference`` only moves elements, so that it works on arrays of objects as well.
    moves_elements: ClassVar[bool] = False

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any, out: TensorType) -> Any:
        """The result where elements of ``args`` are integer expressions over symbolic dimensions (arrays of objects).

        Needed of operators with which models compute shapes; those that state ``keeps_order`` or ``moves_elements``
        are followed without it.

        Returns:
            an array of integers and expressions, of bools for comparisons that are decided, or None: not known.
        """
        return None

    def bound_size(self, args: Sequence[Expr], attrs: Any) -> tuple[Var, Expr] | None:
        """The symbolic dimension that gets its size here, and the number that it gets while a model runs.

        Such an operator gives its first argument, in which the dimension is known from then on: models are cut into
        segments at it (``passes/lower/segments.py``).
        """
        return None

    def claimed_shape(self, attrs: Any) -> Sequence[Dim] | None:
        """The sizes that the first argument is said to have although that cannot be proved: a model that is compiled
        checks them when it is called."""
        return None

    # Sums of products.

    #: Whether ``op(x * s) == op(x) * s`` for factors ``s`` along the channels of the first argument: for ``"any"``
    #: factor, for ``"positive"`` ones, or None: not known (FoldScaleAxis).
    commutes_with_scale: ClassVar[str | None] = None

    def channel_axis(self, argument: int, attrs: Any) -> int | None:
        """Where the channels are that weights belong to: of the result (``argument`` -1), or of argument 0."""
        return None

    def scale_weights(self, args: Sequence[Expr], attrs: Any, scale: Expr, of_result: bool) -> list[Expr] | None:
        """Arguments with which the result is multiplied by ``scale``, or is the one for argument 0 multiplied by it
        (FoldScaleAxis).

        Args:
            scale: a vector, one factor for each channel of the result (``of_result``) or of argument 0.

        Returns:
            the new arguments, None if weights cannot take the factors up.
        """
        return None

    def sum_of_products(self, args: Sequence[Expr], attrs: Any) -> SumOfProducts | None:
        """The sums of products of two arguments that the operator computes, where it can compute them in another type
        too: ``NarrowProducts`` takes factors as they are stored."""
        return None

    # Forms.

    def simplify_inference(self, args: Sequence[Expr], attrs: Any) -> Expr | None:
        """The call in simpler operators, for a model that is only run, never trained; None: it stays
        (SimplifyInference)."""
        return None

    # Memory: layouts and places.

    #: Whether neighbouring elements of the result are far apart in the argument: transposes, other layouts (FuseOps).
    reorders: ClassVar[bool] = False
    #: Whether vectors should find what they read side by side in memory: several tensors come together, or an element
    #: is read for several results (FuseOps).
    contiguous_reads: ClassVar[bool] = False

    def prefer_layout(self, args: Sequence[Expr], attrs: Any, lanes: int) -> LayoutChoice | str:
        """The layouts in which the operator runs fastest with vectors of ``lanes`` elements (AlterOpLayout).

        Returns:
            the choice; or, where the operator stays as it is, the reason in words (empty: it has no layouts at all).
        """
        return ""

    def in_layout(
        self, args: Sequence[Expr], blocked: Sequence[Expr | None], attrs: Any, plain: str, target: str
    ) -> Expr | None:
        """A call whose result is that of ``op(*args)`` in layout ``target``, for an operator that takes a layout over
        (AlterOpLayout).

        Args:
            args: the arguments in layout ``plain``.
            blocked: for each argument, the same value in layout ``target`` where it is at hand (for one at least).

        Returns:
            the call (further operators may be around it), or None if the operator needs the plain layout.
        """
        return None

    def places(self, args: Sequence[TensorType], attrs: Any) -> Sequence[tuple[Dim, ...]] | None:
        """Where each argument begins in the result, for an operator that only puts its arguments there (PlaceParts).

        They fill the result, or there is one of them and what is around it does not depend on it. None: any other
        operator.
        """
        return None

    def padded_outside(self, args: Sequence[Expr], attrs: Any) -> Expr | None:
        """The same result by a call whose first argument has its border already, as the result of another operator
        (PlaceParts); None for an operator that puts no border around it."""
        return None

    def reads_rows(self, args: Sequence[TensorType], attrs: Any) -> Sequence[int]:
        """The arguments of which several rows (their last dimension) are walked along at the same time, like the left
        factor of a matrix product (PadRows)."""
        return ()
