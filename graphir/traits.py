"""Define the traits of operators that passes use. Each has a default, with which the operator takes no part.

Passes use traits rather than names, so that users' operators take part by stating them; docs/extending/operators.md
lists the traits with the passes that read them. ``tests/graphir/test_traits.py`` checks the algebraic ones of every
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
    """The layouts that an operator prefers.

    Attributes:
        plain: its present layouts, one for each argument and, last, that of the result.
        blocked: the preferred ones, in the same order.
        attrs: its attributes with these.
        op: the name of the operator that replaces it; None: it stays.
        once: the arguments whose layout is to be changed once, not in every call: the choice holds only if they are
            constants, or invariant in the loop that contains the call.
    """

    plain: tuple[str, ...]
    blocked: tuple[str, ...]
    attrs: Any
    op: str | None = None
    once: tuple[int, ...] = ()


class Traits:
    """The traits, by the passes that use them."""

    # The meaning of a call, in terms that several passes know.

    def meaning(self, args: Sequence[Expr], attrs: Any) -> Meaning | None:
        """Return the form of :mod:`graphir.meaning` that the result has; None: none of them.

        ``FuseAttention`` finds attention in these forms, ``FoldScaleAxis`` the factors and addends that it moves,
        ``NarrowProducts`` the zero points of quantized numbers.
        """
        return None

    #: Whether the result has the elements of its one argument in row-major order, under another shape.
    keeps_order: ClassVar[bool] = False
    #: Whether each element of the result is one of an argument's, which are moved, repeated or left out whatever their
    #: values; ``reference`` works on arrays of objects as well.
    moves_elements: ClassVar[bool] = False
    #: Whether results depend on how elements are stored, so that a reference needs arguments of the very types.
    reads_bits: ClassVar[bool] = False

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
    #: Whether ``op(a, b)`` is ``op(b, a)``.
    commutative: ClassVar[bool] = False

    def neutral(self, argument: int, dtype: DataType) -> float | None:
        """Return the neutral element: the number that, as ``argument`` (0 or 1) of element type ``dtype``, leaves the
        other argument unchanged.

        The sign of a zero counts: ``x + -0.0`` is ``x``, ``-0.0 + 0.0`` is not ``-0.0``.
        """
        return None

    def is_identity(self, args: Sequence[Expr], attrs: Any) -> bool:
        """Return whether a call with one argument returns it unchanged, provided that the result has the argument's
        type."""
        return self.keeps_order

    def is_reshape(self, args: Sequence[TensorType], attrs: Any) -> bool:
        """Return whether the elements of the result are those of the one argument, in the same order in memory: the
        call only gives them another shape (LowerToTensorIR)."""
        return self.keeps_order

    def uniform_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any) -> Any:
        """Return the element of the result where all of its elements are equal, as those of each argument are; None:
        they may differ (FoldConstant).

        Args:
            args: the element of each argument, as an array without dimensions.
        """
        return args[0] if (self.keeps_order or self.moves_elements) and len(args) == 1 else None

    #: Whether all elements of the result are equal, and depend on the argument's shape and type alone.
    ignores_elements: ClassVar[bool] = False

    # Integers that are known when a model is built (graphir/known_values.py).

    def symbolic_value(self, args: Sequence[np.ndarray[Any, Any]], attrs: Any, out: TensorType) -> Any:
        """Compute the result on integer expressions over symbolic dimensions: ``args`` are arrays of objects.

        Needed of operators with which models compute shapes; those that state ``keeps_order`` or ``moves_elements`` are
        followed without it.

        Returns:
            an array of integers and expressions, of bools for comparisons that are decided, or None: not known.
        """
        return None

    def bound_size(self, args: Sequence[Expr], attrs: Any) -> tuple[Var, Expr] | None:
        """Return the symbolic dimension whose size this call determines, and the number that is its size when a model
        runs.

        Such an operator returns its first argument, in which the dimension is known from then on: models are cut into
        segments at it (``passes/lower/segments.py``).
        """
        return None

    def claimed_sizes(self, args: Sequence[TensorType], attrs: Any) -> Sequence[tuple[str, Dim, Dim]]:
        """List the sizes that a call takes for equal, although that cannot be proved: what is measured, its size, and
        the size that it must have. A compiled model checks them when it is called."""
        return ()

    # Sums of products.

    #: Whether ``op(x * s) == op(x) * s`` for factors ``s`` along the channels of the first argument: for ``"any"``
    #: factor, for ``"positive"`` ones, or None: not known (FoldScaleAxis).
    commutes_with_scale: ClassVar[str | None] = None

    def channel_axis(self, argument: int, attrs: Any) -> int | None:
        """Return the axis of the channels that weights apply to: of the result (``argument`` -1), or of argument 0."""
        return None

    def scale_weights(self, args: Sequence[Expr], attrs: Any, scale: Expr, of_result: bool) -> list[Expr] | None:
        """Return arguments with which the result is multiplied by ``scale``, or is that for argument 0 multiplied by
        ``scale`` (FoldScaleAxis).

        Args:
            scale: a vector, one factor for each channel of the result (``of_result``) or of argument 0.

        Returns:
            the new arguments, None if the weights cannot absorb the factors.
        """
        return None

    def sum_of_products(self, args: Sequence[Expr], attrs: Any) -> SumOfProducts | None:
        """Return the sums of products of two arguments that the operator computes, if it can compute them in another
        type too: ``NarrowProducts`` uses factors in the type that they are stored in."""
        return None

    # Forms.

    def simplify_inference(self, args: Sequence[Expr], attrs: Any) -> Expr | None:
        """Return the call in simpler operators, for a model that is only run, never trained; None: it stays
        (SimplifyInference)."""
        return None

    # Memory: layouts and places.

    #: Whether neighbouring elements of the result are far apart in the argument: transposes, changes of layout
    #: (FuseOps).
    reorders: ClassVar[bool] = False
    #: Whether its inputs should be contiguous in memory for vectors to read: several tensors are combined, or an
    #: element is read for several results (FuseOps).
    contiguous_reads: ClassVar[bool] = False

    def prefer_layout(self, args: Sequence[Expr], attrs: Any, lanes: int) -> LayoutChoice | str:
        """Return the layouts in which the operator runs fastest with vectors of ``lanes`` elements (AlterOpLayout).

        Returns:
            the choice; or, if the operator stays as it is, the reason in words (empty: it has no layouts at all).
        """
        return ""

    def in_layout(
        self, args: Sequence[Expr], blocked: Sequence[Expr | None], attrs: Any, plain: str, target: str
    ) -> Expr | None:
        """Return a call with the result of ``op(*args)`` in layout ``target``, for an operator that adopts the layout
        of its arguments (AlterOpLayout).

        Args:
            args: the arguments in layout ``plain``.
            blocked: for each argument, the same value in layout ``target`` if it is available (for one at least).

        Returns:
            the call (possibly inside further operators), or None if the operator needs the plain layout.
        """
        return None

    def places(self, args: Sequence[TensorType], attrs: Any) -> Sequence[tuple[Dim, ...]] | None:
        """Return the offset of each argument in the result, for an operator that only copies its arguments there
        (PlaceParts).

        The arguments fill the result, or there is one and the elements around it do not depend on it. None: any other
        operator.
        """
        return None

    def padded_outside(self, args: Sequence[Expr], attrs: Any) -> Expr | None:
        """Return the same result as a call whose first argument is padded already by another operator (PlaceParts);
        None for an operator that pads nothing."""
        return None

    def reads_rows(self, args: Sequence[TensorType], attrs: Any) -> Sequence[int]:
        """Return the arguments of which several rows (along the last dimension) are traversed at the same time, like
        the left factor of a matrix product (PadRows)."""
        return ()
