"""Equal modules give equal object code and equal bits: in any process, with any hash seed, after any other builds, by
any number of worker processes, for any number of threads that call."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi

IMAGES = np.random.default_rng(0).standard_normal((2, 8, 15, 15)).astype("f4")

BUILD = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import tilewright as tw
import test_determinism as here
for name in sys.argv[3:]:
    tw.build(getattr(here, name)(), target=here.TARGET)
model = here.build(int(sys.argv[2]))
model.export("net.tw")
with open("net.tw", "rb") as file:
    print(hashlib.sha256(file.read()).hexdigest(), here.bits(model))
"""
TARGET = tw.Target("llvm", mcpu="x86-64-v3", num_threads=2)


def weights(*shape: int) -> gi.Constant:
    return gi.const(np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4"))


def network() -> gi.IRModule:
    """Build convolutions that differ, a pool, attention-like products and a softmax, for any number of images."""
    x = gi.var("x", shape=("images", 8, "height", "width"))
    hidden = gi.nn.relu(gi.nn.conv2d(x, weights(24, 8, 3, 3), padding=(1, 1)))
    hidden = gi.nn.relu(gi.nn.conv2d(hidden, weights(24, 24, 3, 3), strides=(2, 2), padding=(1, 1))) + 0.5
    pooled = gi.mean(hidden, axis=(2, 3))
    scores = gi.nn.softmax(gi.matmul(pooled, weights(24, 24)))
    return tw.IRModule.from_expr(gi.Function([x], gi.Tuple([gi.matmul(scores, weights(24, 5)), gi.exp(hidden)])))


def other_network() -> gi.IRModule:
    x = gi.var("x", shape=("n", 24))
    return tw.IRModule.from_expr(gi.Function([x], gi.tanh(gi.matmul(x, weights(24, 24))).sum(axis=1)))


def renamed_network() -> gi.IRModule:
    """Build a module whose kernels are equal to some of ``network``, but have other names."""
    x = gi.var("pixels", shape=("images", 8, "height", "width"))
    scaled = gi.nn.conv2d(gi.nn.relu(gi.nn.conv2d(x * 2.0, weights(24, 8, 3, 3), padding=(1, 1))), weights(8, 24, 1, 1))
    first = gi.nn.relu(gi.nn.conv2d(x, weights(24, 8, 3, 3), padding=(1, 1)))
    return tw.IRModule.from_expr(gi.Function([x], gi.Tuple([scaled, first])))


def build(workers: int = 1) -> tw.Executable:
    with tw.PassContext(opt_level=3, config={"build.workers": workers}):
        return tw.build(network(), target=TARGET)


def bits(model: tw.Executable) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in model(IMAGES))).hexdigest()


@pytest.fixture(scope="module")
def model() -> tw.Executable:
    return build()


def test_processes_make_the_same_code_and_the_same_bits(tmp_path: Path) -> None:
    found = []
    for seed, (workers, *before) in enumerate(([1], [2, "other_network"], [2, "network", "renamed_network"])):
        folder = tmp_path / str(seed)
        folder.mkdir()
        command = [sys.executable, "-c", BUILD, str(Path(__file__).parent), str(workers), *map(str, before)]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "TILEWRIGHT_CACHE": "off"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert len(set(found)) == 1, found


def test_calls_at_once_give_the_bits_of_calls_one_by_one(model: tw.Executable) -> None:
    wanted = bits(model)
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: bits(model), range(160))) == {wanted}
