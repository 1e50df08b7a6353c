"""Run the suite beside other libraries: ``python -m bench.peers`` (see ``bench/README.md``).

``suite`` lists the cases; ``kernels``, ``networks`` and ``transformers`` write them as ONNX models, and
``torch_models`` as PyTorch functions; ``worker`` is the process of one library with one model, ``drive`` interleaves
calls, ``report`` and ``plot`` present the results.
"""

import sys
from pathlib import Path

# The other modules of bench/ are top-level ones, here as under pytest.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
