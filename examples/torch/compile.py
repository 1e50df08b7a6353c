"""Compile a PyTorch network by ``torch.compile``: ``python examples/torch/compile.py``.

Classifies the held-out digits with PyTorch and with the compiled network, in batches of three sizes. The batch is
dynamic: one build serves all of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor

from network import images_and_labels, trained


def seconds(function: Callable[[Tensor], Tensor], images: Tensor, calls: int = 20) -> float:
    """Return the least time of a call."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        function(images)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Do the job."""
    logging.basicConfig(format="%(message)s")  # would name what runs in PyTorch
    network = trained()
    compiled = torch.compile(network, backend="tilewright", dynamic=True)
    _, (images, labels) = images_and_labels()
    with torch.no_grad():
        start = time.perf_counter()
        scores = compiled(images)
        print(f"The first call took {time.perf_counter() - start:.1f} s: it compiles the network")
        torch.testing.assert_close(scores, network(images), rtol=1e-4, atol=1e-4)
        right = int((scores.argmax(1) == labels).sum())
        print(f"Right: {right} of {len(labels)} held-out images ({right / len(labels):.2%})")
        for size in (1, 32, len(images)):
            fast, plain = seconds(compiled, images[:size]), seconds(network, images[:size])
            print(f"A batch of {size}: {fast * 1e3:.2f} ms compiled, {plain * 1e3:.2f} ms in PyTorch")


if __name__ == "__main__":
    main()
