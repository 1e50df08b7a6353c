"""Write a compiled model to one file, and load it to run without its graph and without any pass.

The file (in the format of ``packed_file``, with a checksum for each part) holds the object code, the constants as the
kernels read them, signature, target, and the text of the graph. Equal models give equal files. The file is read into
memory as a whole, so overwriting it later does not affect a model that was loaded from it. No code in it runs before
all checksums are verified; but then its machine code runs: load only files that you trust.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.llvm.team import RUNTIME_INTERFACE
from tilewright.graphir.dims import Dim
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.runtime.built_model import BuiltModel, CompiledFunction
from tilewright.runtime.packed_file import Array, DamagedFileError, described_size, pack, replacing, unpack
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import Claim, Place, Wiring
from tilewright.runtime.stored_function import (
    ArrayReader,
    ArrayWriter,
    StoredFunction,
    decode_dim,
    decode_function,
    decode_type,
    encode_dim,
    encode_function,
    encode_type,
    unnamed_symbols,
)
from tilewright.runtime.stored_graph import StoredGraph, StoredSource
from tilewright.tensorir.aligned import aligned_bytes
from tilewright.tensorir.encoding import MALFORMED
from tilewright.tensorir.errors import ArgumentTypeError, ArtifactError, CodegenError
from tilewright.tensorir.processors import used_features
from tilewright.tensorir.target import Target

#: Increase this when the meaning of stored data changes.
FORMAT = 2
_START = b"tilewright artifact "
_MAGIC = _START + b"%d\n" % FORMAT

#: Files of more bytes are checked before memory is taken for them.
_LARGE = 1 << 26


def save(built: BuiltModel, path: str | os.PathLike[str], graph: bool) -> None:
    """Write a model as an artifact.

    Args:
        graph: whether to store all constants of the graph; else only those that the kernels read unchanged.

    Raises:
        ArtifactError: the code is Python source, or a symbolic dimension is not identified by its name.
        OSError: the file cannot be written.
    """
    try:
        functions = [segment.stored() for segment in built.segments]
    except CodegenError as error:
        raise ArtifactError(f"the model cannot be exported: {error}; build it with target='llvm'") from None
    unnamed = unnamed_symbols(_dims(built, functions))
    if unnamed:
        raise ArtifactError(
            f"the model cannot be exported: the symbolic dimension {unnamed[0]!r} is a variable that was made by hand; "
            f"make it with graphir.symbol({unnamed[0]!r})"
        )
    arrays = ArrayWriter()
    signature, wiring = built.signature, built.wiring
    data = {
        "tilewright": importlib.metadata.version("tilewright"),
        "interface": RUNTIME_INTERFACE,
        "inputs": [[argument.name, encode_type(argument.type)] for argument in signature.inputs],
        "result": encode_type(signature.result),
        "result_names": signature.result_names,
        "checks": signature.checks,
        "views": signature.views,
        "functions": [
            {
                "image": encode_function(function, arrays),
                "result": encode_type(segment.result),
                "claims": [
                    [encode_dim(claim.found), encode_dim(claim.expected), claim.where] for claim in segment.claims
                ],
            }
            for function, segment in zip(functions, built.segments, strict=True)
        ],
        "wiring": None
        if wiring is None
        else {
            "places": [
                [place.args, place.results, [[symbol.name, value] for symbol, value in place.sizes]]
                for place in wiring.places
            ],
            "results": wiring.results,
        },
    }
    constants = [constant for function in functions for constant in function.constants]
    data["state"] = [[name, arrays.array(value)] for name, value in built.state.items()]
    data["graph"] = StoredGraph.of(built, constants, graph).encode(arrays)
    with replacing(Path(path)) as file:
        pack(file.write, _MAGIC, data, arrays.arrays)


def _dims(built: BuiltModel, functions: list[StoredFunction]) -> Iterator[Dim]:
    """Iterate over the dimensions that are stored."""
    for found in (*(argument.type for argument in built.signature.inputs), built.signature.result):
        yield from _dims_of(found)
    for function, segment in zip(functions, built.segments, strict=True):
        yield function.arena_bytes
        yield from _dims_of(segment.result)
        for claim in segment.claims:
            yield from claim[:2]
    for place in built.wiring.places if built.wiring is not None else ():
        yield from (symbol for symbol, _ in place.sizes)


def _dims_of(found: Type) -> Iterator[Dim]:
    if isinstance(found, TupleType):
        for field in found.fields:
            yield from _dims_of(field)
    elif isinstance(found, TensorType):
        yield from found.shape


@dataclasses.dataclass(frozen=True)
class Artifact:
    """The content of an artifact with verified checksums.

    Attributes:
        path: path of the file.
        size: size of the file, in bytes.
        version: version of Tilewright that wrote it.
        interface: version of the run-time functions that its code calls (``codegen.llvm.team``).
        signature: signature of the model.
        functions: its functions; one, unless sizes become known while the model runs.
        stored: its graph, with the settings and the target of the build.
        state: the values of inputs that are state before the first call, by name.
    """

    path: Path
    size: int
    version: str
    interface: int
    signature: Signature
    functions: list[StoredFunction]
    stored: StoredGraph
    state: Mapping[str, Array]
    _interfaces: list[tuple[Type, list[Claim]]]
    _wiring: Wiring | None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Artifact:
        """Read a file.

        Raises:
            ArtifactError: the file is not an artifact, is damaged, or has another version of the format.
            OSError: it cannot be read.
        """
        path = Path(path)
        content = _content(path)
        _check_start(path, content)
        try:
            data, found = unpack(content, _MAGIC)
        except DamagedFileError as error:
            raise ArtifactError(f"{path} is damaged: {error}") from None
        try:
            return cls._decoded(path, len(content), data, ArrayReader(found))
        except MALFORMED as error:
            raise ArtifactError(
                f"{path}: expected the data of format {FORMAT}, found something else ({type(error).__name__}: {error})"
            ) from error

    @classmethod
    def _decoded(cls, path: Path, size: int, data: Mapping[str, Any], arrays: ArrayReader) -> Artifact:
        inputs: list[Argument] = []
        for name, encoded in data["inputs"]:
            found = decode_type(encoded)
            if not isinstance(found, TensorType):
                raise ArgumentTypeError(f"input {name}: expected a tensor, found {found}")
            inputs.append(Argument(name, found))
        interfaces = [
            (
                decode_type(each["result"]),
                [Claim(decode_dim(found), decode_dim(expected), where) for found, expected, where in each["claims"]],
            )
            for each in data["functions"]
        ]
        wiring = data["wiring"]
        if wiring is not None:
            places = [
                Place(tuple(args), tuple(results), tuple((decode_dim({"symbol": s}), value) for s, value in sizes))
                for args, results, sizes in wiring["places"]
            ]
            wiring = Wiring(places, tuple(wiring["results"]))
        return cls(
            path,
            size,
            data["tilewright"],
            data["interface"],
            Signature(
                inputs,
                decode_type(data["result"]),
                data["result_names"],
                data.get("checks", ()),
                data.get("views", ()),
            ),
            [decode_function(each["image"], arrays) for each in data["functions"]],
            StoredGraph.decode(data["graph"], arrays),
            {name: arrays.array(place) for name, place in data.get("state", ())},
            interfaces,
            wiring,
        )

    @property
    def features(self) -> frozenset[str]:
        """The instruction set extensions that its code may use, by LLVM's names."""
        return used_features(frozenset(self.stored.target["features"]))

    def obstacles(self) -> list[str]:
        """List the reasons why this machine cannot run it."""
        target, here = self.stored.target, Target("llvm")
        found: list[str] = []
        if _system(target["mtriple"]) != _system(here.mtriple):
            found.append(f"its code is for {target['mtriple']}, and this machine is {here.mtriple}")
        missing = sorted(self.features - here.features)
        if missing:
            found.append(
                f"its code, for the processor {target['mcpu']}, may use instructions that this machine ({here.mcpu}) "
                f"lacks: {', '.join(missing)}; build it for both, as with Target('llvm', mcpu='x86-64-v2')"
            )
        if self.interface != RUNTIME_INTERFACE:
            found.append(
                f"its code expects version {self.interface} of the run time (Tilewright {self.version}), and this is "
                f"version {RUNTIME_INTERFACE}"
            )
        return found

    def built(self) -> BuiltModel:
        """Link the code: return the model, ready to run.

        Raises:
            ArtifactError: this machine cannot run it.
        """
        obstacles = self.obstacles()
        if obstacles:
            raise ArtifactError(f"{self.path} cannot run here: {'; '.join(obstacles)}")
        facts = self.stored.target
        target = Target("llvm", mcpu=facts["mcpu"], mattr=facts["mattr"], num_threads=facts["num_threads"])
        source = StoredSource(self.stored, target, self.signature)
        settings = source.settings()

        def module(number: int) -> IRModule:
            return source.modules()[number]

        try:
            functions = [
                CompiledFunction.from_stored(
                    function, target, result, claims, functools.partial(module, number), settings
                )
                for number, (function, (result, claims)) in enumerate(
                    zip(self.functions, self._interfaces, strict=True)
                )
            ]
        except CodegenError as error:
            raise ArtifactError(f"{self.path}: {error}") from error
        return BuiltModel(source, target, settings, {}, self.signature, functions, self._wiring, self.state)


def _content(path: Path) -> Array:
    """Read all bytes of a file into memory aligned to a cache line, as the kernels expect of constants."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _LARGE:  # it may have no such content: no memory is taken before that is known
            _check_start(path, np.frombuffer(file.read(len(_START) + 20), np.uint8))
            file.seek(0)
            try:
                expected = described_size(file, _MAGIC)
            except DamagedFileError as error:
                raise ArtifactError(f"{path} is damaged: {error}") from None
            if size != expected:
                raise ArtifactError(f"{path} is damaged: expected {expected} bytes, found {size}")
            file.seek(0)
        content = aligned_bytes(size)
        filled = file.readinto(content.data)
    content = content[:filled]
    content.flags.writeable = False
    return content


def _check_start(path: Path, content: Array) -> None:
    start = content[: len(_START) + 20].tobytes()
    found = re.match(re.escape(_START) + rb"(\d+)\n", start)
    if found is None:
        raise ArtifactError(
            f"{path} is no artifact of Tilewright, or is damaged: expected it to begin with {_MAGIC!r}, "
            f"found {start[: len(_MAGIC)]!r}"
        )
    if int(found[1]) != FORMAT:
        raise ArtifactError(
            f"{path} has version {int(found[1])} of the format of artifacts; expected version {FORMAT}: export the "
            "model again with this version of Tilewright"
        )


def _system(triple: str) -> list[str]:
    """Return the parts of a target triple that decide where code runs: all but the vendor and the version of the
    operating system."""
    architecture, _, *system = triple.split("-")
    return [architecture, *(re.sub(r"[\d.]+$", "", part) for part in system)]
