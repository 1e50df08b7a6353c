"""The digits example: the network really learned, its training is sound, and the compiled model is the same network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tw
from tests.examples.scripts import EXAMPLE, load_script

FloatArray = npt.NDArray[np.float32]


data = load_script("data")
numpy_net = load_script("numpy_net")


@pytest.fixture(scope="module")
def digits() -> tuple[FloatArray, npt.NDArray[np.int64]]:
    images, labels = data.load_digits()
    return images, labels


@pytest.fixture(scope="module")
def reference(digits: tuple[FloatArray, npt.NDArray[np.int64]]) -> FloatArray:
    probabilities: FloatArray = numpy_net.forward(data.load_weights(), digits[0])
    return probabilities


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """train.py, which imports its siblings as a script does; they are forgotten afterwards, and before: other tests
    have files of these names."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    siblings = ("data", "model", "numpy_net", "numpy_step")
    for name in siblings:
        sys.modules.pop(name, None)
    yield load_script("train")
    for name in siblings:
        sys.modules.pop(name, None)


def naive_forward(weights: dict[str, FloatArray], image: FloatArray) -> npt.NDArray[np.float64]:
    """The network for one image ``[1, 8, 8]`` in float64, from the definition of each layer, window by window."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    x = image.astype(np.float64)
    for i in (1, 2, 3):
        _, height, width = x.shape
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
        y = np.empty((len(w[f"conv{i}.weight"]), height, width))
        for row in range(height):
            for column in range(width):
                window = padded[:, row : row + 3, column : column + 3]
                y[:, row, column] = (w[f"conv{i}.weight"] * window).sum(axis=(1, 2, 3))
        gamma, beta, mean, variance = (w[f"bn{i}.{s}"][:, None, None] for s in ("gamma", "beta", "mean", "variance"))
        x = np.maximum((y - mean) / np.sqrt(variance + 1e-5) * gamma + beta, 0)
        if i == 2:
            x = x.reshape(len(x), height // 2, 2, width // 2, 2).max(axis=(2, 4))
    logits = w["dense.weight"] @ x.mean(axis=(1, 2)) + w["dense.bias"]
    exponentials = np.exp(logits - logits.max())
    result: npt.NDArray[np.float64] = exponentials / exponentials.sum()
    return result


def test_the_images_are_the_1797_of_the_collection(digits: tuple[FloatArray, npt.NDArray[np.int64]]) -> None:
    images, labels = digits
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0.0, 1.0)
    # The class counts of optdigits.tes, as the collection's own description states them.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_training_and_held_out_images_are_disjoint_and_cover_all(
    digits: tuple[FloatArray, npt.NDArray[np.int64]],
) -> None:
    train_part, held_out = data.split(digits[1])
    assert len(train_part) == 900
    assert sorted([*train_part, *held_out]) == list(range(1797))


def test_no_held_out_image_is_a_copy_of_a_training_image(digits: tuple[FloatArray, npt.NDArray[np.int64]]) -> None:
    images, labels = digits
    train_part, held_out = data.split(labels)
    assert not {images[i].tobytes() for i in train_part} & {images[i].tobytes() for i in held_out}


def test_the_reference_network_computes_its_definition(
    digits: tuple[FloatArray, npt.NDArray[np.int64]], reference: FloatArray
) -> None:
    weights = data.load_weights()
    for i in range(0, 1797, 180):
        np.testing.assert_allclose(reference[i], naive_forward(weights, digits[0][i]), atol=2e-6)


def test_the_reference_network_is_right_on_97_percent_of_the_held_out_images(
    digits: tuple[FloatArray, npt.NDArray[np.int64]], reference: FloatArray
) -> None:
    correct = reference.argmax(axis=1) == digits[1]
    assert correct[data.split(digits[1]).held_out].mean() >= 0.97
    assert correct.mean() >= 0.97


def test_the_step_in_numpy_follows_the_gradient_of_its_loss(
    digits: tuple[FloatArray, npt.NDArray[np.int64]], train: ModuleType
) -> None:
    """The hand-written backward pass against central differences, in float64, for some numbers of each parameter."""
    rng = np.random.default_rng(0)
    trained, statistics = train.initial_parameters(rng)
    parameters = {name: value.astype(np.float64) for name, value in trained.items()}
    compute = train.NumPyStep(parameters, statistics)
    images, labels = digits[0][:6].astype(np.float64), digits[1][:6]

    def loss() -> float:
        return float(compute(images, labels)[0])

    _, gradients = compute(images, labels)
    assert gradients.keys() == parameters.keys()
    step = 1e-7  # small, so that hardly any relu or pool changes its mind within it
    for name, value in parameters.items():
        for index in rng.choice(value.size, size=4):
            kept = value.flat[index]
            value.flat[index] = kept + step
            above = loss()
            value.flat[index] = kept - step
            below = loss()
            value.flat[index] = kept
            numerical = (above - below) / (2 * step)
            assert gradients[name].flat[index] == pytest.approx(numerical, rel=1e-3, abs=1e-6), name


def test_the_compiled_step_agrees_with_the_step_in_numpy(
    digits: tuple[FloatArray, npt.NDArray[np.int64]], train: ModuleType
) -> None:
    """Loss, gradients and running statistics of batches of two sizes."""
    rng = np.random.default_rng(1)
    parameters, statistics = train.initial_parameters(rng)
    in_numpy = {name: value.copy() for name, value in statistics.items()}
    compiled, plain = train.CompiledStep(parameters, statistics), train.NumPyStep(parameters, in_numpy)
    for batch in (slice(0, 60), slice(100, 107)):
        images, labels = digits[0][batch], digits[1][batch]
        (loss, gradients), (expected, wanted) = compiled(images, labels), plain(images, labels)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert gradients.keys() == wanted.keys()
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, wanted[name], rtol=1e-3, atol=2e-6, err_msg=name)
        for name, value in statistics.items():
            np.testing.assert_allclose(value, in_numpy[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_short_training_learns(digits: tuple[FloatArray, npt.NDArray[np.int64]], train: ModuleType) -> None:
    from rich.console import Console

    images, labels = digits
    parts = data.split(labels)
    train.EPOCHS = 8
    weights = train.train(images[parts.train], labels[parts.train], Console(quiet=True))
    correct = numpy_net.forward(weights, images[parts.held_out]).argmax(axis=1) == labels[parts.held_out]
    assert correct.mean() > 0.9


def _short(value: object) -> str:
    return value.kind if isinstance(value, tw.Target) else str(value)


@pytest.mark.parametrize(
    ("target", "opt_level"), [("llvm", 0), ("llvm", 2), ("llvm", 3), (tw.Target("numba", num_threads=1), 2)], ids=_short
)
def test_the_compiled_network_agrees_with_the_reference_on_every_image(
    digits: tuple[FloatArray, npt.NDArray[np.int64]], reference: FloatArray, target: str | tw.Target, opt_level: int
) -> None:
    module = load_script("model").build_module(data.load_weights())
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(module, target=target)
    probabilities = model(digits[0])
    assert probabilities.shape == (1797, 10)
    assert (probabilities.argmax(axis=1) == reference.argmax(axis=1)).all()
    np.testing.assert_allclose(probabilities, reference, atol=1e-4)


def test_one_compilation_serves_every_batch_size(
    digits: tuple[FloatArray, npt.NDArray[np.int64]], reference: FloatArray
) -> None:
    with tw.PassContext(opt_level=3):
        model = tw.build(load_script("model").build_module(data.load_weights()), target="llvm")
    for batch in (1, 2, 7, 256):
        np.testing.assert_allclose(model(digits[0][:batch]), reference[:batch], atol=1e-4)
