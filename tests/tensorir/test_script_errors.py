"""Check that what is wrong in loops written as Python is shown at its place in the user's file."""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable
from typing import Annotated, Any

import pytest

import tilewright.tensorir as ti
from tilewright.tensorir.errors import BuilderError, ParseError, VerifyError
from tilewright.tensorir.script_words import CALLS, LOOPS, SCOPES

Matrix = Annotated[ti.Buffer, ("n", 8), "float32"]
Vector = Annotated[ti.Buffer, (8,), "float32"]
Integers = Annotated[ti.Buffer, (8,), "int32"]

WRONG: list[tuple[Callable[..., Any], str, str]] = []


def wrong(underlined: str, message: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Expect an error for a function, with that part of its source underlined."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        WRONG.append((function, underlined, message))
        return function

    return register


# mypy: ignore-errors
# ruff: noqa: F821, F841


@wrong("aa", "unknown name aa; did you mean a?")
def unknown_name(a: Matrix, b: Vector):
    for i in range(8):
        b[i] = aa[i, 0]


@wrong("a[i]", "buffer a has 2 dimensions, found 1 indices")
def number_of_indices(a: Matrix, b: Vector):
    for i in range(8):
        b[i] = a[i]


@wrong("b[i, 0]", "buffer b has 1 dimensions, found 2 indices")
def number_of_indices_of_a_store(b: Vector):
    for i in range(8):
        b[i, 0] = 1


@wrong("a[i] + b[i]", "operands have different types, float32 and int32: cast one of them")
def types_of_operands(a: Vector, b: Integers):
    for i in range(8):
        b[i] = a[i] + b[i]


@wrong("a[i] * 2.0", "the elements of b are int32, the value is float32: cast it")
def type_of_a_store(a: Vector, b: Integers):
    for i in range(8):
        b[i] = a[i] * 2.0


@wrong("0.5", "expected a number of type int32, found 0.5")
def fraction_among_integers(b: Integers):
    b[0] = 0.5


@wrong("2**31", "2147483648 does not fit into int32")
def number_that_is_too_large(b: Integers):
    b[0] = 2**31


@wrong("b[0] > -(2**40)", "-1099511627776 does not fit into int32")
def operand_that_is_too_large(b: Integers):
    if b[0] > -(2**40):
        b[0] = 1


@wrong("while True:", "While cannot stand in loops; expected for, if, with, assignments and calls")
def statement(b: Vector):
    while True:
        b[0] = 1


@wrong("lambda v: v", "Lambda cannot stand in loops")
def expression(b: Vector):
    b[0] = (lambda v: v)(1)


@wrong("math.exp(a[i])", "must be real number, not BufferLoad; tensorir has a function exp of expressions")
def function_of_numbers(a: Vector, b: Vector):
    for i in range(8):
        b[i] = math.exp(a[i])


@wrong("ti.exp(i)", "exp: expected float arguments of one type, found int64")
def type_of_an_argument(b: Vector):
    for i in range(8):
        b[i] = ti.exp(i)


@wrong("ti.pow(b[i])", "pow() missing 1 required positional argument: 'y'")
def number_of_arguments(b: Vector):
    for i in range(8):
        b[i] = ti.pow(b[i])


@wrong("float(b[0])", "cast(dtype, value) converts expressions")
def conversion(b: Vector):
    b[1] = float(b[0])


@wrong("a[i]", "expected a bool condition, found float32; compare it, such as with != 0")
def condition(a: Vector, b: Vector):
    for i in range(8):
        if a[i]:
            b[i] = a[i]


@wrong("i, j", "grid of 3 loops: expected as many names")
def names_of_a_grid(b: Vector):
    for i, j in ti.grid(8, 2, 3):
        b[i] = j


@wrong("range(0, 8, -1)", "expected a positive number as step, found -1")
def step(b: Vector):
    for i in range(0, 8, -1):
        b[i] = 1


@wrong("ti.vectorised", "has no attribute 'vectorised'; did you mean vectorized")
def misspelt_word(b: Vector):
    for i in ti.vectorised(8):
        b[i] = 1


@wrong("b", "expected range, grid, serial, parallel, vectorized, unrolled, or a tuple known now")
def iterated(b: Vector):
    for i in b:
        b[i] = 1


@wrong("ti.grid(8)", "grid stands in a for statement")
def word_elsewhere(b: Vector):
    i = ti.grid(8)


@wrong("i", "i is the variable of a loop, and cannot be assigned")
def loop_variable(b: Vector):
    for i in range(8):
        i = i + 1


@wrong("n", "n has a value already; give the loop's variable another name")
def loop_variable_that_hides_another(b: Vector, n: int):
    for n in range(8):
        b[n] = n


@wrong("t", "t is only known in the body that assigns it; give it a value before")
def name_of_a_branch(b: Vector):
    for i in range(8):
        if i > 3:
            t = b[i] * 2.0
        b[i] = t


@wrong("b[i]", "total is int64 from its first value on, this one is float32: cast one")
def type_of_a_changing_name(b: Vector):
    total = 0
    for i in range(8):
        total = b[i]


@wrong("a", "expected a value, found the buffer a; an element is a[..]")
def buffer_as_value(a: Vector, b: Vector):
    b[0] = a


@wrong("b[:]", "expected an element; a loop stores to a slice")
def slice_of_a_store(b: Vector):
    b[:] = 1.0


@wrong("return b[0]", "a function of loops returns nothing")
def returned(b: Vector):
    return b[0]


@wrong("ti.exp(1.0)", "the value is used nowhere")
def unused(b: Vector):
    ti.exp(1.0)


@wrong("ti.init()", "init: expected to stand directly in a block, found loop i around it")
def init_outside(b: Vector):
    for i in range(8):
        with ti.init():
            b[i] = 0


@wrong('ti.axes("S", [i + 1])', "axes: expected variables of the loops around the block, found i + 1")
def axis_of_an_expression(b: Vector):
    for i in range(8):
        with ti.block("b"):
            (vi,) = ti.axes("S", [i + 1])
            b[vi] = 0


@wrong("open('x')", "expected block(name) or init() in a with")
def other_context(b: Vector):
    with open('x'):  # fmt: skip
        b[0] = 1


@wrong("ti.alloc((4,))", "the result of alloc is assigned to one name")
def unnamed_buffer(b: Vector):
    b[0] = twice(ti.alloc((4,)))


def twice(value: Any) -> Any:
    return value + value


@wrong("a[i, i]", "buffer a has 1 dimensions, found 2 indices")
def behind_other_letters(a: Vector, b: Vector):
    for i in range(8):
        é = "größe"; b[i] = a[i, i]  # noqa: E702  # fmt: skip


@wrong("first", 'expected first: Buffer[("n", 64), "float32"], or int for a size')
def no_annotation(first, b: Vector):
    b[0] = 1


@wrong("float", 'a number of type float64 is passed as Buffer[(), "float64"]')
def float_parameter(a: float, b: Vector):
    b[0] = a


@wrong("b: Vector", "buffer b stands behind the size n; expected buffers first, then sizes")
def order_of_parameters(n: int, b: Vector):
    b[0] = 1


@wrong("1", "expected plain parameters with annotations, and no defaults")
def default(b: Vector, n: int = 1):
    b[0] = 1


# What the verifier finds.


@wrong("a[i]", "index 0 to 8 is out of bounds for dimension 0 of a, whose extent is 8")
def out_of_bounds(a: Vector, b: Matrix):
    for i in range(9):
        b[0, 0] = a[i]


@wrong("i", "the block uses the variable i of a loop or block around it")
def loop_in_a_block(a: Vector, b: Vector):
    for i in range(8):
        with ti.block("c"):
            (vi,) = ti.axes("S", [i])
            b[vi] = a[0] * ti.cast("float32", i)


@wrong('with ti.block("c"):', "a second block has the name c")
def equal_names(b: Vector):
    for i in (0, 1):
        with ti.block("c"):
            b[i] = 0


@wrong("a[0] = 1", "buffer a is an input and must not be written")
def written_input(a: Vector, b: Vector):
    a[0] = 1


@pytest.mark.parametrize(("function", "underlined", "message"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_errors_point_at_the_line_of_the_user(function: Callable[..., Any], underlined: str, message: str) -> None:
    attrs = {"num_outputs": 1} if function is written_input else {}
    with pytest.raises((ParseError, VerifyError)) as caught:
        ti.func(attrs=attrs)(function)
    text = str(caught.value)
    assert text.count(message) == 1
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if line.strip().strip("^") == "" and "^" in line)
    shown, carets = lines[at - 1], lines[at]
    start = len(carets) - len(carets.lstrip())
    assert shown[start : len(carets)] == underlined
    source, first = inspect.getsourcelines(function)
    line = first + next(number for number, text in enumerate(source) if text.rstrip("\n") == shown)
    assert f'File "{__file__}", line {line}, column {start + 1}: ' in text


def test_each_problem_that_the_verifier_finds_is_shown() -> None:
    def two(a: Vector, b: Vector):
        b[9] = 0
        b[0] = a[-1]

    with pytest.raises(VerifyError, match=r"(?s)@two breaks 2 rules.*index 9 is out.*index -1 is out"):
        ti.func(two)


def test_the_error_of_a_function_of_the_user_stays_the_cause() -> None:
    def broken(value: Any) -> Any:
        raise RuntimeError("out of paper")

    def calls(b: Vector):
        b[0] = broken(b[1])

    with pytest.raises(ParseError, match=r"broken: RuntimeError: out of paper\n +b\[0\] = broken") as caught:
        ti.func(calls)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_function_without_source_is_refused() -> None:
    names: dict[str, Any] = {"Vector": Vector}
    exec("def typed(b: Vector):\n    b[0] = 1\n", names)
    with pytest.raises(
        ParseError, match=r"reads the source of typed, and there is none .* make its loops with a Builder"
    ):
        ti.func(names["typed"])


@pytest.mark.parametrize("given", [print, 3, ti.Var], ids=str)
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(ParseError, match="func: expected a Python function"):
        ti.func(given)


def test_a_lambda_is_refused() -> None:
    with pytest.raises(ParseError, match="expected a function defined by def"):
        ti.func(lambda b: None)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (lambda: ti.Buffer[(3,), "float32", 4], "expected Buffer"),
        (lambda: ti.Buffer[(3,), "float33"], "unknown data type 'float33'"),
    ],
)
def test_annotations_of_buffers_are_checked(annotation: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        annotation()


def test_extents_stand_in_a_tuple_or_alone() -> None:
    same = [ti.Buffer[("n", 4), "int8"], ti.Buffer["n", 4, "int8"], ti.Buffer[["n", 4], ti.DataType("int8")]]
    assert len(set(same)) == 1 and ti.Buffer["n"] == ti.Buffer[("n",), "float32"]


def test_shapes_hold_formulas_of_integers() -> None:
    half = ti.Buffer[("n / 2",), "float32"]

    def halves(b: half):
        b[0] = 1

    with pytest.raises(ParseError, match="'n / 2' is not an extent: div: expected floating-point operands"):
        ti.func(halves)


@pytest.mark.parametrize("word", [word.__name__ for word in (*LOOPS, *SCOPES, *CALLS) if word is not range])
def test_words_of_loops_say_where_they_belong(word: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {
        "axes": ("S", []),
        "init": (),
        "alloc": ((),),
        "spatial": (3, 0),
        "reduce": (3, 0),
    }
    with pytest.raises(BuilderError, match=rf"^{word}\(\) stands in a function that is decorated with @func"):
        getattr(ti, word)(*arguments.get(word, (3,)))


def test_a_function_in_a_notebook_is_shown_by_its_cell() -> None:
    text = "def cell(b: Vector):\n    b[0] = unknown\n"
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(keepends=True), "<cell 7>")
    names: dict[str, Any] = {"Vector": Vector}
    exec(compile(text, "<cell 7>", "exec"), names)
    with pytest.raises(ParseError, match=r'^File "<cell 7>", line 2, column 12: unknown name unknown'):
        ti.func(names["cell"])
