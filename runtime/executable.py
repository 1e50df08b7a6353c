"""Call a compiled model, show it at every stage of its compilation, profile it, export it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.graphir.printer_graph import Constants
from tilewright.passes.environment import PROFILE
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.interpreters import check_interpreter
from tilewright.runtime.state import ModelState
from tilewright.runtime.steps import Step, Steps
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, ArtifactError, ExecutionError, InputError

if TYPE_CHECKING:
    from tilewright.runtime.observe.explain.explanation import Explanation
    from tilewright.runtime.observe.profile.profile import Profile
    from tilewright.runtime.observe.profile.recording import Recording

# Modules of profiles and artifacts are imported when they are used: a model that is only called needs neither.


class Executable:
    """A compiled model, made by :func:`tilewright.build` and :func:`tilewright.load`.

    Call it with one array for each input, by position or by name; it returns one array, or a tuple if the model's
    function does. Inputs are NumPy arrays or arrays of any library that supports DLPack. They are never written to;
    views that are not contiguous are copied first. Several threads may call one executable at the same time; calls of
    one with :attr:`state` take turns.

    A model for another machine can be shown and exported; calling it raises an ExecutionError.

    Attributes:
        signature: names and types of the inputs, and the type of the result.
        target: the machine that the code is for.
    """

    def __init__(self, step: Step | Steps, built: BuiltModel) -> None:
        self.signature = built.signature
        self.target = built.target
        self._step = step
        self._run: Step | Steps | Recording = step
        self._built = built
        self._stages = built.stages()
        self._num_threads = built.target.num_threads
        self._state = ModelState(built.state, built.signature) if built.state else None

    def __call__(self, /, *args: Any, convert: bool = False, **named: Any) -> Any:
        """Run the model.

        Args:
            args: the inputs, in the order of the signature; the rest by name.
            convert: convert lists, numbers and arrays of another element type instead of refusing them.

        Raises:
            InputError: an input does not fit the signature (also a ``TypeError`` and a ``ValueError``).
            ExecutionError: the model computed a negative size for one of its tensors, or there is not enough memory.
            LinearAlgebraError: a matrix that a PyTorch program inverts or factorizes cannot be (also a ``ValueError``,
                as NumPy's ``LinAlgError`` is). The state stays as it was.
        """
        signature = self.signature
        if self._state is not None and self._state.is_left_out(args, named, signature):
            return self._with_state(self._state, args, named, convert)
        inputs, sizes = signature.check(signature.arrange(args, named), convert)
        return signature.restructure(self._run(inputs, sizes))

    def _with_state(self, state: ModelState, args: tuple[Any, ...], named: Mapping[str, Any], convert: bool) -> Any:
        """Run the model on its state. Kept out of ``__call__``: a nested function would make cells of variables there,
        which slows down every call."""
        signature = self.signature

        def run(values: Mapping[str, Any]) -> Sequence[Any]:
            flat = self._run(*signature.check(signature.arrange(args, {**named, **values}), convert))
            return flat if signature.is_plain else signature.delivered(flat)

        return state.call(run)

    @property
    def state(self) -> dict[str, Any]:
        """The state of the model by the names of inputs, such as buffers that a PyTorch program changes: arrays that
        a call reads and changes in place, unless it gives the inputs itself. Write to them to begin anew. Empty for a
        model without state."""
        return {} if self._state is None else dict(self._state.values)

    def _arranged(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """Return the inputs of a call, with the state if it leaves that out."""
        state = self._state
        if state is not None and state.is_left_out(args, named, self.signature):
            named = {**named, **state.values}
        return self.signature.arrange(args, named)

    @property
    def at_addresses(self) -> Callable[[Sequence[int], tuple[int, ...]], list[Any]] | None:
        """The function that runs the model on inputs that are given by the addresses of their elements, and on the
        sizes of :attr:`Signature.symbols`; it returns the flat results. The caller makes sure that the inputs fit the
        signature, are contiguous and aligned, and stay alive. It is for callers that know their inputs, such as
        compiled graphs of PyTorch: it saves most of a call's overhead.

        None where a call is more than that: the model reads sizes from its data, checks results or returns views of
        them, is no machine code, or is recorded.
        """
        return self._run.at_addresses if isinstance(self._run, Step) and self.signature.is_plain else None

    def profile(self, /, *args: Any, repeat: int = 20, convert: bool = False, **named: Any) -> Profile:
        """Measure the kernels of a call: time, arithmetic and bytes compared with the machine's limits, threads, and
        the memory for intermediate values.

        The entry point is compiled again, with clock reads around each call of a kernel; the model itself does not
        change. The model is called ``repeat`` times without and ``repeat`` times with clock reads, in turns. For the
        target ``numba`` the entry point then runs in Python, and Python's overhead of calling a kernel counts as the
        kernel's time.

        Args:
            args: the inputs, as in a call; the rest by name.
            repeat: the number of calls that are measured.
            convert: as in a call.

        Raises:
            ValueError: ``repeat`` is not positive.
            ArtifactError: the model was loaded from an artifact, and the passes cannot run on its graph again.
            InputError, ExecutionError: as in a call.
        """
        from tilewright.runtime.observe.profile.measure import profile

        inputs, sizes = self.signature.check(self._arranged(args, named), convert)
        return profile(self._built, self._step, inputs, sizes, repeat)

    @property
    def num_threads(self) -> int:
        """The greatest number of threads that a call runs on: that of the target, unless it is set here. The process
        may have fewer (``codegen.threads.thread_limit``). Calls of other models at the same time run on as few.

        Raises:
            ValueError: it is set to less than one, to more than the target has, or for the target ``numba``.
            TypeError: it is set to something else than an integer.
        """
        return self._num_threads

    @num_threads.setter
    def num_threads(self, number: int) -> None:
        if isinstance(number, bool) or not isinstance(number, int):
            raise ArgumentTypeError(f"num_threads must be an integer, found {number!r}")
        if number < 1:
            raise ArgumentValueError(f"num_threads must be at least 1, found {number}")
        if number != self._num_threads:
            self._built.limit_threads(number)
        self._num_threads = number

    def explain(
        self, *args: Any, measure: bool = True, repeat: int = 20, convert: bool = False, **named: Any
    ) -> Explanation:
        """Explain the speed of each kernel in a sentence, from facts: its vectors, threads, tails, copies, and the
        machine's limits; and name what would change it.

        The passes run again for their remarks; nothing is compiled again, and the model does not change.

        Args:
            args: the inputs, as in a call; the rest by name. Without any, inputs are drawn, with sizes that the model
                accepts for its symbolic dimensions.
            measure: profile calls (see :meth:`profile`); False: only say what the code shows. Symbolic dimensions are
                then unknown if there are no inputs.
            repeat: the number of calls that are measured.
            convert: as in a call.

        Raises:
            ValueError: ``repeat`` is not positive.
            ArtifactError: the model was loaded from an artifact, and the passes cannot run on its graph again.
            InputError, ExecutionError: as in a call with the given inputs.
        """
        from tilewright.runtime.observe.example_inputs import example_inputs
        from tilewright.runtime.observe.explain.explain import explain

        given = bool(args or named)
        if not given and not measure:
            return explain(self._built, {}, None)
        try:
            drawn = {} if given else example_inputs(self._built)
            _, sizes = self.signature.check(self._arranged(args, named or drawn), convert)
            known = {symbol.name: size for symbol, size in zip(self.signature.symbols, sizes, strict=True)}
            profile = self.profile(*args, repeat=repeat, convert=convert, **(named or drawn)) if measure else None
        except (InputError, ExecutionError) as error:
            if given:
                raise
            return explain(self._built, {}, None, f"There are no times: drawn inputs do not suit the model ({error}).")
        return explain(self._built, known, profile)

    def record_if_asked(self) -> None:
        """Record the calls from now on if the environment requests it (``TILEWRIGHT_PROFILE``).

        Raises:
            ArtifactError: as :meth:`profile`.
        """
        if os.environ.get(PROFILE):
            from tilewright.runtime.observe.profile.switch import recording_of

            self._run = recording_of(self._built)

    def export(self, path: str | os.PathLike[str], graph: bool = False) -> None:
        """Write the model as an artifact, a file that :func:`tilewright.load` loads in another process, or on another
        machine that has the instructions (``Target("llvm", mcpu="x86-64-v3")`` chooses them). The file is written
        atomically.

        Args:
            path: path of the file, which is replaced.
            graph: also write all weights as they are in the graph, so that :meth:`ir` and :meth:`profile`, which run
                the passes again, work for the loaded model. Without it, only weights that the kernels read unchanged
                are written.

        Raises:
            ArtifactError: the target is ``numba``, or the model has symbolic dimensions that were not made by
                ``graphir.symbol``.
            OSError: the file cannot be written.
        """
        from tilewright.runtime import artifact

        artifact.save(self._built, path, graph)

    def arena_bytes(self, **sizes: int) -> int:
        """Return the bytes of memory for intermediate values, for the given sizes of the symbolic dimensions (of the
        inputs, and those that the model itself computes).

        Raises:
            ExecutionError: a dimension is missing or unknown.
        """
        names = [symbol.name for symbol in self._step.symbols]
        if sorted(names) != sorted(sizes):
            raise ExecutionError(f"expected the sizes of {', '.join(names) or 'nothing'}, found {', '.join(sizes)}")
        (result,) = self._step.arena_bytes(*[sizes[name] for name in names])
        return result

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose text :meth:`ir` returns, in order of compilation."""
        return tuple(self._stages)

    def ir(self, stage: str, constants: Constants = "digest", *, kernel: str | None = None) -> str:
        """Return the model as text after a stage of its compilation.

        Args:
            stage: one of :attr:`stages`: ``graph`` (as given), ``optimized`` (after the graph passes), ``tensor``
                (loop nests), ``scheduled``, ``lowered`` (the input of code generation), and then ``llvm`` and
                ``assembly``, or ``numba``. A model with sizes that it computes itself is cut into several functions
                after ``graph``; their texts follow each other. (Where the code comes from an earlier build, see
                ``runtime.build_cache``, the passes run now.)
            constants: ``"digest"`` writes hashes in place of large constants; ``"inline"`` writes their data, so that
                :func:`tilewright.graphir.parse` can read the text of a graph back by itself.
            kernel: the name of a kernel, as :meth:`profile` and :meth:`explain` show it: return the text of this one
                alone, from the stage ``tensor`` on.

        Raises:
            ValueError: the stage is unknown, or it has no such kernel.
            ArtifactError: the model was loaded from an artifact, and the passes cannot run on its graph again.
        """
        if stage not in self._stages:
            raise ArgumentValueError(f"unknown stage {stage!r}; expected one of {', '.join(self.stages)}")
        if kernel is not None:
            from tilewright.runtime.kernel_stages import kernel_text

            functions = [segment.lowered() for segment in self._built.segments]
            return kernel_text(functions, kernel, stage, self.target)
        return "\n".join(self._stages[stage](constants))

    @property
    def source(self) -> str:
        """The generated code: Python for the target ``numba``, LLVM IR for ``llvm``."""
        return self.ir(self.target.kind)

    def __repr__(self) -> str:
        return f"<Executable {self.signature} for {self.target}>"


def load(path: str | os.PathLike[str], num_threads: int | None = None) -> Executable:
    """Load a model that :meth:`Executable.export` wrote. No pass runs, and nothing is compiled.

    The machine code in the file is run: load only files that you trust.

    Args:
        path: the file.
        num_threads: the greatest number of threads of a call (:attr:`Executable.num_threads`); default: as
            many as the target has.

    Raises:
        ValueError: ``num_threads`` is less than one, or more than the target has.
        ArtifactError: the file is not an artifact, is damaged, has another version of the format, or holds code with
            instructions that this machine lacks.
        ExecutionError: this is a subinterpreter.
        OSError: it cannot be read.
    """
    from tilewright.runtime.artifact import Artifact

    check_interpreter()
    built = Artifact.open(path).built()
    model = Executable(built.step(), built)
    if num_threads is not None:
        model.num_threads = num_threads
    try:
        model.record_if_asked()
    except ArtifactError as error:
        warnings.warn(f"the calls of {os.fspath(path)} are not recorded: {error}", RuntimeWarning, stacklevel=2)
    return model
