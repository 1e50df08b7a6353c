"""The digits network, compiled for AArch64 and run under QEMU, is the network of ``make run``: plain NumPy agrees
on the class of each image."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.emulator import Emulator
from tests.examples.scripts import load_script
from tilewright.codegen.llvm.team_ir import RUN_TEAM

data, network, numpy_net = map(load_script, ("data", "model", "numpy_net"))


@pytest.mark.parametrize(
    ("every", "opt_level", "num_threads", "mcpu"),
    [
        (5, 3, 1, "generic"),
        (30, 0, 1, "generic"),
        (30, 2, 4, "generic"),
        (30, 3, 4, "neoverse-v2"),
        (30, 3, 2, "apple-m1"),
    ],
)
def test_digits_network_agrees_with_numpy(
    emulator: Emulator, every: int, opt_level: int, num_threads: int, mcpu: str
) -> None:
    """Of one image in ``every``: all of them take ten seconds of processor time."""
    weights, (images, labels) = data.load_weights(), data.load_digits()
    images, labels = images[::every], labels[::every]
    model = emulator.build(network.build_module(weights), opt_level, num_threads, mcpu)
    (segment,) = model._built.segments
    assert (RUN_TEAM.encode() in segment.stored().code.objects[-1]) == (num_threads > 1)
    found, expected = model(images), numpy_net.forward(weights, images)
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert (found.argmax(axis=1) == labels).mean() >= 0.97


def test_a_write_outside_of_an_output_is_noticed(emulator: Emulator) -> None:
    x = tw.graphir.var("x", shape=("n",))
    model = emulator.build(tw.graphir.Function([x], tw.graphir.exp(x)))
    step, ones = model._step, np.ones(8, np.float32)
    with pytest.raises(AssertionError, match="wrote outside of value 1"):
        step._run([ones], [np.empty(7, np.float32)], (0, np.empty(0, np.uint8)), 0, [8])
