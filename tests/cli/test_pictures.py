"""PNG and JPEG files are inputs of models; Pillow's own arrays say what they hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tilewright import graphir as gi
from tilewright.cli import cli
from tilewright.cli.pictures import Scaling, read_picture
from tilewright.runtime.signature import Argument
from tilewright.tensorir.errors import InputError

Pictures = pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(5).integers(0, 256, (6, 9, 3), dtype=np.uint8)


@pytest.fixture
def photo(tmp_path: Path) -> str:
    Pictures.fromarray(PIXELS).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


def argument(shape: tuple[Any, ...], dtype: str = "float32") -> Argument:
    return Argument("image", gi.TensorType(shape, dtype))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("n", 3, "h", "w"), PIXELS.transpose(2, 0, 1)[None]),
        (("n", "c", "h", "w"), PIXELS.transpose(2, 0, 1)[None]),
        (("n", "h", "w", 3), PIXELS[None]),
        ((3, 6, 9), PIXELS.transpose(2, 0, 1)),
        ((6, "w", 3), PIXELS),
    ],
)
def test_the_shape_of_the_input_says_where_the_channels_are(
    photo: str, shape: tuple[Any, ...], expected: np.ndarray[Any, Any]
) -> None:
    found = read_picture(argument(shape, "uint8"), photo, {}, Scaling())
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)
    floats = read_picture(argument(shape), photo, {}, Scaling((0.5,), (0.1, 0.2, 0.4)))
    scaled = (PIXELS / 255.0 - 0.5) / [0.1, 0.2, 0.4]
    assert floats.dtype == np.float32 and floats.shape == expected.shape
    np.testing.assert_allclose(np.sort(floats, axis=None), np.sort(scaled, axis=None), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [(("h", "w"), None), (("n", 1, "h", "w"), 1)])
def test_inputs_without_colours_get_grey_levels(photo: str, shape: tuple[Any, ...], axis: int | None) -> None:
    found = read_picture(argument(shape, "uint8"), photo, {}, Scaling())
    grey = np.asarray(Pictures.fromarray(PIXELS).convert("L"))
    np.testing.assert_array_equal(found, grey if axis is None else grey[None, None])


def test_an_image_is_resized_to_what_is_known(photo: str) -> None:
    height = gi.symbol("h")
    found = read_picture(argument((1, 3, height, 4), "uint8"), photo, {height: 12}, Scaling())
    expected = Pictures.fromarray(PIXELS).resize((4, 12), Pictures.Resampling.BILINEAR)
    np.testing.assert_array_equal(found[0].transpose(1, 2, 0), np.asarray(expected))


def test_a_photo_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    image = Pictures.fromarray(PIXELS)
    tags = image.getexif()
    tags[0x0112] = 6  # the camera was turned by a quarter
    image.save(tmp_path / "turned.png", exif=tags)
    found = read_picture(argument(("h", "w", 3), "uint8"), str(tmp_path / "turned.png"), {}, Scaling())
    np.testing.assert_array_equal(found, np.rot90(PIXELS, -1))


@pytest.mark.parametrize(
    ("shape", "dtype", "scaling", "message"),
    [
        (("n", 5, "h", 7), "float32", Scaling(), "an image does not suit"),
        (("n",), "float32", Scaling(), "expected an input"),
        (("n", 3, "h", "w"), "uint8", Scaling((0.5,)), "for inputs of floats"),
        (("n", 3, "h", "w"), "float32", Scaling((0.5, 0.5)), "--image-mean: expected 1 or 3 numbers"),
        (("n", 3, "h", "w"), "bool", Scaling(), "which takes bool"),
    ],
)
def test_what_does_not_suit_is_said(
    photo: str, shape: tuple[Any, ...], dtype: str, scaling: Scaling, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_picture(argument(shape, dtype), photo, {}, scaling)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    (tmp_path / "model.py").write_text(
        "from tilewright import graphir as gi\n"
        "x = gi.var('image', shape=('n', 3, 'height', 'width'))\nmodel = gi.Function([x], x + 1.0)\n"
    )
    path = f"{tmp_path / 'model.py'}:model"
    return lambda *args: CliRunner().invoke(cli, ["run", path, "-r", "1", *map(str, args)])


def test_a_photo_is_an_input_of_a_command(run: Callable[..., Result], photo: str, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    found = run("-i", photo, "--image-mean", "0.5", "--image-std", "0.25", "-d", "width=9", "-o", out)
    assert found.exit_code == 0, found.output
    with np.load(out) as results:
        expected = (PIXELS.transpose(2, 0, 1)[None] / 255.0 - 0.5) / 0.25 + 1
        np.testing.assert_allclose(results["result"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--image-mean", "a"], 2, "expected a number, or one for each channel"),
        (["--image-std", "0.5,0,1"], 2, "expected numbers other than 0"),
        (["-i", "missing.png"], 1, "missing.png"),
    ],
)
def test_wrong_images_are_errors(run: Callable[..., Result], options: list[str], code: int, message: str) -> None:
    found = run(*options)
    assert found.exit_code == code and message in found.output


def test_without_pillow_the_error_says_what_to_install(
    run: Callable[..., Result], photo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    found = run("-i", photo)
    assert found.exit_code == 1 and "pip install tilewright[images]" in found.output
