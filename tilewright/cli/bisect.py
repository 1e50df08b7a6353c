"""``tilewright bisect``: find the pass that makes the results of a model wrong."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import tilewright as tw
from tilewright.cli.console import DIFFERENT, counting, note, say, say_json, working
from tilewright.cli.inputs import flat_results, read_inputs
from tilewright.cli.models import load_model
from tilewright.cli.options import BuildOptions, InputOptions, with_build, with_inputs, with_model, with_settings
from tilewright.graphir.expr import Function
from tilewright.passes.graph import InferType
from tilewright.passes.instruments.bisection import Culprit, OptBisect, bisect_passes
from tilewright.runtime.model_interface import signature_of
from tilewright.runtime.observe.example_sizes import conditions_of
from tilewright.runtime.observe.numeric.compare import Mismatch
from tilewright.runtime.observe.numeric.evaluate import Evaluator, Inputs
from tilewright.runtime.observe.numeric.failure import Failure, NumericError
from tilewright.runtime.observe.numeric.reference import make_reference
from tilewright.runtime.signature import nested
from tilewright.tensorir.target import Target

_REFERENCES = ("float64", "original")


@click.command()
@with_model
@with_inputs
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write a test that reproduces the failure."
)
@click.option(
    "--reference",
    type=click.Choice(_REFERENCES),
    default=_REFERENCES[0],
    show_default=True,
    help="Compare with the model in double precision, or in its own types.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    help="Absolute and relative tolerance [default: a few units in the last place, more for long sums].",
)
@click.option("--every", type=click.IntRange(1), default=1, show_default=True, help="Check after every n-th pass.")
@click.option(
    "--minimize/--no-minimize",
    default=True,
    show_default=True,
    help="Find the operator and the smallest failing graph; --no-minimize makes -o write nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_build
@with_settings
def bisect(
    model: tuple[Path, str],
    random_weights: bool,
    inputs: InputOptions,
    output: Path | None,
    reference: str,
    tolerance: float | None,
    every: int,
    minimize: bool,
    as_json: bool,
    build: BuildOptions,
) -> None:
    """Find the pass that makes the results of MODEL wrong.

    Runs the model after every pass on the same inputs and compares the results with a reference in double precision.
    Names the first pass whose results exceed the tolerance, with operator and element, and ends with exit code 3. If
    all passes preserve the results but the code is wrong, or if a pass fails, builds with fewer passes to find it.
    """
    found = load_model(model, inputs.shapes, random_weights, inputs.seed, inputs.values)
    module = found.graph("bisect")
    target = build.target()
    with build.context(), working("preparing"):
        typed = InferType()(module)
        main = typed["main"]
        if not isinstance(main, Function):
            raise click.UsageError(f"{found.name}: main is a function of loop nests; bisect needs the graph")
        signature = signature_of(main)
        arrays = read_inputs(found, signature, conditions_of(typed, signature.symbols), inputs)
        remaining = iter(arrays.values())
        values = tuple(nested(param.type, remaining) for param in main.params if param.type is not None)
    with tempfile.TemporaryDirectory() as folder:
        check = tw.NumericCheck(
            values,
            reference,
            tolerance=tolerance,
            every=every,
            folder=None if output is None else folder,
            minimize=minimize,
        )
        failure, executable = _checked(module, target, build, check)
        if failure is not None and failure.reproducer is not None and output is not None:
            shutil.move(failure.reproducer, output)
    if failure is not None:
        _say_failure(failure, output if failure.reproducer is not None else None, as_json)
        raise SystemExit(DIFFERENT)
    with target, working("computing the reference"):
        expected = make_reference(typed, Inputs(values), Evaluator(target), reference, tolerance)

    def wrong(executable: tw.Executable) -> Mismatch | None:
        return expected.mismatch(list(flat_results(signature, executable(*arrays.values())).values()))

    mismatch = None if executable is None else wrong(executable)
    if executable is not None and mismatch is None:
        if as_json:
            say_json({"found": False, "checked": check.as_dict()})
        else:
            say(check.render())
            say()
            say("no pass changes the results by more than the tolerance")
        return

    def is_good(limit: OptBisect) -> bool:
        with build.context([limit]):
            return wrong(tw.build(module, target)) is None

    culprit = _halved(is_good)
    if culprit is None:
        raise tw.TilewrightError("the results were wrong once, and right when the model was built again")
    _say_culprit(culprit, mismatch, as_json)
    raise SystemExit(DIFFERENT)


def _checked(
    module: tw.IRModule, target: Target, build: BuildOptions, check: tw.NumericCheck
) -> tuple[Failure | None, tw.Executable | None]:
    """Build with the check; return the failure that it finds, and the model (None if a pass failed)."""
    with working("running the passes, and the model after each"):
        try:
            with build.context([check]):
                return None, tw.build(module, target)
        except NumericError as error:
            return error.failure, None
        except Exception as error:
            note(f"the build fails: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            return None, None


def _halved(is_good: Callable[[OptBisect], bool]) -> Culprit | None:
    attempts = 0
    with counting("building with fewer passes", None) as shown:

        def attempted(limit: int, good: bool) -> None:
            nonlocal attempts
            attempts += 1
            shown(attempts)

        return bisect_passes(is_good, on_attempt=attempted)


def _say_failure(failure: Failure, output: Path | None, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "found": True,
                "pass": failure.pass_name,
                "function": failure.function,
                "operator": failure.operator,
                "element": _element(failure.element),
                "result": _element(failure.result),
                "error": failure.error,
                "pipeline": list(failure.pipeline),
                "minimized": None if failure.minimized is None else str(failure.minimized),
                "reproducer": None if output is None else str(output),
            }
        )
        return
    say(failure.message() if failure.reproducer is None else failure.message().rpartition("\n")[0])
    if output is not None:
        say(f"  reproducer: {output}")


def _say_culprit(culprit: Culprit, mismatch: Mismatch | None, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "found": True,
                "pass": culprit.name,
                "number": culprit.number,
                "of": len(culprit.passes),
                "result": _element(mismatch),
                "attempts": culprit.attempts,
            }
        )
        return
    say(f"{culprit}: the model is wrong with it, and right without it and later passes ({culprit.attempts} builds)")
    if mismatch is not None:
        say(f"  result {mismatch.result}, {mismatch}")


def _element(found: Mismatch | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "result": found.result,
        "index": list(found.index),
        "expected": found.expected,
        "found": found.found,
        "ulps": found.ulps if found.ulps < float("inf") else None,
    }
