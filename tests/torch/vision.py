"""Judge ``torch.compile`` by torchvision's constructors: ``python -m tests.torch.vision [names]``.

Each model that torchvision registers is made with random weights, in its own widths, and called in evaluation on small
images or clips; its results are compared with PyTorch's. Nothing is downloaded. Needs ``pip install torchvision``.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torchvision.models import get_model, get_model_builder, list_models

from tests.torch import judging
from tests.torch.modules import compare

#: The shapes of the images of models that take no small ones, by the beginnings of names: the longest that fits holds.
SHAPES: dict[str, tuple[int, ...]] = {
    "": (2, 3, 64, 64),
    **dict.fromkeys(("vit", "maxvit"), (1, 3, 224, 224)),
    **dict.fromkeys(("inception", "quantized_inception"), (2, 3, 96, 96)),
    **dict.fromkeys(("mc3", "r3d", "r2plus1d"), (1, 3, 8, 48, 48)),
    **dict.fromkeys(("mvit", "s3d"), (1, 3, 16, 224, 224)),
    "swin3d": (1, 3, 8, 64, 64),
    "raft": (1, 3, 128, 128),
}


def made(name: str) -> torch.nn.Module:
    """Make a model with weights of a fixed seed."""
    known = inspect.signature(get_model_builder(name)).parameters
    options = {"weights": None, "weights_backbone": None, "quantize": False}
    torch.manual_seed(0)
    model: torch.nn.Module = get_model(name, **{key: value for key, value in options.items() if key in known})
    return model.eval()


def inputs(name: str) -> tuple[Any, ...]:
    """Return the arguments of a call."""
    torch.manual_seed(1)
    if ".detection." in get_model_builder(name).__module__:  # a list of images of different sizes
        return ([torch.rand(3, 96, 128), torch.rand(3, 80, 64)],)
    shape = SHAPES[max((start for start in SHAPES if name.startswith(start)), key=len)]
    images = 2 if name.startswith("raft") else 1
    return tuple(torch.randn(shape) for _ in range(images))


def judge_model(name: str, fallbacks: judging.Fallbacks) -> None:
    """Compare a model with PyTorch.

    Raises:
        OutOfScopeError: PyTorch itself does not run it as it is made here.
        CloserError: it differs from PyTorch, and is at most as far from PyTorch's results in double precision.
        SplitError, FellBackError, AssertionError, TilewrightError: as said.
    """
    torch._dynamo.reset()
    try:
        model, given = made(name), inputs(name)
        with torch.no_grad():
            expected = model(*given)
    except Exception as error:
        raise judging.OutOfScopeError(f"{type(error).__name__}: {error}") from error
    fallbacks.lines.clear()
    split = ""
    with torch.no_grad():
        try:
            found = torch.compile(model, backend="tilewright", fullgraph=True, dynamic=False)(*given)
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:  # by each backend
            split = str(error).splitlines()[0]
            found = torch.compile(model, backend="tilewright", dynamic=False)(*given)
    try:
        compare(found, expected, name)
    except AssertionError as error:
        if _further(found, expected, model, given):
            raise
        raise judging.CloserError(str(error)) from None
    fallbacks.check()
    if split:
        raise judging.SplitError(split)


def _further(found: Any, expected: Any, model: torch.nn.Module, given: Any) -> bool:
    """Whether results are further from those in double precision than PyTorch's in single precision."""
    exact_model = copy.deepcopy(model).double()
    with torch.no_grad():
        exact = exact_model(*pytree.tree_map_only(torch.Tensor, torch.Tensor.double, given))
    for one, other, wanted in zip(*map(pytree.tree_leaves, (found, expected, exact)), strict=True):
        if isinstance(wanted, torch.Tensor):
            if one.shape != wanted.shape or other.shape != wanted.shape:
                return True
            if (one - wanted).double().norm() > (other - wanted).double().norm():
                return True
    return False


def main() -> None:
    """Judge the models and print the summary."""
    options = judging.arguments(__doc__).parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    fallbacks = judging.Fallbacks()

    def cases(name: str) -> judging.Cases:
        yield functools.partial(judge_model, name, fallbacks)

    judging.run(options, {name: functools.partial(cases, name) for name in list_models()})


if __name__ == "__main__":
    sys.exit(main())
