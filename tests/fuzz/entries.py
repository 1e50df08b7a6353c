"""Draw bad input for each entry point of the compiler, and hand it in.

An entry point is a class with ``draw``, which makes an input from a random number generator, and ``run``, which hands
it in. Whatever the input, ``run`` must return, or raise a ``TilewrightError``.
"""

from __future__ import annotations
import __future__

import abc
import ast
import contextlib
import json
import linecache
import os
import random
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from click.testing import CliRunner

import tilewright as tw
from tests.fuzz import seeds
from tests.fuzz.constructors import Words
from tests.fuzz.entry import Entry
from tests.fuzz.spoiled import NAMES, NUMBERS, changed_data, changed_text
from tests.onnx.mutants import mutant
from tests.onnx.mutations import changed_bytes
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.runtime import build_cache, packed_file
from tilewright.runtime.artifact import FORMAT, Artifact
from tilewright.runtime.disk_cache import DiskCache
from tilewright.tensorir import llvm_names
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.schedule.trace import Trace


class GraphText(Entry):
    """Reads the text of the graph-level IR; a module that can be read must print, and its text must read back."""

    name = "graph text"
    cost = 4

    def draw(self, rng: random.Random) -> str:
        texts = seeds.graph_texts()
        return changed_text(rng, rng.choice(texts), texts)

    def run(self, value: str) -> None:
        text = gi.to_text(gi.parse(value), "inline")
        gi.parse(text)


class LoopText(Entry):
    """Reads the text of the loop-level IR, and verifies and prints what can be read."""

    name = "loop text"
    cost = 4

    def draw(self, rng: random.Random) -> str:
        texts = seeds.loop_texts()
        return changed_text(rng, rng.choice(texts), texts)

    def run(self, value: str) -> None:
        func = ti.parse(value)
        ti.parse(str(func))
        ti.verify(func)


class TargetText(Entry):
    """Reads the text of a target. LLVM is asked once for its names: a process for each would take days."""

    name = "target text"
    _SEEDS = (
        "llvm -mcpu=x86-64-v3 -mtriple=x86_64-unknown-linux-gnu -num-threads=2",
        "llvm --mcpu znver4 --num-threads 2",
        "numba -num-threads=3",
        "llvm -mcpu=x86-64-v4 -mattr=-avx512f,+avx2",
        "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-v2",
    )

    def __init__(self) -> None:
        answer = llvm_names.ask("generic", "x86_64-unknown-linux-gnu")
        llvm_names.ask = lambda mcpu, mtriple, changes=(): answer  # type: ignore[assignment]

    def draw(self, rng: random.Random) -> Any:
        if rng.random() < 0.1:
            names = ["mcpu", "mattr", "mtriple", "num_threads", "kind"]
            return {name: changed_data(rng, rng.choice(NAMES)) for name in rng.sample(names, 2)}
        return changed_text(rng, rng.choice(self._SEEDS), self._SEEDS)

    def run(self, value: Any) -> None:
        target = tw.Target(**value) if isinstance(value, Mapping) else tw.Target(value)
        assert tw.Target(str(target)) == target


class _Packed(Entry, abc.ABC):
    """Files of sections with checksums: bytes are changed, or data, whose checksums are then right."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz"))
        self.content, self.magic = self.valid()
        self.data, self.arrays = packed_file.unpack(np.frombuffer(self.content, np.uint8), self.magic)

    @abc.abstractmethod
    def valid(self) -> tuple[bytes, bytes]:
        """Return the bytes of a valid file, and those that it begins with."""

    def draw(self, rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return changed_bytes(rng, self.content)
        written = bytearray()
        arrays = list(self.arrays)
        if rng.random() < 0.3:
            rng.shuffle(arrays)
            del arrays[rng.randrange(len(arrays) + 1) :]
        data = json.loads(json.dumps(self.data))
        for _ in range(rng.choice((1, 1, 2))):
            data = changed_data(rng, data, plain=True)
        with contextlib.suppress(ValueError):  # numbers with more digits than Python writes
            packed_file.pack(written.extend, self.magic, data, arrays)
        return bytes(written)


class ArtifactFile(_Packed):
    """Reads artifacts."""

    name = "artifact"

    def valid(self) -> tuple[bytes, bytes]:
        path = self.folder / "net.tw"
        tw.build(seeds.network()).export(path, graph=True)
        return path.read_bytes(), b"tilewright artifact %d\n" % FORMAT

    def run(self, value: bytes) -> None:
        path = self.folder / "bad.tw"
        path.write_bytes(value)
        Artifact.open(path)


class CacheEntry(_Packed):
    """Looks for a build whose entry in the cache is bad."""

    name = "cache entry"
    cost = 3

    def valid(self) -> tuple[bytes, bytes]:
        os.environ.update(TILEWRIGHT_CACHE="on", TILEWRIGHT_CACHE_DIR=str(self.folder / "kept"))
        self.module = seeds.network()
        tw.build(self.module)
        cache = build_cache.open_cache(tw.PassContext())
        assert cache is not None
        cache.wait()
        os.environ["TILEWRIGHT_CACHE"] = "off"
        self.cache: DiskCache = cache
        graph = build_cache.graph_key(self.module, tw.Target("llvm"), tw.PassContext())
        assert graph is not None
        self.graph = graph
        self.path = cache.directory / f"{build_cache.key_of(graph, self.module)}.entry"
        return self.path.read_bytes(), b"tilewright entry 1\n"

    def run(self, value: bytes) -> None:
        self.path.write_bytes(value)
        constants = [node for node in gi.visitor.post_order(self.module["main"]) if isinstance(node, gi.Constant)]
        build_cache.find(self.cache, self.graph, self.module, constants)


class OnnxBytes(Entry):
    """Imports ONNX files whose bytes, or whose fields, are changed."""

    name = "onnx"
    cost = 4

    def draw(self, rng: random.Random) -> Any:
        return mutant(rng.getrandbits(60), 0)[1]

    def run(self, value: Any) -> None:
        tw.from_onnx(value)


class Environment(Entry):
    """Runs a pass, opens the cache and asks for threads under bad values of environment variables."""

    name = "environment"
    _SEEDS: ClassVar[dict[str, str]] = {
        "TILEWRIGHT_LOG": "fusion,cache,all",
        "TILEWRIGHT_VERIFY": "mutation",
        "TILEWRIGHT_CACHE": "off",
        "TILEWRIGHT_CACHE_BYTES": "1000000000",
        "NUMBA_NUM_THREADS": "2",
    }

    def __init__(self) -> None:
        os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp(prefix="fuzz")
        self.module = seeds.network()

    def draw(self, rng: random.Random) -> dict[str, str]:
        found = {}
        for name in rng.sample(sorted(self._SEEDS), rng.choice((1, 2))):
            text = rng.choice((self._SEEDS[name], rng.choice(NUMBERS), rng.choice(NAMES)))
            changed = changed_text(rng, text, tuple(self._SEEDS.values())) if rng.random() < 0.7 else text
            found[name] = changed.replace("\0", "").encode("utf-8", "ignore").decode()  # others cannot be set
        return found

    def run(self, value: Mapping[str, str]) -> None:
        before = dict(os.environ)
        os.environ.update(value)
        try:
            tw.passes.get_pass("SimplifyExpr")(self.module)
            build_cache.open_cache(tw.PassContext())
            tw.Target("llvm")
        finally:
            os.environ.clear()
            os.environ.update(before)
            tw.passes.environment.configure_logging()


class Config(Entry):
    """Makes a context of bad settings, and runs a pass in it."""

    name = "config"

    def __init__(self) -> None:
        self.module = seeds.network()
        self.options = tw.PassContext.list_configs()

    def draw(self, rng: random.Random) -> dict[str, Any]:
        key = rng.choice(sorted(self.options))
        values = {name: field["default"] for name, field in self.options[key].items()}
        settings: dict[str, Any] = {
            "opt_level": 2,
            "required_pass": ["FoldConstant"],
            "disabled_pass": ["FuseOps", "SimplifyExpr"],
            "instruments": [],
            "config": {key: changed_data(rng, values), f"{key}.{rng.choice(NAMES)}": 1},
        }
        if rng.random() < 0.7:
            del settings["config"][list(settings["config"])[1]]
        return {name: changed_data(rng, value) if rng.random() < 0.2 else value for name, value in settings.items()}

    def run(self, value: Mapping[str, Any]) -> None:
        with tw.PassContext(**{name: value[name] for name in value if isinstance(name, str)}):
            tw.passes.Sequential([tw.passes.get_pass("SimplifyExpr")])(self.module)


class CommandLine(Entry):
    """Runs commands with bad arguments: the exit code says that they were bad, and nothing is left to a traceback."""

    name = "command line"
    cost = 20
    _SEEDS = (
        "run net.ir -d batch=2 -t llvm -O 2 --value x=1.5 --seed 3",
        "run net.ir --shape x=2,12 --threads 1 --config build.workers=1",
        "inspect net.tw --json",
        "ir net.ir --stage optimized",
        "passes FuseOps --json",
        "passes",
        "compile net.ir -o out.tw --disable-pass FuseOps --require-pass FoldConstant",
        "explain net.ir --json",
        "--help",
    )

    def __init__(self) -> None:
        from tilewright.cli import cli

        self.cli = cli
        os.chdir(tempfile.mkdtemp(prefix="fuzz"))
        Path("net.ir").write_text(gi.to_text(seeds.network(), "inline"), encoding="utf-8")
        tw.build(seeds.network()).export("net.tw", graph=True)

    def draw(self, rng: random.Random) -> list[str]:
        words = rng.choice(self._SEEDS).split()
        for _ in range(rng.choice((1, 1, 2))):
            place = rng.randrange(len(words))
            what = rng.randrange(5)
            if what == 0:
                words[place] = rng.choice((*NAMES, *NUMBERS))
            elif what == 1:
                words[place] = changed_text(rng, words[place], self._SEEDS)
            elif what == 2 and "=" in words[place]:
                words[place] = words[place].partition("=")[0] + "=" + rng.choice((*NUMBERS, *NAMES))
            elif what == 3:
                words.insert(place, rng.choice(rng.choice(self._SEEDS).split()))
            else:
                del words[place]
                words = words or ["run"]
        # A file that is written stays in the folder; arguments of a program have no zeros and no lone surrogates.
        clean = [word.replace("\0", "").replace("/", "").encode("utf-8", "ignore").decode() for word in words]
        return [word for word in clean if word != ".."]

    def run(self, value: list[str]) -> None:
        result = CliRunner().invoke(self.cli, value)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 1, 2, 3), result.output


class Call(Entry):
    """Calls a model with bad inputs."""

    name = "call"

    def __init__(self) -> None:
        self.model = tw.build(seeds.network())

    def draw(self, rng: random.Random) -> tuple[list[Any], dict[str, Any]]:
        def array() -> Any:
            kind = rng.choice(("f4", "f4", "f8", "i8", "?", "O", "S3", "M8[s]", "c8", ">f4", "f2", "V4"))
            shape = tuple(rng.choice((0, 1, 2, 3, 12, 24, 25)) for _ in range(rng.choice((0, 1, 2, 2, 2, 3))))
            made = np.zeros(shape, kind)
            return rng.choice((made, made.T, made[..., ::-1] if shape else made, made.tolist(), np.ma.array(made)))

        values = [rng.choice((array(), array(), changed_data(rng, ()))) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        named = {rng.choice(("x", "rows", *NAMES)): array() for _ in range(rng.choice((0, 0, 1)))}
        return values, named

    def run(self, value: tuple[list[Any], dict[str, Any]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model(*value[0], **value[1])


class ScheduleTrace(Entry):
    """Reads the trace of a schedule, and replays it."""

    name = "schedule trace"
    cost = 10

    def __init__(self) -> None:
        self.func = seeds.matmul()
        sch = ti.Schedule(self.func)
        block = sch.get_block(seeds.MATMUL_BLOCK)
        i, j, k = sch.get_loops(block)
        outer, inner = sch.split(i, [None, 4])
        sch.reorder(outer, j, k, inner)
        sch.unroll(inner)
        sch.decompose_reduction(block, k)
        sch.annotate(block, "note", 1.5)
        self.text = sch.trace.to_json()

    def draw(self, rng: random.Random) -> str:
        if rng.random() < 0.3:
            return changed_text(rng, self.text, (self.text,))
        with contextlib.suppress(ValueError):
            return json.dumps(changed_data(rng, json.loads(self.text), plain=True))
        return self.text

    def run(self, value: str) -> None:
        Trace.from_json(value).apply(ti.Schedule(self.func))


class Script(Entry):
    """Reads loops that are written as Python. Text that Python does not compile does not reach us."""

    name = "loops as Python"
    cost = 5

    def __init__(self) -> None:
        self.count = 0

    def draw(self, rng: random.Random) -> str:
        texts = seeds.scripts()
        while True:
            value = changed_text(rng, rng.choice(texts), texts)
            if _is_decorated_function(value):
                return value

    def run(self, value: str) -> None:
        self.count += 1
        file = f"<spoiled {self.count}>"
        names: dict[str, Any] = {"ti": ti, "np": np, "__name__": "spoiled"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(value, file, "exec", flags=__future__.annotations.compiler_flag)
        linecache.cache[file] = (len(value), None, value.splitlines(keepends=True), file)
        try:
            exec(code, names)
        finally:
            del linecache.cache[file]


def _is_decorated_function(text: str) -> bool:
    """Return whether a text is a function for ``ti.func`` and nothing else: it is random, and the rest would run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (definition,) = ast.parse(text).body
            compile(text, "text", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if not isinstance(definition, ast.FunctionDef):
        return False
    plain = not (definition.args.defaults or any(definition.args.kw_defaults))
    return plain and [ast.unparse(each) for each in definition.decorator_list] == ["ti.func"]


ENTRIES: dict[str, type[Entry]] = {
    kind.name: kind
    for kind in (
        *(GraphText, LoopText, TargetText, ArtifactFile, CacheEntry, OnnxBytes, Environment, Config, CommandLine),
        *(Call, ScheduleTrace, Script, Words),
    )
}

#: What an input may raise.
REFUSED = TilewrightError
