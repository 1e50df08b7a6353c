"""Classify the held-out digits with an artifact, without PyTorch: ``python examples/torch/run_artifact.py FILE``.

``export.py`` writes the artifact, and starts this script.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.modules["torch"] = None  # type: ignore[assignment] # `import torch` fails, as where it is not installed
sys.path.append(str(Path(__file__).resolve().parents[1] / "digits"))

import tilewright as tw  # noqa: E402
from data import load_digits, split  # noqa: E402


def main() -> None:
    """Do the job."""
    model: Any = tw.load(sys.argv[1])
    images, labels = load_digits()
    held_out = split(labels).held_out
    right = int((model(images[held_out]).argmax(1) == labels[held_out]).sum())
    print(f"Right: {right} of {len(held_out)} held-out images ({right / len(held_out):.2%}), without PyTorch")


if __name__ == "__main__":
    main()
