"""Write image networks and a recurrent one as PyTorch modules, as their papers and PyTorch's model libraries have them.

Weights are random: a module is made from PyTorch's global generator, so that equal seeds give equal weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 1000


class ConvNorm(nn.Sequential):
    """A convolution without a bias, batch normalization, and an activation or none."""

    def __init__(
        self, of: int, to: int, kernel: int, stride: int = 1, groups: int = 1, activation: nn.Module | None = None
    ) -> None:
        convolution = nn.Conv2d(of, to, kernel, stride, kernel // 2, groups=groups, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        norm = nn.BatchNorm2d(to)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.1)
        norm.running_mean.normal_(std=0.1)
        norm.running_var.uniform_(1.0, 2.0)
        super().__init__(convolution, norm, *([] if activation is None else [activation]))


class _Residual(nn.Module):
    """``relu(body(x) + shortcut(x))``; the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, body: nn.Module, of: int, to: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut = ConvNorm(of, to, 1, stride) if of != to or stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """Residual networks (He et al., 2015): ``[batch, 3, height, width]`` to ``[batch, 1000]``.

    Args:
        layers: the blocks of each of the four stages.
        bottleneck: whether a block is 1x1, 3x3, 1x1, with four times as many channels outside, instead of 3x3, 3x3.
    """

    def __init__(self, layers: Sequence[int], bottleneck: bool) -> None:
        super().__init__()
        parts: list[nn.Module] = [ConvNorm(3, 64, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
        channels, expansion = 64, 4 if bottleneck else 1
        for stage, count in enumerate(layers):
            inner = 64 * 2**stage
            for number in range(count):
                stride, to = 2 if stage and not number else 1, inner * expansion
                if bottleneck:
                    body = nn.Sequential(
                        ConvNorm(channels, inner, 1, activation=nn.ReLU()),
                        ConvNorm(inner, inner, 3, stride, activation=nn.ReLU()),
                        ConvNorm(inner, to, 1),
                    )
                else:
                    body = nn.Sequential(
                        ConvNorm(channels, inner, 3, stride, activation=nn.ReLU()), ConvNorm(inner, inner, 3)
                    )
                parts.append(_Residual(body, channels, to, stride))
                channels = to
        self.features = nn.Sequential(*parts)
        self.classify = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(torch.flatten(functional.adaptive_avg_pool2d(self.features(x), 1), 1))


class _InvertedResidual(nn.Module):
    def __init__(self, of: int, to: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = of * expansion
        parts = [ConvNorm(of, inner, 1, activation=nn.ReLU6())] if expansion > 1 else []
        parts += [ConvNorm(inner, inner, 3, stride, inner, nn.ReLU6()), ConvNorm(inner, to, 1)]
        self.body = nn.Sequential(*parts)
        self.is_residual = of == to and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


#: MobileNet v2: expansion, channels, repetitions and stride of each group of blocks.
_MOBILENET = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class MobileNetV2(nn.Module):
    """MobileNet v2 (Sandler et al., 2018): ``[batch, 3, height, width]`` to ``[batch, 1000]``."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = [ConvNorm(3, 32, 3, 2, activation=nn.ReLU6())]
        channels = 32
        for expansion, to, repetitions, first in _MOBILENET:
            for number in range(repetitions):
                parts.append(_InvertedResidual(channels, to, 1 if number else first, expansion))
                channels = to
        parts.append(ConvNorm(channels, 1280, 1, activation=nn.ReLU6()))
        self.features = nn.Sequential(*parts)
        self.classify = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(torch.flatten(functional.adaptive_avg_pool2d(self.features(x), 1), 1))


class _NormOfChannels(nn.LayerNorm):
    """Layer normalization of the channels of ``[batch, channels, height, width]``."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        made = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        made = self.narrow(functional.gelu(self.wide(made))).permute(0, 3, 1, 2)
        return x + self.scale * made


class ConvNeXt(nn.Module):
    """ConvNeXt (Liu et al., 2022), by default its size T: ``[batch, 3, height, width]`` to ``[batch, 1000]``."""

    def __init__(self, depths: Sequence[int] = (3, 3, 9, 3), widths: Sequence[int] = (96, 192, 384, 768)) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _NormOfChannels(widths[0], eps=1e-6)]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if stage:
                before = widths[stage - 1]
                parts += [_NormOfChannels(before, eps=1e-6), nn.Conv2d(before, width, 2, 2)]
            parts += [_ConvNeXtBlock(width) for _ in range(depth)]
        self.features = nn.Sequential(*parts)
        self.norm, self.classify = nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.norm(self.features(x).mean((-2, -1))))


def _double(of: int, to: int) -> nn.Sequential:
    return nn.Sequential(ConvNorm(of, to, 3, activation=nn.ReLU()), ConvNorm(to, to, 3, activation=nn.ReLU()))


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with padding and batch normalization: ``[batch, 3, height, width]``, sizes that
    are multiples of 16, to ``[batch, 2, height, width]``."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.start = _double(3, width)
        self.down = nn.ModuleList([_double(of, to) for of, to in itertools.pairwise(widths)])
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList([nn.ConvTranspose2d(of, to, 2, 2) for of, to in pairs])
        self.merge = nn.ModuleList([_double(of, to) for of, to in pairs])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.start(x)]
        for block in self.down:
            kept.append(block(functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class Recurrent(nn.Module):
    """Three LSTM layers of 512 units over ``[batch, steps, 512]``, and a dense layer for the last step."""

    def __init__(self, width: int = 512, layers: int = 3) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.classify = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.lstm(x)[0][:, -1])
