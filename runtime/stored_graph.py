"""Store the graph of a model in its artifact: text, constants, and the settings that the passes ran with.

The code of a model does not need its graph. With the graph, :meth:`Executable.ir` and :meth:`Executable.profile` can
run the passes again, if everything that these depend on is unchanged: Tilewright and its libraries, the target, and the
caches of the machine.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graphir.expr import Call, Expr, Function, GlobalVar
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.parser import parse
from tilewright.graphir.printer import large_constants, to_text
from tilewright.graphir.printer_graph import Constants
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.passes.lower.segments import binds_sizes, cut
from tilewright.runtime import build_cache
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.signature import Signature
from tilewright.runtime.steps import Array
from tilewright.runtime.stored_function import ArrayReader, ArrayWriter
from tilewright.runtime.target_facts import target_facts
from tilewright.tensorir.errors import ArtifactError, TilewrightError
from tilewright.tensorir.target import Target


@dataclasses.dataclass(frozen=True)
class StoredGraph:
    """A graph, and the settings and the target of its build.

    Attributes:
        text: text of the graph, with digests of its large constants.
        constants: the large constants that are stored, by their digests.
        missing: the number of large constants that are not stored.
        labels: the names of the calls, in order of evaluation: the text has them in comments only.
        version: version of Tilewright's source and of its libraries; None if it was not known.
        target: the machine that the code is for, with its caches (``target_facts.target_facts``).
        settings: settings of the build: level, required and disabled passes, configuration.
        after: the stages after which the user's passes ran.
    """

    text: str
    constants: Mapping[str, Array]
    missing: int
    labels: Sequence[str | None]
    version: str | None
    target: Mapping[str, Any]
    settings: Mapping[str, Any]
    after: Sequence[str]

    @classmethod
    def of(cls, built: BuiltModel, present: Sequence[Array], whole: bool) -> StoredGraph:
        """Take the graph of a model that was built.

        Args:
            present: arrays that the artifact holds anyway.
            whole: whether to store all of its constants.
        """
        if isinstance(built.source, StoredSource):
            known = built.source.stored
            if whole and known.missing:
                raise ArtifactError(known.missing_text)
            return known
        module = built.source.module()
        constants = large_constants(module)
        there = {id(array) for array in present}
        chosen = {
            name: array for name, array in constants.items() if array.dtype.isnative and (whole or id(array) in there)
        }
        settings = dataclasses.asdict(built.settings)
        settings["config"] = {key: dataclasses.asdict(value) for key, value in built.settings.config.items()}
        try:
            json.dumps(settings)
        except TypeError as error:
            raise ArtifactError(
                f"the model cannot be exported: an option of a pass is not plain data: {error}"
            ) from None
        return cls(
            to_text(module),
            chosen,
            len(constants) - len(chosen),
            [call.span for call in _calls(module)],
            build_cache.source_version(),
            target_facts(built.target),
            settings,
            list(built.after),
        )

    @property
    def missing_text(self) -> str:
        """The error message if constants are missing."""
        return (
            f"{self.missing} of the weights are in the artifact only as the kernels read them, not as the graph has "
            "them: without those the passes cannot run again; export(path, graph=True) puts them into the artifact"
        )

    def encode(self, arrays: ArrayWriter) -> dict[str, Any]:
        """Encode the graph as plain data; its arrays go to ``arrays``."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**data, "constants": {name: arrays.array(array) for name, array in self.constants.items()}}

    @classmethod
    def decode(cls, data: Mapping[str, Any], arrays: ArrayReader) -> StoredGraph:
        """Invert :meth:`encode`."""
        constants = {name: arrays.array(array) for name, array in data["constants"].items()}
        return cls(**{**data, "constants": constants})

    def parsed(self) -> IRModule:
        """Parse the graph.

        Raises:
            ArtifactError: constants are missing, or the text cannot be parsed (a user's own operators are not
                registered).
        """
        if self.missing:
            raise ArtifactError(self.missing_text)
        try:
            module = parse(self.text, self.constants)
        except TilewrightError as error:
            raise ArtifactError(f"the graph in the artifact cannot be read here: {error}") from error
        return _labelled(module, self.labels)

    def obstacle(self, target: Target) -> str | None:
        """Return the reason why running the passes on the graph would give different code; None if it gives the same
        code."""
        if self.after:
            return f"the model was built with passes of its own (after {', '.join(self.after)}), not in an artifact"
        if self.version is None or self.version != build_cache.source_version():
            return "it was made by another version of Tilewright or of its libraries, whose passes are not here"
        here = target_facts(target)
        differing = [name for name, value in self.target.items() if here.get(name) != value]
        if differing:
            return f"it was made on another machine: {', '.join(differing)} differ, on which the passes depend"
        return None


class StoredSource:
    """A stored graph as the source of a model; see ``built_model.Source``."""

    def __init__(self, stored: StoredGraph, target: Target, signature: Signature) -> None:
        self.stored = stored
        self._target = target
        self._signature = signature

    def settings(self) -> BuildSettings:
        """Return the settings of the build."""
        data = self.stored.settings
        return BuildSettings(
            data["opt_level"], tuple(data["required_pass"]), tuple(data["disabled_pass"]), data["config"]
        )

    def text(self, constants: Constants) -> str:
        if constants == "digest":
            return self.stored.text
        return to_text(self.stored.parsed(), constants)

    def module(self) -> IRModule:
        return self._module

    def modules(self) -> Sequence[IRModule]:
        return self._modules

    @functools.cached_property
    def _module(self) -> IRModule:
        obstacle = self.stored.obstacle(self._target)
        if obstacle is not None:
            raise ArtifactError(f"the passes cannot run again on a model that was loaded from an artifact: {obstacle}")
        return self.stored.parsed()

    @functools.cached_property
    def _modules(self) -> list[IRModule]:
        module = self._module
        if not binds_sizes(module):
            return [module]
        return [segment.module for segment in cut(module, self._signature.symbols).segments]


def _calls(module: IRModule) -> list[Call]:
    return [node for node in post_order(*_functions(module).values()) if isinstance(node, Call)]


def _functions(module: IRModule) -> dict[GlobalVar, Function]:
    return {gv: function for gv, function in module.functions.items() if isinstance(function, Function)}


def _labelled(module: IRModule, labels: Sequence[str | None]) -> IRModule:
    """Give the calls in ``module`` the labels that they had before they were written as text."""
    calls = _calls(module)
    if len(calls) != len(labels):
        return module
    by_call = dict(zip(calls, labels, strict=True))

    def labelled(old: Expr, new: Expr) -> Expr:
        label = by_call.get(old) if isinstance(old, Call) else None
        return Call(new.op, new.args, new.attrs, new.type, label) if label and isinstance(new, Call) else new

    memo: dict[Expr, Expr] = {}
    made: dict[GlobalVar, AnyFunction] = {}
    for gv, function in _functions(module).items():
        new = rewrite(function, labelled, memo)
        assert isinstance(new, Function)
        made[gv] = new
    return module.with_functions(made)
