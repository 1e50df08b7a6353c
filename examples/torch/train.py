"""Train a PyTorch network whose forward and backward pass are compiled: ``python examples/torch/train.py``.

The loop is PyTorch's, with its optimizer; ``torch.compile`` makes it faster by one line. ``--epochs N`` trains for as
many passes over the 900 training images.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.nn import functional as F  # noqa: N812 - everybody calls it so

from network import Digits, images_and_labels

BATCH = 60


def main() -> None:
    """Do the job."""
    parser = argparse.ArgumentParser(description="Train the digits network.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images")
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    (images, labels), (others, classes) = images_and_labels()
    network = Digits()
    step = torch.compile(lambda x, wanted: F.cross_entropy(network(x), wanted), backend="tilewright")
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3)
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        losses = []
        for chosen in torch.randperm(len(images)).split(BATCH):
            loss = step(images[chosen], labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"Epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"Trained for {time.perf_counter() - start:.1f} s, compilation included")
    with torch.no_grad():
        right = int((network.eval()(others).argmax(1) == classes).sum())
    print(f"Right: {right} of {len(classes)} held-out images ({right / len(classes):.2%})")


if __name__ == "__main__":
    main()
