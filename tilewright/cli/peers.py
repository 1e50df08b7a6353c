"""Run the same model in other libraries, for ``tilewright bench --compare``.

Each runs in this process, with as many threads as our target has. Their threads do not spin where that can be switched
off: they would keep the cores busy while others are measured.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.cli.inputs import Array
from tilewright.cli.models import Model


class NotComparableError(Exception):
    """A library cannot run the model; the message gives the reason."""


class Peer(NamedTuple):
    """A library that has the model loaded.

    Attributes:
        name: the name of the library.
        version: its version.
        run: calls the model.
    """

    name: str
    version: str
    run: Callable[[], Any]


def load_peer(name: str, model: Model, arrays: Mapping[str, Array], threads: int) -> Peer:
    """Load the model into a library.

    Args:
        arrays: the inputs by name, in order.

    Raises:
        NotComparableError: the library is not installed, or cannot read this kind of MODEL.
    """
    if name == "torch":
        # Its OpenMP reads this when it starts: spinning threads would take the core that others are measured on.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotComparableError(f"the package {error.name} is not installed") from None
    run = PEERS[name](library, model, arrays, threads)
    return Peer(name, str(library.__version__).partition("+")[0], run)


def _onnxruntime(library: Any, model: Model, arrays: Mapping[str, Array], threads: int) -> Callable[[], Any]:
    if model.path.suffix != ".onnx":
        return _offered("onnxruntime", model, arrays, threads)
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        session = library.InferenceSession(str(model.path), options, providers=["CPUExecutionProvider"])
        # By position: our names of inputs are identifiers, theirs need not be.
        taken = [value.name for value in session.get_inputs() if value.name not in model.fixed]
        if len(taken) != len(arrays):
            raise NotComparableError(f"it takes {len(taken)} inputs ({', '.join(taken)}), and we take {len(arrays)}")
        given = dict(zip(taken, arrays.values(), strict=True)) | dict(model.fixed)
        session.run(None, given)
    except NotComparableError:
        raise
    except Exception as error:  # the library has many classes of its own
        raise NotComparableError(f"it refuses the model: {str(error).splitlines()[0]}") from error
    return lambda: session.run(None, given)


def _torch(library: Any, model: Model, arrays: Mapping[str, Array], threads: int) -> Callable[[], Any]:
    library.set_num_threads(threads)
    return _offered("torch", model, arrays, threads)


def _offered(name: str, model: Model, arrays: Mapping[str, Array], threads: int) -> Callable[[], Any]:
    """Return the counterpart of the model that its Python file offers for a library."""
    _, colon, function = model.name.rpartition(":")
    if model.source is None or not colon:
        reads = ".onnx files, and " if name == "onnxruntime" else ""
        raise NotComparableError(
            f"{model.name} is not a model that it can read: it reads {reads}FILE.py:NAME where the file has NAME_{name}"
        )
    offered = getattr(model.source, f"{function}_{name}", None)
    if offered is None:
        raise NotComparableError(f"{model.path.name} has no function {function}_{name} that returns a callable")
    try:
        found = offered()
        run = _called(found, list(arrays.values()))
        run()
    except Exception as error:
        raise NotComparableError(f"{function}_{name} failed: {type(error).__name__}: {error}") from error
    return run


def _called(found: Any, arrays: list[Array]) -> Callable[[], Any]:
    """Return a call of such a counterpart: PyTorch modules take and return tensors, everything else arrays."""
    torch = importlib.import_module("torch") if _is_torch_module(found) else None
    if torch is None:
        return lambda: found(*arrays)
    tensors = [torch.from_numpy(array) for array in arrays]
    found.eval()

    def run() -> Any:
        with torch.inference_mode():
            return found(*tensors)

    return run


def _is_torch_module(found: Any) -> bool:
    return any(kind.__module__ == "torch.nn.modules.module" for kind in type(found).__mro__)


PEERS: dict[str, Callable[[Any, Model, Mapping[str, Array], int], Callable[[], Any]]] = {
    "onnxruntime": _onnxruntime,
    "torch": _torch,
}
