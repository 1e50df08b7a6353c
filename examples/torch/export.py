"""Export a PyTorch network to an artifact: ``python examples/torch/export.py [FILE]``.

``torch.export`` captures the network, Tilewright compiles it and writes the machine code to ``digits.tw``, and
``run_artifact.py`` classifies the held-out digits with that in another process, which has no PyTorch.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

import tilewright as tw
from network import images_and_labels, trained

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Do the job; return the exit status."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "digits.tw")
    _, (images, _) = images_and_labels()
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(trained(), (images[:2],), dynamic_shapes=({0: batch},))
    tw.build(tw.from_exported(program)).export(path)
    print(f"Wrote {path.name} ({path.stat().st_size / 1000:.0f} kB)", flush=True)
    return subprocess.run([sys.executable, str(HERE / "run_artifact.py"), str(path)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
