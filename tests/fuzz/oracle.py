"""Compute the results of a model in double precision, and how far rounding may take those of a correct program.

The tolerance is derived from the model, by stochastic arithmetic (Parker 1997, Monte Carlo Arithmetic; Vignes 1993,
CESTAC). A correct program computes each operator's result with a relative error of a few units of its type: it is the
exact result for arguments, and of a result, that are changed by so little. So the graph is evaluated in float64 a few
times, with such errors drawn at random:

- each float that an operator computes is multiplied by ``1 + c u t`` and shifted by ``c s t``, where ``t`` is drawn
  from [-1, 1], ``u`` is half the distance from 1 to the next number of the result's type (what one rounding may add),
  ``s`` the least number of the type, and ``c`` is :data:`OPERATOR_ERROR`, or 1 for half types, whose operators compute
  in float32 and round once. Operators that only move elements, or whose result is one of their arguments, add none;
  sums, products, quotients and the like, which IEEE 754 rounds correctly, add none where the exact result is a number
  of the type.
- the arguments of sums of ``n`` terms, and of all operators whose formula is not known to be elementwise or that are
  composed of others, are multiplied by ``1 + c v sqrt(n) t``, where ``v`` is ``u`` of the type in which they compute
  (float32 for half types). For terms of similar size that gives errors of ``c v sum |term|``, the bound of a sum in any
  order (Higham 2002, Accuracy and Stability of Numerical Algorithms, section 4.2) but for its factor, which grows with
  the root of ``n`` (Higham and Mary 2019).
- at level 3, where Winograd's convolutions and approximations come in, contractions have an error in units of their
  greatest element (the bound of Winograd's forms is by norm, not by element: Higham 2002, section 23.2.2), ``c`` is
  four times as large, and quotients have errors even where they are exact, unless the divisor is a power of two:
  those by constants are products with reciprocals, which are rounded. The level's rules, such as ``x - x -> 0``, are
  wrong for infinity and NaN: where a model computes such a number, only shapes and types are compared. So it is, at
  every level, where sums of squares of an operator's arguments may be greater than their type holds: the order of the
  operations decides then. (At level 3 the same is said of products of elements.)

The greatest distance of the samples from the unperturbed result, times :data:`SAFETY`, and one rounding of the result
are the tolerance: the condition of the whole graph at these inputs is in it. Where the samples, the float64 result, and
that in the model's own types differ in which elements are finite, in an integer, or in a bool, the element depends on
the rounding, and nothing is known of it; :class:`Verdict` counts those, as a check of nothing proves nothing. A result
that leaves the tolerance is examined again with many samples before it counts as wrong.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.values import Array
from tilewright import graphir as gi
from tilewright.graphir.interpreter import evaluate, reference_of
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.ops.common import compute_type, is_half
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import TilewrightError

#: Units that an operator may be off; ``exp`` and the like have a few.
OPERATOR_ERROR = 6.0

#: Random errors add up to less than the greatest possible ones.
SAFETY = 4.0

#: Samples at first, and for a result that looks wrong.
FEW, MANY = 3, 40

#: Operators whose result is exact if it is a number of the type.
ROUNDED_ONCE = {"add", "subtract", "multiply", "divide", "square", "sqrt", "cast", "reciprocal", "trunc_mod"}

#: Operators whose results are elements of their arguments, or whole numbers.
EXACT = {
    "abs", "negative", "maximum", "minimum", "floor", "ceil", "round", "trunc", "sign", "where", "clip", "copy", "max",
    "min", "nn.relu", "nn.max_pool", "nn.max_pool2d", "nn.global_max_pool2d", "zeros", "ones", "zeros_like",
    "ones_like",
    "full", "eye", "top_k", "cummax", "cummin", "searchsorted", "bitcast", "argmax", "argmin", "decode", "encode",
    "nn.max_unpool",
    "nn.max_pool_indices", "nn.dropout", "broadcast_to", "arange",
}  # fmt: skip


#: Operators whose errors are in units of the greatest element at every level: of a Fourier transform, fast or not, the
#: bound is one of the norm (Higham 2002, section 24.1), as its factors are rounded sines.
BY_NORM = {"dft", "stft"}

#: Operators whose errors are in units of their argument: ``0.5 * x * (1 + erf(x / sqrt(2)))`` loses digits where the
#: error function is near -1, here as in PyTorch and ONNX Runtime, and ``alpha * x + beta`` where it is near 0.
BY_ARGUMENT = {"nn.gelu", "nn.hard_sigmoid"}

#: Operators whose errors are in units of 1: a state is ``z`` of the one before and ``1 - z`` of a candidate within
#: [-1, 1] (of an LSTM, some of each), whose digits cancel where ``z`` is near 1, here as in PyTorch and ONNX Runtime.
BY_ONE = {"nn.gru", "nn.lstm"}

#: Products of elements: in another order, which level 3 may take, some may be infinite before a zero comes.
PRODUCTS = {"prod", "cumprod"}

#: Operators whose algorithm decides which results of infinities and NaN are NaN: it multiplies them by zeros, or not,
#: as causal attention does with what comes later.
BY_ORDER = {"det", "nn.conv_transpose", *BY_NORM}


class UndefinedError(Exception):
    """The model computes something that is not defined at these inputs: an integer of a float that does not fit."""


def flatten(found: Any) -> list[Any]:
    """List the arrays of a result."""
    return [part for each in found for part in flatten(each)] if isinstance(found, (tuple, list)) else [found]


def unit(kind: DataType) -> float:
    """Return half the distance from 1 to the next number."""
    limits: Any = ml_dtypes.finfo(kind.numpy)
    return float(limits.eps) / 2


class Perturbed:
    """Computes operators with random errors.

    Attributes:
        rng: draws them; None: computes without.
        level: the opt_level of the program that may have these errors.
        scale: a factor of all errors.
        zeros: whether a zero may become another number.
    """

    def __init__(self, rng: np.random.Generator | None, level: int, scale: float = 1.0, zeros: bool = True) -> None:
        self.rng = rng
        self.zeros = zeros
        self.scale = scale * (4 if level >= 3 else 1)
        self.factor = self.scale * OPERATOR_ERROR
        self.by_norm = level >= 3
        #: Whether an argument was infinite or NaN.
        self.saw_special = False
        #: Whether a sum of products, or what it is computed from, may be greater than its type holds.
        self.may_overflow = False

    def __call__(self, call: gi.Call, args: Sequence[Any], attrs: Any) -> Any:
        op = call.op
        assert isinstance(op, Operator)
        if op.name == "cast":
            _check_cast(args[0], attrs.dtype)
        elif op.name == "norm" and attrs.ord == 2:  # of integers it ends with a conversion
            wide = np.asarray(args[0], np.float64)
            with np.errstate(all="ignore"):
                _check_cast(np.sqrt(np.sum(np.square(wide), axis=attrs.axis)), call.args[0].tensor_type.dtype)
        if self.rng is None:
            self.saw_special = self.saw_special or not all(map(_all_finite, args)) or _may_pass_infinity(call, args)
            self.may_overflow = self.may_overflow or _may_overflow(call, args)
        with np.errstate(all="ignore"):
            if self.rng is None or not any(kind.dtype.is_float for kind in _tensors(call)):
                return reference_of(call, args, attrs)
            if op.name == "bitcast":  # which NaN an operation makes, of either sign, is left to the processor
                args = [np.where(np.isnan(arg), np.negative(arg), arg) for arg in args]
            if op.kind == "injective" or op.name in EXACT:
                return reference_of(call, args, attrs)
            if op.kind not in ("elementwise", "broadcast") or op.compute is None:
                args = self.changed_arguments(call, args)
            found = reference_of(call, args, attrs)
            if isinstance(found, (tuple, list)):
                return tuple(map(self.changed, [op] * len(found), found, _results(call)))
            result = _results(call)[0]
            if op.name in BY_ARGUMENT:
                amount = self.scale * unit(compute_type(result.dtype))
                found = found + amount * args[0] * self.rng.uniform(-1, 1, np.shape(found))
            if self.by_norm and _adds_constant(call) and any(map(_adds_constant, call.args)):
                # The constants are added to each other first, which rounds where ``x + a + b`` may be exact.
                amount = self.scale * unit(result.dtype) * np.maximum(*map(np.abs, args))
                found = found + amount * self.rng.uniform(-1, 1, np.shape(found))
            by_reciprocal = op.name == "divide" and self.by_norm
            return self.changed(op, found, result, exact=not by_reciprocal or np.abs(np.frexp(args[1])[0]) == 0.5)

    def changed_arguments(self, call: gi.Call, args: Sequence[Any]) -> list[Any]:
        assert self.rng is not None
        terms = max(1.0, max((np.asarray(arg).size for arg in args), default=1) / max(1, _size(call, args)))
        made = []
        for arg, node in zip(args, call.args, strict=True):
            kind = node.tensor_type.dtype
            if not kind.is_float:
                made.append(arg)
                continue
            amount = self.factor * unit(compute_type(kind)) * math.sqrt(terms)
            made.append(arg * (1 + amount * self.rng.uniform(-1, 1, np.shape(arg))))
        return made

    def changed(self, op: Operator, found: Any, kind: TensorType, exact: Array | bool = True) -> Any:
        """Return a result with errors; without where it is a number of its type, if its operator is exact there."""
        assert self.rng is not None
        if not kind.dtype.is_float:
            return found
        array = np.asarray(found, np.float64)
        noise = self.rng.uniform(-1, 1, array.shape)
        limits: Any = ml_dtypes.finfo(kind.dtype.numpy)
        factor = self.scale if is_half(kind.dtype) else self.factor
        shift = np.where(array == 0, self.zeros, 1) * float(limits.smallest_subnormal)
        error = factor * noise * (np.abs(array) * unit(kind.dtype) + shift)
        if (op.name in BY_NORM or (self.by_norm and op.kind == "contraction")) and array.size:
            finite = np.abs(array[np.isfinite(array)])
            error = error + self.factor * noise * unit(compute_type(kind.dtype)) * (finite.max() if finite.size else 0)
        if op.name in BY_ONE:
            error = error + self.factor * noise * unit(compute_type(kind.dtype))
        error = np.where(np.isfinite(error), error, 0)
        if op.name in ROUNDED_ONCE:
            error = np.where(exact & (array.astype(kind.dtype.numpy).astype(np.float64) == array), 0, error)
        return array + error


def _all_finite(x: Any) -> bool:
    array = np.asarray(x)
    if array.dtype.kind in "biu" or not as_dtype(array.dtype).is_float:
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.astype(np.float64)).all())


def _may_overflow(call: gi.Call, args: Sequence[Any]) -> bool:
    assert isinstance(call.op, Operator)
    # Parts of composed operators, such as a batch norm, x * scale + shift, may overflow where the result does not.
    composed = call.op.compute is None and call.op.kind != "injective"
    if call.op.name in EXACT or (call.op.kind in ("elementwise", "broadcast", "injective") and not composed):
        return False
    by_order = call.op.name in BY_ORDER or (call.op.name == "nn.attention" and call.attrs.causal)
    if by_order and not all(map(_all_finite, args)):  # which elements become NaN is the algorithm's
        return True
    for arg, node in zip(args, call.args, strict=True):
        kind = node.tensor_type.dtype
        if kind.is_float and np.size(arg):
            wide = np.abs(np.asarray(arg, np.float64))
            wide = wide[np.isfinite(wide)]
            limits: Any = ml_dtypes.finfo(compute_type(kind).numpy)
            if wide.size and float(wide.max()) * math.sqrt(wide.size) > math.sqrt(float(limits.max)):
                return True
    return False


def _may_pass_infinity(call: gi.Call, args: Sequence[Any]) -> bool:
    """Return whether a product of elements may be infinite on the way, in some order of them."""
    assert isinstance(call.op, Operator)
    if call.op.name not in PRODUCTS or not np.size(args[0]) or not call.args[0].tensor_type.dtype.is_float:
        return False
    limits: Any = ml_dtypes.finfo(compute_type(call.args[0].tensor_type.dtype).numpy)
    sizes = np.abs(np.asarray(args[0], np.float64))
    return float(np.log(np.maximum(sizes, 1)).sum()) > math.log(float(limits.max))


def _check_cast(x: Any, dtype: DataType) -> None:
    """Raise :class:`UndefinedError` if a float does not fit an integer type."""
    array = np.asarray(x)
    if dtype.is_integer and as_dtype(array.dtype).is_float:
        wide = np.trunc(array.astype(np.float64))
        limits = np.iinfo(dtype.numpy)
        if not np.all((wide >= limits.min) & (wide < float(limits.max) + (limits.bits == 64 and 0))):
            raise UndefinedError


def _adds_constant(value: gi.Expr) -> bool:
    if not (isinstance(value, gi.Call) and isinstance(value.op, Operator) and value.op.name == "add"):
        return False
    return any(isinstance(arg, gi.Constant) for arg in value.args)


def _tensors(call: gi.Call) -> list[TensorType]:
    return [arg.type for arg in call.args if isinstance(arg.type, TensorType)] + _results(call)


def _results(call: gi.Call) -> list[TensorType]:
    fields = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
    return [field for field in fields if isinstance(field, TensorType)]


def _size(call: gi.Call, args: Sequence[Any]) -> int:
    """Return about the number of elements that share the argument: those of the result, where they are known."""
    sizes = [math.prod(dim for dim in kind.shape if isinstance(dim, int)) for kind in _results(call)]
    assert isinstance(call.op, Operator)
    return max(sizes) if call.op.kind == "reduction" else 1


@dataclasses.dataclass
class Verdict:
    """The comparison of a result.

    Attributes:
        wrong: the difference; empty: none.
        elements: the number of elements compared.
        unknown: those of them that depend on the rounding.
        loose: those whose tolerance is more than a hundredth of the element.
        excess: the greatest error, as a multiple of its tolerance.
    """

    wrong: str = ""
    elements: int = 0
    unknown: int = 0
    loose: int = 0
    excess: float = 0.0


class Oracle:
    """The results that a model may have for given inputs.

    Raises:
        UndefinedError: the model is not defined at these inputs.
        Exception: a reference fails, as for the greatest of no elements.
    """

    def __init__(self, module: IRModule, inputs: Sequence[Any], seed: int = 0) -> None:
        self.module, self.inputs, self.seed = module, inputs, seed
        exact = Perturbed(None, 0)
        with np.errstate(all="ignore"):
            self.own = flatten(evaluate(module, *inputs, compute=exact))
            self.exact = flatten(evaluate(module, *inputs, dtype="float64", compute=exact))
        self.special = exact.saw_special or not all(map(_all_finite, self.own))
        self.overflows = exact.may_overflow
        self.samples: dict[tuple[int, int], list[list[Any]]] = {}

    def drawn(self, level: int, count: int) -> list[list[Any]]:
        """Return samples; of many, a half has errors ten times as large. Where errors change sizes so that the model
        fails, zeros stay zeros, of which most such sizes are the numbers; what fails even so is left out."""
        key = (3 if level >= 3 else 0, count)
        if key not in self.samples:
            made = []
            for number in range(count):
                scale = 10.0 if count == MANY and number % 2 else 1.0
                for zeros in (True, False):
                    rng = np.random.default_rng([self.seed, key[0], count, number])
                    compute = Perturbed(rng, level, scale, zeros)
                    try:
                        with np.errstate(all="ignore"):
                            made.append(flatten(evaluate(self.module, *self.inputs, dtype="float64", compute=compute)))
                        break
                    except UndefinedError:
                        raise
                    except (TilewrightError, IndexError, ValueError):  # a size that depends on floats does not fit
                        continue
            self.samples[key] = made
        return self.samples[key]

    def judge(self, found: Sequence[Any], level: int, slack: float = 0.0) -> Verdict:
        """Compare the results of a program that was compiled at ``level``.

        Args:
            slack: an error that is permitted besides, as a share of the greatest element of the result.
        """
        verdict = self._judge(found, level, FEW, slack)
        return self._judge(found, level, MANY, slack) if verdict.wrong else verdict

    def _judge(self, found: Sequence[Any], level: int, count: int, slack: float) -> Verdict:
        verdict = Verdict()
        samples = self.drawn(level, count)
        if len(found) != len(self.own):
            return Verdict(f"{len(self.own)} results expected, found {len(found)}")
        for number, (array, own, exact) in enumerate(zip(map(np.asarray, found), self.own, self.exact, strict=True)):
            if array.dtype != own.dtype:
                return Verdict(f"result {number}: expected type {own.dtype}, found {array.dtype}")
            others = [sample[number] for sample in samples]
            # The size depends on the rounding, or errors let every sample fail.
            if not others or any(np.shape(other) != own.shape for other in [exact, *others]):
                verdict.elements += array.size
                verdict.unknown += array.size
                continue
            if array.shape != own.shape:
                return Verdict(f"result {number}: expected shape {own.shape}, found {array.shape}")
            if self.overflows or (level >= 3 and self.special):
                verdict.elements += array.size
                verdict.unknown += array.size
            elif array.size:
                self._compare(verdict, number, array, own, exact, others, slack)
            if verdict.wrong:
                break
        return verdict

    @staticmethod
    def _compare(
        verdict: Verdict,
        number: int,
        array: Array,
        own: Array,
        exact: Array,
        others: list[Array],
        slack: float,
    ) -> None:
        kind = as_dtype(array.dtype)
        verdict.elements += array.size
        if not kind.is_float:
            if kind.kind == "storage":
                array, own, exact = array.view(np.uint8), own.view(np.uint8), np.asarray(exact).view(np.uint8)
                others = [np.asarray(other).view(np.uint8) for other in others]
            known = np.asarray(own == exact)
            for other in others:
                known &= other == own
            wrong = known & (array != own)
            allowed = np.zeros(array.shape)
            error = np.where(wrong, np.inf, 0.0)
        else:
            with np.errstate(all="ignore"):
                wide, mine, exact = array.astype(np.float64), own.astype(np.float64), np.asarray(exact, np.float64)
                rounded = exact.astype(kind.numpy).astype(np.float64)
                allowed = np.zeros(exact.shape)
                known = _class(rounded) == _class(mine)
                for other in others:
                    cut = np.asarray(other).astype(kind.numpy).astype(np.float64)
                    known &= _class(cut) == _class(mine)
                    allowed = np.maximum(allowed, np.abs(other - exact))
                limits: Any = ml_dtypes.finfo(kind.numpy)
                # The model in its own types has one rounding for each operator, as a program may.
                allowed = np.maximum(allowed * SAFETY, 2 * np.abs(mine - exact))
                allowed = allowed + 4 * unit(kind) * np.abs(exact) + 4 * float(limits.smallest_subnormal)
                finite = np.isfinite(rounded)
                if slack and finite.any():
                    allowed = allowed + slack * np.abs(exact[finite]).max()
                off = np.abs(wide - exact)
                error = np.where(finite, np.where(np.isfinite(wide), off, np.inf), 0.0)
                error = np.where(~finite & (_class(wide) != _class(rounded)), np.inf, error)
                allowed = np.where(np.isfinite(allowed), allowed, np.inf)
                wrong = known & (error > np.where(finite, allowed, 0.0))
                verdict.loose += int(np.sum(known & finite & (allowed > 0.01 * np.abs(exact)) & (exact != 0)))
                ratio = np.where(known & finite & np.isfinite(error), error / allowed, 0.0)
                verdict.excess = max(verdict.excess, float(ratio.max()))
        verdict.unknown += int(np.sum(~known))
        if wrong.any():
            score = np.where(wrong, np.where(np.isfinite(error), error, np.finfo(np.float64).max), -1.0)
            place = np.unravel_index(int(np.argmax(score)), score.shape)
            at = tuple(map(int, place))
            verdict.wrong = (
                f"result {number}: {int(wrong.sum())} of {array.size} elements are wrong; {at}: expected {exact[place]}"
                f" ({own[place]} in its own types) within {allowed[place]:.3g}, found {array[place]}"
            )


def _class(values: Array) -> Array:
    """Number the kinds of floats: finite, NaN, plus and minus infinity."""
    return np.where(np.isnan(values), 1, np.where(np.isposinf(values), 2, np.where(np.isneginf(values), 3, 0)))
