"""The suite beside other libraries: ``python -m bench.peers`` (see ``bench/README.md``).

``suite`` says what is measured; ``kernels``, ``networks`` and ``transformers`` write it as ONNX models, and
``torch_models`` as PyTorch functions; ``worker`` is the process of one library with one model, ``drive`` makes calls in
turns, ``report`` and ``plot`` say what came out.
"""

import sys
from pathlib import Path

# The other modules of bench/ are top-level ones, here as under pytest.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
