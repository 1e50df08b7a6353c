"""Measure real networks beside ONNX Runtime: ``python bench/real_models.py [NAME ...]`` (``make models`` installs
them).

For each network: the time to import it, to build it in a fresh process, and to build it again in another one that finds
the first one's code, the largest relative difference from ONNX Runtime's results, and the time of a call of both at
several sizes on one and on two threads. Calls are interleaved in one process; the times are medians, the ratio is the
median of the ratios of neighbouring calls.

``minilm`` does not exist as an ONNX file: its graph is written as one, operator by operator, as PyTorch exports it. The
``light_`` networks come with the onnx package, for one size each; their weights are synthetic.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx_writer import Writer
from rich.console import Console
from rich.table import Table

import tilewright as tw

LIGHT = Path(onnx.__file__).resolve().parent / "backend" / "test" / "data" / "light"
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
for _folder in ("magika", "ocr", "sentences"):
    sys.path.insert(0, str(EXAMPLES / _folder))

THREADS = (1, 2)
SECONDS, MOST_CALLS, WARM_CALLS = 3.0, 200, 2

Array = np.ndarray[Any, Any]
Inputs = tuple[Array, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """A network.

    Attributes:
        module: makes the module that is built; the time counts as import.
        peer: the ONNX file for ONNX Runtime.
        inputs: arguments of calls, by a description of their sizes.
    """

    module: Callable[[], tw.IRModule]
    peer: Callable[[], Path]
    inputs: Callable[[], dict[str, Inputs]]


def _magika() -> Case:
    import file_types

    def inputs() -> dict[str, Inputs]:
        own = sorted((EXAMPLES.parent / "graphir").rglob("*.py"))[:16]
        typer = file_types.FileTyper(lambda bytes_: bytes_)
        seen = [typer.features(path.read_bytes()) for path in own]
        found = np.stack([features for features in seen if features is not None])
        return {"1 file": (found[:1],), "16 files": (found[:16],)}

    model = file_types.model_file()
    return Case(lambda: tw.from_onnx(model, shapes={"bytes": ("files", 2048)}), lambda: model, inputs)


def _ocr(name: str, sizes: dict[str, tuple[int, ...]]) -> Case:
    import page
    import reader

    file, shape = reader.NETWORKS[name]

    def inputs() -> dict[str, Inputs]:
        picture = page.draw_page()[60:, 60:].transpose(2, 0, 1).astype(np.float32) / 127.5 - 1
        picture = np.tile(picture, (1, 3, 2))
        found: dict[str, Inputs] = {}
        for title, (n, _, height, width) in sizes.items():
            parts = [picture[:, 10 * part : 10 * part + height, :width] for part in range(n)]
            found[title] = (np.ascontiguousarray(np.stack(parts)),)
        return found

    path = reader.MODELS / file
    return Case(lambda: tw.from_onnx(path, shapes={"x": shape}), lambda: path, inputs)


def _minilm() -> Case:
    import embedder
    import model

    def inputs() -> dict[str, Inputs]:
        rng = np.random.default_rng(0)
        sizes = {"1 x 16 words": (1, 16), "1 x 128 words": (1, 128), "8 x 128 words": (8, 128)}
        return {title: (rng.integers(1000, 30000, size), np.ones(size, np.int64)) for title, size in sizes.items()}

    def peer() -> Path:
        path = Path(tempfile.mkdtemp()) / "minilm.onnx"
        onnx.save(_minilm_onnx(*embedder.load_weights()), path)
        return path

    return Case(lambda: model.build_module(*embedder.load_weights()), peer, inputs)


def _light(path: Path) -> Case:
    def inputs() -> dict[str, Inputs]:
        (value,) = tw.from_onnx(path)["main"].params
        elements = np.arange(math.prod(value.shape), dtype=np.float32)
        return {" x ".join(map(str, value.shape)): ((elements / elements.size).reshape(value.shape),)}

    return Case(lambda: tw.from_onnx(path), lambda: path, inputs)


CASES: dict[str, Callable[[], Case]] = {
    "magika": _magika,
    "detection": lambda: _ocr("detection", {"320 x 640": (1, 3, 320, 640), "736 x 736": (1, 3, 736, 736)}),
    "direction": lambda: _ocr("direction", {"1 line": (1, 3, 48, 192), "6 lines": (6, 3, 48, 192)}),
    "recognition": lambda: _ocr("recognition", {"1 line of 320": (1, 3, 48, 320), "6 lines of 320": (6, 3, 48, 320)}),
    "minilm": _minilm,
    **{path.stem: functools.partial(_light, path) for path in sorted(LIGHT.glob("light_*.onnx"))},
}


def _minilm_onnx(weights: Any, config: Any) -> onnx.ModelProto:
    """Write the network of ``examples/sentences/model.py`` as an ONNX model."""
    o = Writer(dict(weights))
    heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    one, zero, last = (o.constant(np.array([value], np.int64)) for value in (1, 0, -1))
    present = o("Cast", "mask", to=TensorProto.FLOAT)
    absent = o("Sub", o.constant(np.float32(1)), o("Unsqueeze", present, o.constant(np.array([1, 2], np.int64))))
    bias = o("Mul", absent, o.constant(np.float32(np.finfo(np.float32).min)))
    words = o("Gather", o.weight("embeddings.word_embeddings.weight"), "ids")
    length = o("Slice", o("Shape", "ids"), one, o.constant(np.array([2], np.int64)))
    places = o("Slice", o.weight("embeddings.position_embeddings.weight"), zero, length, zero)
    kind = o.constant(o.weights["embeddings.token_type_embeddings.weight"][0])
    x = o.norm(o("Add", o("Add", words, places), kind), "embeddings.LayerNorm", config.layer_norm_eps)
    split, joined = o.constant(np.array([0, 0, heads, width], np.int64)), o.constant(np.array([0, 0, -1], np.int64))
    for number in range(config.num_hidden_layers):
        name = f"encoder.layer.{number}"
        parts = [
            o("Reshape", o.linear(x, f"{name}.attention.self.{part}"), split) for part in ("query", "key", "value")
        ]
        query, value = (o("Transpose", part, perm=[0, 2, 1, 3]) for part in (parts[0], parts[2]))
        scores = o("MatMul", query, o("Transpose", parts[1], perm=[0, 2, 3, 1]))
        scores = o("Add", o("Div", scores, o.constant(np.float32(math.sqrt(width)))), bias)
        mixed = o("Transpose", o("MatMul", o("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        mixed = o.linear(o("Reshape", mixed, joined), f"{name}.attention.output.dense")
        x = o.norm(o("Add", mixed, x), f"{name}.attention.output.LayerNorm", config.layer_norm_eps)
        wide = o("Gelu", o.linear(x, f"{name}.intermediate.dense"))
        x = o.norm(
            o("Add", o.linear(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm", config.layer_norm_eps
        )
    total = o("ReduceSum", o("Mul", x, o("Unsqueeze", present, last)), one, keepdims=0)
    mean = o("Div", total, o("ReduceSum", present, one, keepdims=1))
    o.nodes.append(helper.make_node("LpNormalization", [mean], ["vectors"], axis=-1, p=2))
    sizes = dict.fromkeys(("ids", "mask"), (TensorProto.INT64, ("batch", "words")))
    return o.model(sizes, {"vectors": ("batch", config.hidden_size)}, "minilm")


def session(path: Path, threads: int) -> Callable[..., Array]:
    """Load the model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Otherwise its threads spin between its calls, which is when ours are measured.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if threads == 1 else "0")
    made = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in made.get_inputs()]
    return lambda *inputs: made.run(None, dict(zip(names, inputs, strict=True)))[0]


def seconds(run: Callable[..., Any], inputs: Inputs) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    run(*inputs)
    return time.perf_counter() - start


def in_turns(ours: Callable[..., Any], theirs: Callable[..., Any], inputs: Inputs) -> tuple[float, float, float]:
    """Return the medians of the seconds of both, and of the ratio of neighbouring calls."""
    for run in (ours, theirs):
        for _ in range(WARM_CALLS):
            run(*inputs)
    pairs: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(pairs) < 5 or (len(pairs) < MOST_CALLS and time.perf_counter() - start < SECONDS):
        pairs.append((seconds(ours, inputs), seconds(theirs, inputs)))
    own, other = zip(*pairs, strict=True)
    return statistics.median(own), statistics.median(other), statistics.median(a / b for a, b in pairs)


def build(case: Case, threads: int) -> tuple[tw.Executable, float, float]:
    """Return the compiled network, the seconds of its import, and those of its build."""
    start = time.perf_counter()
    module = case.module()
    imported = time.perf_counter()
    with tw.PassContext(opt_level=3):
        network = tw.build(module, target=tw.Target("llvm", num_threads=threads))
    return network, imported - start, time.perf_counter() - imported


def fresh(name: str) -> tuple[float, float, float]:
    """Return the seconds of import, build, and another build that finds the code of the first one; each in a fresh
    process."""
    with tempfile.TemporaryDirectory() as folder:
        times: list[list[float]] = []
        for _ in range(2):
            command, kept = [sys.executable, __file__, "--fresh", name], {"TILEWRIGHT_CACHE_DIR": folder}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **kept})
            times.append([float(number) for number in done.stdout.split()])
    return times[0][0], times[0][1], times[1][1]


def measure(name: str, table: Table) -> None:
    """Add the rows of one network."""
    case = CASES[name]()
    imported, built, again = fresh(name)
    path = case.peer()
    networks = {threads: build(case, threads)[0] for threads in THREADS}
    for title, inputs in case.inputs().items():
        row = [name, title, f"{imported:.2f} s", f"{built:.1f} s", f"{again:.2f} s"]
        for threads, network in networks.items():
            theirs = session(path, threads)
            expected = theirs(*inputs).astype(np.float64)
            if threads == THREADS[0]:
                row.append(f"{np.abs(network(*inputs) - expected).max() / np.abs(expected).max():.1e}")
            own, other, ratio = in_turns(network, theirs, inputs)
            row += [f"{own * 1e3:.2f} ms", f"{other * 1e3:.2f} ms", f"{ratio:.2f}"]
        table.add_row(*row)


def main(arguments: Sequence[str]) -> int:
    """Measure the named networks, all without names; return the exit status."""
    if arguments[:1] == ["--fresh"]:
        print(*build(CASES[arguments[1]](), THREADS[-1])[1:])
        return 0
    unknown = [name for name in arguments if name not in CASES]
    if unknown:
        print(f"no such network: {', '.join(unknown)}; there are {', '.join(CASES)}")
        return 2
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(title="Real networks; times of calls, and how many times as long as ONNX Runtime's they are")
    for heading in ("network", "sizes", "import", "build", "again", "difference"):
        table.add_column(heading)
    for threads in THREADS:
        for heading in (f"{threads} thread{'s' * (threads > 1)}", "ONNX Runtime", "ratio"):
            table.add_column(heading, justify="right")
    for name in arguments or CASES:
        measure(name, table)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
