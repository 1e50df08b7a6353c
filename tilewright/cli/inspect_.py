"""``tilewright inspect``: show the contents of an artifact, and whether this machine can run it."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tilewright.cli.console import say, say_json, say_table
from tilewright.cli.models import load_model
from tilewright.cli.options import with_settings, with_sizes
from tilewright.cli.shapes import check_names, sizes_of, split_shapes, symbol_names
from tilewright.graphir.dims import bind_dims, symbol
from tilewright.graphir.types import TensorType, TupleType
from tilewright.passes.tables import format_bytes
from tilewright.runtime.artifact import FORMAT, Artifact
from tilewright.runtime.signature import Argument, Signature
from tilewright.tensorir.expr import Expr

#: The options of a target as they are shown, with their keys in an artifact.
_TARGET = (("", "kind"), ("-mcpu=", "mcpu"), ("-mattr=", "mattr"), ("-mtriple=", "mtriple"))


@click.command("inspect")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_sizes
@click.option("--weights", is_flag=True, help="List each weight.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_settings
def inspect(model: Path, shapes: Sequence[str], dims: Sequence[str], weights: bool, as_json: bool) -> None:
    """Show the contents of an artifact, and whether it runs here; or of an .onnx file.

    All checksums of an artifact are verified; no code in the file is executed. Of an .onnx file it shows inputs,
    operators by number, those that are not supported, and the files of its weights. Sizes that are given by --shape and
    --dim are put into the shapes of inputs and results, and into the size of the arena.
    """
    if model.suffix == ".onnx":
        _inspect_onnx(model, [*shapes, *dims], as_json)
        return
    artifact = model
    found = Artifact.open(artifact)
    facts = describe(found, _sizes(found.signature, shapes, dims))
    if as_json:
        say_json(facts)
        return
    say(f"{artifact} ({format_bytes(found.size, signed=False)}), format {FORMAT}, by Tilewright {found.version}")
    say("all checksums are right")
    say()
    target = facts["target"]
    rows = [
        ["signature", facts["signature"]],
        ["results", ", ".join(facts["results"])],
        ["target", " ".join(f"{name}{target[key]}" for name, key in _TARGET if target[key])],
        ["threads", str(target["num_threads"])],
        ["may use", ", ".join(facts["features"])],
        ["built with", _settings(facts["settings"])],
        ["code", format_bytes(facts["code_bytes"], signed=False)],
        ["weights", f"{len(facts['weights'])}, {format_bytes(facts['weight_bytes'], signed=False)}"],
        ["arena", ", then ".join(facts["arena"]) + " bytes"],
        ["graph", facts["graph"]],
        ["runs here", "yes" if not facts["obstacles"] else "no: " + "; ".join(facts["obstacles"])],
    ]
    say_table("", ("", ""), rows)
    say()
    say_table("kernels", ("kernel", "calls", "operators"), _kernels(facts["kernels"]), ("calls",))
    if weights:
        listed = [[each["dtype"], str(tuple(each["shape"])), str(each["bytes"])] for each in facts["weights"]]
        say()
        say_table("weights", ("type", "shape", "bytes"), listed, ("bytes",))


def _sizes(signature: Signature, shapes: Sequence[str], dims: Sequence[str]) -> dict[Expr, int]:
    """Return the sizes of symbolic dimensions that ``--shape`` and ``--dim`` give."""
    symbols = [symbol.name for symbol in signature.symbols]
    narrowed = split_shapes(shapes, [argument.name for argument in signature.inputs])
    named = symbol_names(sizes_of(dims), symbols)
    check_names(narrowed.sizes, symbols, "input or dim", "--shape")
    check_names(named, symbols, "dim", "--dim")
    return {**narrowed.sizes_in(signature), **{symbol(name): size for name, size in named.items()}}


def _inspect_onnx(path: Path, sizes: Sequence[str], as_json: bool) -> None:
    try:
        from tilewright.graphir.frontend.onnx.describe import describe as describe_onnx
    except ModuleNotFoundError as error:
        raise ImportError("inspecting .onnx files needs the package onnx: pip install tilewright[onnx]") from error
    facts = describe_onnx(path)
    if sizes:
        interface = load_model((path, ""), sizes).interface()
        assert interface is not None  # an ONNX model is a graph
        signature, _ = interface
        for each, argument in zip(facts["inputs"], signature.inputs, strict=True):
            each["shape"] = _shape(argument.type)
        for each, output in zip(facts["outputs"], signature.outputs, strict=True):
            each["shape"] = _shape(output)
    if as_json:
        say_json(facts)
        return
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    say(f"{path} ({format_bytes(path.stat().st_size, signed=False)}), {facts['producer'] or 'of an unnamed producer'}")
    rows = [["opsets", opsets], ["weights", str(facts["weights"])]]
    for each in facts["external_data"]:
        rows.append(["external data", each["file"] + ("" if each["found"] else ": missing")])
    say_table("", ("", ""), rows)
    for what in ("inputs", "outputs"):
        listed = [
            [each["name"], each["dtype"], "?" if each["shape"] is None else f"({', '.join(map(str, each['shape']))})"]
            for each in facts[what]
        ]
        say()
        say_table(what, ("name", "type", "shape"), listed)
    missing = facts["unsupported"]
    said = [
        [name, str(count), f"no: {_few(missing[name])}" if name in missing else "yes"]
        for name, count in facts["operators"].items()
    ]
    say()
    say_table("operators", ("operator", "nodes", "supported"), said, ("nodes",))


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _shape(found: TensorType) -> list[int | str]:
    return [dim if isinstance(dim, int) else str(dim) for dim in found.shape]


def _signature(signature: Signature, sizes: Mapping[Expr, int]) -> str:
    if not sizes:
        return str(signature)

    arguments = [str(Argument(each.name, _bound(each.type, sizes))) for each in signature.inputs]
    return f"({', '.join(arguments)}) -> {_bound(signature.result, sizes)}"


def _bound(found: Any, sizes: Mapping[Expr, int]) -> Any:
    """Return the type of a tensor, or of a tuple of tensors, with known sizes."""
    if isinstance(found, TupleType):
        return TupleType([_bound(field, sizes) for field in found.fields])
    return TensorType(bind_dims(found.shape, sizes), found.dtype)


def describe(artifact: Artifact, sizes: Mapping[Expr, int] | None = None) -> dict[str, Any]:
    """Return the contents of an artifact as plain data.

    Args:
        sizes: known sizes of symbolic dimensions.
    """
    known = sizes or {}
    stored, functions = artifact.stored, artifact.functions
    weights = {id(array): array for function in functions for array in function.constants}.values()
    objects = {id(content): content for function in functions for content in function.code.objects}.values()
    graph = f"without {stored.missing} weights: `ir` and `profile` do not work" if stored.missing else "complete"
    uses = [use for function in functions for use in function.kernels]
    return {
        "format": FORMAT,
        "tilewright": artifact.version,
        "size": artifact.size,
        "signature": _signature(artifact.signature, known),
        "inputs": [
            {
                "name": argument.name,
                "dtype": str(argument.type.dtype),
                "shape": list(map(str, bind_dims(argument.type.shape, known))),
            }
            for argument in artifact.signature.inputs
        ],
        "results": list(artifact.signature.result_names),
        "target": {name: stored.target[name] for name in ("kind", "mcpu", "mattr", "mtriple", "num_threads")},
        "features": sorted(artifact.features),
        "settings": dict(stored.settings),
        "code_bytes": sum(map(len, objects)),
        "weights": [
            {"dtype": str(array.dtype), "shape": list(array.shape), "bytes": array.nbytes} for array in weights
        ],
        "weight_bytes": sum(array.nbytes for array in weights),
        "arena": [str(bind_dims(function.arena_bytes, known)) for function in functions],
        "kernels": [{"kernel": use.kernel, "operators": list(map(str, use.origins))} for use in uses],
        "graph": graph,
        "obstacles": artifact.obstacles(),
    }


def _settings(settings: dict[str, Any]) -> str:
    """Return the settings of a build as command-line options."""
    parts = [f"-O{settings['opt_level']}"]
    parts += [f"--disable-pass {name}" for name in settings["disabled_pass"]]
    parts += [f"--require-pass {name}" for name in settings["required_pass"]]
    parts += [
        f"--config {key}.{name}={value}" for key, fields in settings["config"].items() for name, value in fields.items()
    ]
    return " ".join(parts)


def _kernels(uses: list[dict[str, Any]]) -> list[list[str]]:
    """Return a line for each kernel, in the order of their first calls."""
    counts = collections.Counter(use["kernel"] for use in uses)
    operators = {use["kernel"]: ", ".join(use["operators"]) for use in reversed(uses)}
    return [[name, str(count), operators[name]] for name, count in counts.items()]
