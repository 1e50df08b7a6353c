"""Identify the types of files by their content with the network of the package ``magika``, compiled by Tilewright.

The code around the network follows the package's own files: the selection of the bytes that the network sees, and the
thresholds of its answers. See *Magika: AI-Powered Content-Type Detection*, Y. Fratantonio and others, 2024.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import tilewright as tw

MODEL_NAME = "standard_v3_3"
#: Labels that need no call of the network.
EMPTY, TEXT, UNKNOWN = "empty", "txt", "unknown"

Bytes = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]


class Answer(NamedTuple):
    """The type of a file, and the confidence of the network, from 0 to 1 (1 where it was not called)."""

    label: str
    score: float


def package_folder() -> Path:
    """Return the folder of the package ``magika``; it is not imported, as that would import ONNX Runtime.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the package magika is not installed; `make models` installs it", name="magika")
    return Path(spec.origin).parent


def model_file() -> Path:
    """Return the network's file, an ONNX model: ``bytes [files, 2048]`` (int32) to ``target_label [files, labels]``."""
    return package_folder() / "models" / MODEL_NAME / "model.onnx"


def compile_network(target: tw.Target | str = "llvm") -> tw.Executable:
    """Compile the network; it takes any number of files at once."""
    with tw.PassContext(opt_level=3):
        return tw.build(tw.from_onnx(model_file(), shapes={"bytes": ("files", 2048)}), target=target)


class FileTyper:
    """Identifies the types of files.

    Attributes:
        network: maps ``[files, 2048]`` bytes to a score for each label.
        labels: the types that the network knows.
    """

    def __init__(self, network: Callable[[Bytes], Scores]) -> None:
        folder = package_folder()
        config = json.loads((folder / "models" / MODEL_NAME / "config.min.json").read_text())
        kinds = json.loads((folder / "config" / "content_types_kb.min.json").read_text())
        self.network = network
        self.labels: list[str] = config["target_labels_space"]
        self._is_text = {label: kind["is_text"] for label, kind in kinds.items()}
        self._config = config

    def features(self, content: bytes) -> Bytes | None:
        """Return the network's input for a file: its first and last bytes without the surrounding white space, padded
        with a number that no byte has. None for a file that is too short for the network."""
        config = self._config
        block, filler = config["block_size"], config["padding_token"]
        begin = np.frombuffer(content[:block].lstrip()[: config["beg_size"]], np.uint8)
        end = np.frombuffer(content[-block:].rstrip()[-config["end_size"] :], np.uint8)
        if min(len(content), len(begin)) < config["min_file_size_for_dl"]:
            return None
        found = np.full(config["beg_size"] + config["end_size"], filler, np.int32)
        found[: len(begin)] = begin
        found[len(found) - len(end) :] = end
        return found

    def identify(self, contents: Sequence[bytes]) -> list[Answer]:
        """Return the types of files with these contents; calls the network once for all of them."""
        features = [self.features(content) for content in contents]
        asked = [found for found in features if found is not None]
        scores = iter(self.network(np.stack(asked)) if asked else [])
        return [
            self._short(content) if found is None else self._believed(next(scores))
            for content, found in zip(contents, features, strict=True)
        ]

    def _short(self, content: bytes) -> Answer:
        if not content:
            return Answer(EMPTY, 1.0)
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            return Answer(UNKNOWN, 1.0)
        return Answer(TEXT, 1.0)

    def _believed(self, scores: Scores) -> Answer:
        """Return the best label if its score reaches the threshold of that label."""
        best, score = self.labels[int(scores.argmax())], float(scores.max())
        label = self._config["overwrite_map"].get(best, best)
        if score < self._config["thresholds"].get(best, self._config["medium_confidence_threshold"]):
            label = TEXT if self._is_text[label] else UNKNOWN
        return Answer(label, score)
