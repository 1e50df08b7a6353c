"""Encode functions as text that is fast to write and read: one record for each node, after the records of its parts.

::

    primfunc @f(x: Buffer[(4,), float32]) {        names    x, i, f
      for i in range(4) { x[i] = x[i] + x[i] }     records  4; the buffer; 0; i; the load; the sum; the store; ...
    }

Names of the function, its variables and its buffers are kept apart from the records, and so are the attributes that say
where it comes from. Equal nodes are written once, except that variables and buffers are compared by identity. So the
records are the same, in every process, for functions that are equal up to those names (see :mod:`.structural`), however
their nodes share operands; a digest of them is a key for the computation of a function.

Encoding and decoding take time linear in the number of objects, and do not recurse over the depth: decoding not at all,
encoding over a hundred nodes at most.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.tensorir import expr, stmt
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import EncodingError
from tilewright.tensorir.keys import ORIGIN_ATTRS
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import PrimFunc

#: The classes of nodes in functions. The place of a class in this list is its code in records.
_CLASSES: tuple[Any, ...] = (
    *(expr.Var, expr.Buffer, expr.IntImm, expr.FloatImm, expr.BinaryOp, expr.UnaryOp, expr.Compare, expr.Select),
    expr.Choose,
    *(expr.Cast, expr.BufferLoad, expr.Call, expr.Ramp, expr.Broadcast),
    *(stmt.For, stmt.BufferStore, stmt.SeqStmt, stmt.IfThenElse, stmt.Allocate, stmt.LetStmt, stmt.Evaluate),
    *(stmt.Range, stmt.BufferRegion, stmt.IterVar, stmt.Block, PrimFunc),
)

_VAR = _CLASSES.index(expr.Var)

#: The classes whose nodes have a name, which only readers see.
_NAMED = (expr.Var, expr.Buffer, PrimFunc)

#: Errors of reading data that were encoded by something else, or changed.
MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError, StopIteration)

_SEPARATORS = (",", ":")

#: The types of plain data that need no tag.
_SAME_IN_JSON = frozenset({bool, int, str, type(None)})

#: The most nodes that wait at once for their parts: programs may be nested deeper.
_MOST_FRAMES: Final = 100


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A function as text; see the module.

    Attributes:
        records: JSON.
        names: of the function's variables and buffers in order of their records, and of the function.
        origins: the names of its attributes in order, and those that say where it comes from, as JSON.
    """

    records: str
    names: tuple[str, ...]
    origins: str

    def digest(self) -> str:
        """64 hexadecimal digits, equal for functions that are equal up to names and different for all others."""
        text = self.records.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=32).hexdigest()

    def decode(self, variables: Sequence[expr.Var] | None = None) -> PrimFunc:
        """Return the function, with the same text as the one that was encoded.

        Args:
            variables: its integer parameters, in order; by default new ones.

        Raises:
            EncodingError: the function has other parameters, or the text is not one that :func:`encode` wrote.
        """
        try:
            return _decode(self, variables)
        except MALFORMED as error:
            raise EncodingError(f"expected an encoded function, found something else ({error!r:.200})") from error


def encode(func: PrimFunc) -> Encoded:
    """Encode ``func`` as text in which equal nodes are written once.

    Raises:
        EncodingError: it holds a node of a user's class, or an annotation that is not plain data.
    """
    written = _Records()
    above: list[Node] = []  # the nodes that wait for one below them: there are some in long chains only
    node: Node = func
    while True:
        try:
            written[node]
        except _TooDeepError as error:
            above.append(node)
            node = error.node
            written.frames = _MOST_FRAMES
            continue
        if not above:
            break
        node = above.pop()
    return Encoded(json.dumps(written.records, separators=_SEPARATORS), tuple(written.names), written.origins)


class _TooDeepError(Exception):
    """A node that is not reached."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


class _Records(dict[Node, int]):
    """The numbers of nodes: to look one up writes its record, if there is none yet, after those of its parts.

    Attributes:
        records, names, origins: see :class:`Encoded`.
        frames: how many more nodes may wait for their parts; for one more, :class:`_TooDeepError` is raised. Nodes
            whose records are written keep them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[Any, ...]] = []
        self.names: list[str] = []
        self.origins = ""
        self.frames = _MOST_FRAMES
        self._known: dict[tuple[Any, ...], int] = {}

    def __missing__(self, node: Node) -> int:
        try:
            record_of, is_named = _WRITTEN[type(node)]
        except KeyError:
            what = f"{type(node).__name__}: {node!s}"
            raise EncodingError(f"expected nodes that Tilewright defines, found a {what}") from None
        frames = self.frames
        if not frames:
            raise _TooDeepError(node)
        self.frames = frames - 1
        record = record_of(node, self)
        self.frames = frames
        records = self.records
        count = len(records)
        if is_named:
            self.names.append(node.name)  # type: ignore[attr-defined]
            number = count
        else:
            number = self._known.setdefault(record, count)
        self[node] = number
        if number == count:
            records.append(record)
        return number

    def attributes_text(self, attrs: Mapping[str, Any]) -> str:
        """Return the attributes of a function that are part of its record, and keep the others apart."""
        text = _plain_text({key: item for key, item in attrs.items() if key not in ORIGIN_ATTRS}, self)
        origins = {key: value for key, value in attrs.items() if key in ORIGIN_ATTRS}
        self.origins = _plain_text([list(attrs), origins], self)
        return text


def _decode(encoded: Encoded, variables: Sequence[expr.Var] | None) -> PrimFunc:
    made: list[Any] = []
    names = iter(encoded.names)
    records = json.loads(encoded.records)
    given: dict[int, expr.Var] = {}
    if variables is not None:
        numbers = [number for number in records[-1][1] if records[number][0] == _VAR]
        expected = [records[number][1] for number in numbers]
        if expected != [var.dtype for var in variables]:
            raise EncodingError(f"expected variables of types {expected}, found {list(variables)}")
        given = dict(zip(numbers, variables, strict=True))
    for number, record in enumerate(records):
        read = _READ[record[0]](record, made, names)
        made.append(given.get(number, read))
    func = made[-1]
    if not isinstance(func, PrimFunc):
        raise EncodingError(f"expected a function as the last record, found {type(func).__name__}")
    order, origins = _untagged(json.loads(encoded.origins), made)
    values = {**func.attrs, **origins}
    return PrimFunc(func.name, func.params, func.body, {key: values[key] for key in order})


def _plain_text(value: Any, numbers: Mapping[Node, int]) -> str:
    return json.dumps(_tagged(value, numbers), separators=_SEPARATORS) if value else ""


def _tagged(value: Any, numbers: Mapping[Node, int]) -> Any:
    """Return plain data as JSON with tags where JSON is ambiguous: tuples and lists, ``1.0`` and ``1``, types and
    strings."""
    if type(value) in _SAME_IN_JSON:
        return value
    if isinstance(value, DataType):
        return {"dtype": str(value)}
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is tuple:
        return {"tuple": [_tagged(item, numbers) for item in value]}
    if type(value) is list:
        return [_tagged(item, numbers) for item in value]
    if isinstance(value, Mapping):
        return {"items": [[_tagged(key, numbers), _tagged(item, numbers)] for key, item in value.items()]}
    if isinstance(value, Node):
        return {"node": numbers[value]}
    if isinstance(value, np.generic) and isinstance(value.item(), (bool, int, float)):
        return {"scalar": [value.dtype.name, _tagged(value.item(), numbers)]}
    raise EncodingError(f"expected plain data, found {type(value).__name__}: {value!r}")


def _untagged(data: Any, made: list[Any]) -> Any:
    if isinstance(data, list):
        return [_untagged(item, made) for item in data]
    if not isinstance(data, dict):
        return data
    ((tag, value),) = data.items()
    if tag == "dtype":
        return DataType(value)
    if tag == "float":
        return float.fromhex(value)
    if tag == "tuple":
        return tuple(_untagged(item, made) for item in value)
    if tag == "items":
        return {_untagged(key, made): _untagged(item, made) for key, item in value}
    if tag == "scalar":
        return np.dtype(value[0]).type(_untagged(value[1], made))
    return made[value]


def _mapping(text: str, made: list[Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _untagged(json.loads(text), made) if text else {}
    return found


#: Of the nodes of a class: the function that returns the record of one, and whether it has a name.
_Written = tuple[Callable[[Any, _Records], tuple[Any, ...]], bool]
_Read = Callable[[list[Any], list[Any], Iterator[str]], Any]


def _derived_functions(number: int, cls: Any) -> tuple[_Written, _Read]:
    """Return the functions that write and read nodes of a class. They are generated and compiled, like those that
    ``node`` derives: a loop over the fields takes several times as long."""
    items, arguments = [str(number)], []
    types = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    for name, role in cls.node_fields:
        value, place = f"node.{name}", f"record[{len(items)}]"
        if name == "name" and cls in _NAMED:
            arguments.append("next(names)")
            continue
        if role == "children" or (role == "definition" and types[name].startswith("tuple")):
            items.append(f"tuple(map(numbers.__getitem__, {value}))")
            arguments.append(f"tuple([made[part] for part in {place}])")
        elif role != "data" and "None" in types[name]:
            items.append(f"None if {value} is None else numbers[{value}]")
            arguments.append(f"None if {place} is None else made[{place}]")
        elif role != "data":
            items.append(f"numbers[{value}]")
            arguments.append(f"made[{place}]")
        elif types[name].startswith("Mapping"):
            items.append(f"numbers.attributes_text({value})" if cls is PrimFunc else f"_plain_text({value}, numbers)")
            arguments.append(f"_mapping({place}, made)")
        elif types[name] == "float":
            items.append(f"{value}.hex()")
            arguments.append(f"float.fromhex({place})")
        else:
            items.append(value)
            arguments.append(place)
    lines = [
        f"def record_of(node, numbers): return ({''.join(item + ', ' for item in items)})",
        f"def read(record, made, names): return cls({', '.join(arguments)})",
    ]
    namespace: dict[str, Any] = {**globals(), "cls": cls}
    exec("\n".join(lines), namespace)
    return (namespace["record_of"], cls in _NAMED), namespace["read"]


_DERIVED = [_derived_functions(number, cls) for number, cls in enumerate(_CLASSES)]
_WRITTEN: dict[type[Any], _Written] = {cls: written for cls, (written, _) in zip(_CLASSES, _DERIVED, strict=True)}
_READ: list[_Read] = [read for _, read in _DERIVED]
