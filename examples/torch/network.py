"""The digits network in PyTorch, its trained weights, and the images: those of ``examples/digits``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - everybody calls it so

sys.path.append(str(Path(__file__).resolve().parents[1] / "digits"))

from data import load_digits, load_weights, split

#: What PyTorch calls the parameters and statistics of a batch norm.
_NAMES = {"gamma": "weight", "beta": "bias", "mean": "running_mean", "variance": "running_var"}


class Digits(nn.Module):
    """Scores of the ten digits for images ``[n, 1, 8, 8]``, with ink from 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm2d(channels) for channels in (16, 32, 64))
        self.dense = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(images)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.relu(self.bn3(self.conv3(x)))
        return self.dense(x.mean((2, 3)))


def trained() -> Digits:
    """Return the network with the weights of ``examples/digits``, for inference."""
    network = Digits()
    weights = {name.partition(".")[::2]: torch.from_numpy(value) for name, value in load_weights().items()}
    state = {f"{layer}.{_NAMES.get(part, part)}": value for (layer, part), value in weights.items()}
    network.load_state_dict(state, strict=False)  # batch norms also count batches
    return network.eval()


def images_and_labels() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return images and labels: those to train on, and those held out."""
    images, labels = load_digits()
    parts = split(labels)
    train, held_out = (
        (torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen])) for chosen in (parts.train, parts.held_out)
    )
    return train, held_out
