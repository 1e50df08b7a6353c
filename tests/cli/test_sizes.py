"""Sizes that nothing gives are searched among those that the model accepts, before anything is compiled."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tilewright import graphir as gi
from tilewright.cli import cli
from tilewright.graphir.dims import symbol
from tilewright.runtime.conditions import Condition, in_words, words_for
from tilewright.tensorir.expr import Expr

PYRAMID = """
from tilewright import graphir as gi


def pyramid():
    x = gi.var("x", shape=("n", 1, "h", "w"))
    small = x
    for _ in range(5):
        small = gi.nn.max_pool2d(small, pool_size=(2, 2), strides=(2, 2))
    large = gi.tile(small, reps=(1, 1, 32, 32))
    return gi.Function([x], x + gi.match_shape(large, shape=x.type.shape))


def impossible():
    x = gi.var("x", shape=("n", "m"))
    return gi.Function([x], gi.match_shape(gi.concatenate((x, x), axis=1), shape=("n", "m")) + x)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    path = tmp_path / "pyramid.py"
    path.write_text(textwrap.dedent(PYRAMID))
    return lambda name, *args: CliRunner().invoke(cli, ["run", f"{path}:{name}", "-r", "1", *map(str, args)])


def test_sizes_that_the_model_accepts_are_found_and_said(run: Callable[..., Result], tmp_path: Path) -> None:
    found = run("pyramid", "-o", tmp_path / "out.npz")
    assert found.exit_code == 0, found.output
    assert "sizes that nothing gives are chosen: n=1, h=64, w=64" in found.stderr
    with np.load(tmp_path / "out.npz") as results:
        assert results["result"].shape == (1, 1, 64, 64)


def test_sizes_that_the_model_does_not_accept_are_refused_in_words(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.build", None)  # nothing is compiled
    found = run("pyramid", "-d", "h=33")
    assert found.exit_code == 1
    assert "the model does not accept h=33: h must be a multiple of 32" in found.output


def test_a_model_that_accepts_no_size_says_what_it_asks_for(run: Callable[..., Result]) -> None:
    found = run("impossible")
    assert found.exit_code == 1
    assert "no sizes of n, m were found that the model accepts: m * 2 must be m" in found.output


H, W = symbol("h"), symbol("w")


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (H // 32 * 32, H, "h must be a multiple of 32"),
        (H % 8, 3, "h must be a multiple of 8 plus 3"),
        (H - 6, None, "h must be at least 7"),
        (100 - H, None, "h must be from 1 to 99"),
        (H * 2, 48, "h must be 24"),
        (H, W, "h must be w"),
        (H * W, 64, "h * w must be 64"),
        ((H + 3) // 32 * 32, (H + 3) // 4 * 4, "h must be a multiple of 32 (or up to 3 less)"),
        (H // 32 * 32, (H + 31) // 4 // 8 * 32, "h must be a multiple of 32"),
        (H % 24 // 3, 0, "h must be a multiple of 24 (or up to 2 more), or at most 2"),
        ((H - 3) * (H - 7), 0, "h must be 3 or 7"),
    ],
)
def test_conditions_read_as_people_say_them(found: Expr, expected: Expr | int | None, words: str) -> None:
    assert in_words(Condition(found, expected)) == words


def test_conditions_on_a_dimension_are_said_together() -> None:
    halves = [Condition((H + 1) // 2 * 2, H), Condition(H // 16 * 16, (H + 7) // 8 * 8)]
    assert words_for(halves[0], halves, {H: 33}) == "h must be a multiple of 16"
    either = Condition((H - W) * (H - 1), 0)
    assert words_for(either, [either], {H: 3, W: 4}) == "h must be 1 or 4 where w=4"
    rare = Condition((H % 7) * (H % 11), 0)
    assert words_for(rare, [rare], {H: 17}) == "the nearest h that fits is 14 or 21"


@pytest.mark.parametrize("option", [("-s", "image.height=40"), ("-s", "image=1,1,40,?"), ("-d", "image.height=40")])
def test_sizes_of_an_onnx_model_are_refused_in_words(tmp_path: Path, option: tuple[str, str]) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    window = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    nodes, x = [], "image"
    for number in range(2):
        nodes.append(helper.make_node("MaxPool", [x], [f"half_{number}"], **window))
        x = f"half_{number}"
    nodes.append(helper.make_node("Resize", [x, "", "scales"], ["large"], mode="nearest"))
    nodes.append(helper.make_node("Concat", ["image", "large"], ["result"], axis=1))
    image = helper.make_tensor_value_info("image", 1, [1, 1, "image.height", "image.width"])
    result = helper.make_tensor_value_info("result", 1, [1, 2, None, None])
    scales = helper.make_tensor("scales", 1, [4], [1.0, 1.0, 4.0, 4.0])
    graph = helper.make_graph(nodes, "pyramid", [image], [result], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "pyramid.onnx")
    found = CliRunner().invoke(cli, ["run", str(tmp_path / "pyramid.onnx"), "-r", "1", "-d", "image_width=8", *option])
    assert found.exit_code == 0, found.output
    option = (option[0], option[1].replace("40", "42"))
    found = CliRunner().invoke(cli, ["run", str(tmp_path / "pyramid.onnx"), *option])
    assert found.exit_code == 1
    assert "the model does not accept image_height=42: image_height must be a multiple of 4" in found.stderr


def test_a_call_says_which_sizes_fit() -> None:
    import tilewright as tw

    x = gi.var("x", shape=("h",))
    halved = gi.strided_slice(x, begin=(0,), end=(H,), strides=(2,))
    doubled = gi.concatenate((halved, halved), axis=0)
    model = tw.build(gi.Function([x], x + gi.match_shape(doubled, shape=("h",))))
    with pytest.raises(ValueError, match="h must be a multiple of 2"):
        model(np.ones(3, "f4"))
