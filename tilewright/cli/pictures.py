"""Read PNG and JPEG files as inputs of a model, with Pillow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from tilewright.runtime.signature import Argument
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Expr

Array = np.ndarray[Any, Any]

SUFFIXES = (".png", ".jpg", ".jpeg")

#: The modes of Pillow by the number of channels.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
#: Channels of an input that leaves their number open.
_CHANNELS = 3


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Map pixels, scaled to 0..1, to ``(pixel - mean) / std``.

    Attributes:
        mean: one number, or one for each channel.
        std: the same.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def is_identity(self) -> bool:
        """Whether the pixels stay as they are."""
        return self == Scaling()


def numbers_of(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    """Parse numbers that are separated by commas (the callback of an option)."""
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected a number, or one for each channel as 0.5,0.5,0.5, found {text!r}") from None
    if parameter.name == "image_std" and not all(found):
        raise click.BadParameter("expected numbers other than 0: pixels are divided by them")
    return found


def is_picture(path: str) -> bool:
    """Return whether a file is an image, by its suffix."""
    return path.lower().endswith(SUFFIXES)


def read_picture(argument: Argument, path: str, sizes: Mapping[Expr, int], scaling: Scaling) -> Array:
    """Return an image file as an array for an input: images ``[N, C, H, W]`` or ``[N, H, W, C]``, without ``N``, or one
    of grey levels ``[H, W]``.

    The image is turned as its camera says, and resized (bilinear) to the sizes of the input that are known; its own
    sizes stand for the others. Inputs of floats take pixels from 0 to 1, scaled; those of integers from 0 to 255.

    Args:
        sizes: known sizes of symbolic dimensions.

    Raises:
        InputError: the input has no dimensions of an image, or integers cannot be scaled.
        ImportError: Pillow is not installed.
        OSError: the file cannot be read, or is no image.
    """
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError as error:
        raise ImportError(f"reading {path} needs the package Pillow: pip install tilewright[images]") from error
    dtype = argument.type.dtype
    if not (dtype.is_float or dtype.is_integer):
        raise InputError(f"{path}: an image does not suit {argument}, which takes {dtype!s}")
    if not dtype.is_float and not scaling.is_identity:
        raise InputError(
            f"--image-mean and --image-std are for inputs of floats; {argument} takes pixels from 0 to 255"
        )
    layout, shape = _layout(argument, path, sizes)
    channels = shape["C"] if shape["C"] is not None else _CHANNELS
    with Image.open(path) as opened:
        image = ImageOps.exif_transpose(opened).convert(_MODES[channels])
    height, width = shape["H"] or image.height, shape["W"] or image.width
    if (height, width) != (image.height, image.width):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image).reshape(height, width, channels)
    if dtype.is_float:
        mean, std = (_per_channel(numbers, channels, name) for name, numbers in vars(scaling).items())
        pixels = (pixels.astype(np.float64) / 255 - mean) / std
    if "C" in layout:
        pixels = pixels.transpose(["HWC".index(letter) for letter in layout if letter != "N"])
    else:
        pixels = pixels[..., 0]
    return np.ascontiguousarray(pixels[np.newaxis] if "N" in layout else pixels).astype(dtype.numpy)


def _layout(argument: Argument, path: str, sizes: Mapping[Expr, int]) -> tuple[str, dict[str, int | None]]:
    """Return the letter of each dimension of an input, and the sizes of height, width and channels as far as they are
    known."""
    known = [dim if isinstance(dim, int) else sizes.get(dim) for dim in argument.type.shape]
    layouts = {2: ["HW"], 3: ["CHW", "HWC"], 4: ["NCHW", "NHWC"]}.get(len(known), [])
    for certain in (True, False):  # a known number of channels tells their place; without one they come first
        for layout in layouts:
            shape: dict[str, int | None] = dict(zip(layout, known, strict=True))
            channels = shape.setdefault("C", 1)
            if channels in _MODES if certain else channels is None:
                return layout, shape
    raise InputError(
        f"{path}: an image does not suit {argument}; expected an input [N, C, H, W] or [N, H, W, C] with "
        f"{', '.join(map(str, _MODES))} channels, one without N, or [H, W]"
    )


def _per_channel(numbers: Sequence[float], channels: int, name: str) -> Array:
    if len(numbers) not in (1, channels):
        raise InputError(
            f"--image-{name}: expected 1 or {channels} numbers, one for each channel, found {len(numbers)}"
        )
    return np.asarray(numbers)
