"""State for operators of several inputs which of their sizes agree, so that a call checks what import cannot prove.

A pattern stands for each input: a letter is a size, equal wherever it stands; a number is that size; ``_`` is any size,
``...`` any number of them, ``#`` the number of axes of the first input but for two, and ``a *`` a letter of its own for
each axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.expr import Expr
from tilewright.graphir.op import get_operator
from tilewright.graphir.types import TensorType

_NORMALIZED = ("n c ...", "c", "c")
_RECURRENT = ("s b i", "d g i", "d g h", "d _", "b", "d b h", "d b h", "d _")
_SCATTERED = ("...", "a *", "a *")

PATTERNS: dict[str, Sequence[str]] = {
    "Attention": ("b h s d", "b k t d", "b k t v", "...", "b k p d", "b k p v"),
    "BatchNormalization": (*_NORMALIZED, "c", "c"),
    "Det": ("... m m",),
    "GRU": _RECURRENT,
    "GridSample": ("n c ...", "n ... #"),
    "InstanceNormalization": _NORMALIZED,
    "LSTM": _RECURRENT,
    "MaxUnpool": ("a *", "a *"),
    "NonMaxSuppression": ("b n 4", "b c n"),
    "RNN": _RECURRENT,
    "RoiAlign": ("n c h w", "r 4", "r"),
    "Scatter": _SCATTERED,
    "ScatterElements": _SCATTERED,
}

#: Operators whose attribute ``layout`` exchanges the first two axes.
_WITH_LAYOUT = frozenset(("RNN", "LSTM", "GRU"))


def with_agreeing_sizes(node: NodeProto, inputs: Sequence[Expr | None]) -> list[Expr | None]:
    """Return the inputs of a node with the sizes of its pattern; the converter reports sizes that cannot agree."""
    result = list(inputs)
    shapes = [tuple(x.type.shape) if x is not None and isinstance(x.type, TensorType) else () for x in result]
    letters = [
        [str(len(shapes[0]) - 2) if letter == "#" else letter for letter in _letters(pattern, len(shape))]
        for pattern, shape in zip(_patterns(node, shapes), shapes, strict=False)
    ]
    sizes: dict[str, list[Dim]] = {}
    for named, shape in zip(letters, shapes, strict=False):
        for letter, dim in zip(named, shape, strict=False):
            sizes.setdefault(letter, [int(letter)] if letter.isdecimal() else []).append(dim)
    chosen = {letter: min(dims, key=lambda d: (not isinstance(d, int), len(str(d)))) for letter, dims in sizes.items()}
    for number, (named, shape) in enumerate(zip(letters, shapes, strict=False)):
        wanted = tuple(
            dim if letter == "_" or isinstance(dim, int) or dim_equal(dim, chosen[letter]) else chosen[letter]
            for letter, dim in zip(named, shape, strict=False)
        )
        if named and any(new is not old for new, old in zip(wanted, shape, strict=True)):
            result[number] = get_operator("match_shape")(result[number], shape=wanted)
    return result


def _patterns(node: NodeProto, shapes: Sequence[Sequence[Dim]]) -> Sequence[str]:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "Gemm":
        operands = ["m k", "k n"]
        for place, name in enumerate(("transA", "transB")):
            if attributes.get(name):
                operands[place] = operands[place][::-1]
        return [*operands, _broadcast(["m", "n"], shapes[2])] if len(shapes) == 3 else operands
    if node.op_type in ("LayerNormalization", "RMSNormalization"):
        rank, axis = len(shapes[0]), attributes.get("axis", -1)
        if not -rank <= axis < rank:
            return ()
        names = [f"a{number}" if number >= axis % rank else "_" for number in range(rank)]
        return [" ".join(names), *(_broadcast(names, shape) for shape in shapes[1:])]
    if node.op_type in _WITH_LAYOUT and attributes.get("layout"):
        return ()
    return PATTERNS.get(node.op_type, ())


def _broadcast(names: Sequence[str], shape: Sequence[Dim]) -> str:
    """Return the pattern of an input that is broadcast to axes of these names; sizes of 1 suit any."""
    last = names[len(names) - len(shape) :] if len(shape) <= len(names) else []
    return " ".join("_" if isinstance(d, int) and d == 1 else name for name, d in zip(last, shape, strict=False)) or "0"


def _letters(pattern: str, rank: int) -> list[str]:
    """Return a letter of the pattern for each axis; none if it does not suit the rank."""
    letters = pattern.split()
    if "..." in letters:
        place, spare = letters.index("..."), rank - len(letters) + 1
        return [*letters[:place], *["_"] * spare, *letters[place + 1 :]] if spare >= 0 else []
    if letters[-1] == "*":
        return [f"{letters[0]}{axis}" for axis in range(rank)]
    return letters if len(letters) == rank else []
