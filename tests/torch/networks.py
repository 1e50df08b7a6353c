"""Networks of the usual families, written with ``torch.nn`` and small."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - everybody calls it so


class Perceptron(nn.Module):
    """Layers of three activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.layers(x), dim=-1)


class Residual(nn.Module):
    """A block of a residual network, with depthwise convolution and weighted channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.deep = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.squeeze = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.deep(F.relu6(self.norm(self.first(x))))
        weight = torch.sigmoid(self.squeeze(F.adaptive_avg_pool2d(y, 1).flatten(1)))
        return F.relu(x + y * weight[:, :, None, None])


class Convolutional(nn.Module):
    """A residual network for images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Residual(8), nn.MaxPool2d(2), Residual(8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.stem(x))
        return self.head(self.blocks(y).mean((2, 3)))


class UNet(nn.Module):
    """A network that halves an image and doubles it again."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(24, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.silu(self.norm(self.down(x)))
        half = F.leaky_relu(self.deep(F.avg_pool2d(first, 2)))
        smooth = F.interpolate(half, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(torch.cat([first, self.up(half), smooth], dim=1))


class Attention(nn.Module):
    """Attention of several heads, with the keys and values of an earlier call before them."""

    def __init__(self, width: int, heads: int, groups: int | None = None) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups or heads, width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, self.groups * self.size)
        self.value = nn.Linear(width, self.groups * self.size)
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor, causal: bool = False, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.query(x), self.heads), self.split(self.key(x), self.groups), self.value(x)
        y = F.scaled_dot_product_attention(
            q, k, self.split(v, self.groups), mask, is_causal=causal, enable_gqa=self.groups != self.heads
        )
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Encoder(nn.Module):
    """A BERT: embeddings of words, positions and segments, layers with the norm behind, and a mask for padding."""

    def __init__(self, words: int = 50, width: int = 16, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(32, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.attention = nn.ModuleList(Attention(width, heads) for _ in range(layers))
        self.wide = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.narrow = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.register_buffer("numbers", torch.arange(32)[None], persistent=False)
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        places = self.places(self.numbers[:, : ids.shape[1]])
        x = self.norm(self.words(ids) + places + self.segments(segments))
        lowest = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for n, attention in enumerate(self.attention):
            x = self.norms[2 * n](x + attention(x, mask=lowest))
            x = self.norms[2 * n + 1](x + self.narrow[n](F.gelu(self.wide[n](x))))
        return x, torch.tanh(self.pooler(x[:, 0]))


class Decoder(nn.Module):
    """A GPT-2: a causal mask in a buffer, scores by hand, and an output layer that is tied to the embedding."""

    def __init__(self, words: int = 40, width: int = 16, heads: int = 2, longest: int = 24) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.register_buffer("seen", torch.tril(torch.ones(longest, longest, dtype=torch.bool)))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length, device=ids.device))
        parts = self.joint(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (part.view(batch, length, self.heads, -1).permute(0, 2, 1, 3) for part in parts)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~self.seen[:length, :length], float("-inf"))
        y = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.out(y)
        x = x + self.mlp(self.norms[1](x))
        return self.head(self.norms[2](x))


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Turn pairs of elements by angles (Su et al., "RoFormer", 2021)."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return x * angles.cos() + turned * angles.sin()


class Llama(nn.Module):
    """A Llama: rotated queries and keys, shared heads of keys, norms by the mean square, gated layers, and a cache."""

    def __init__(self, words: int = 40, width: int = 16, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.words = nn.Embedding(words, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down = nn.Linear(32, width, bias=False)
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, self.size, 2) / self.size), persistent=False)

    def forward(self, ids: Tensor, cache: dict[str, Tensor]) -> dict[str, object]:
        batch, length = ids.shape
        before = cache["key"].shape[2]
        angles = torch.arange(before, before + length)[:, None] * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        x = self.words(ids)
        y = self.norms[0](x)
        q = self.query(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.key(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.value(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        q, k = rotated(q, angles), rotated(k, angles)
        k, v = torch.cat([cache["key"], k], dim=2), torch.cat([cache["value"], v], dim=2)
        seen = torch.ones(length, before + length, dtype=torch.bool).tril(diagonal=before)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, -1))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return {"hidden": x, "cache": {"key": k, "value": v}, "attentions": None}


class Vision(nn.Module):
    """A ViT: patches as words, a class token, layers with the norm before."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 32, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], dim=1) + self.places
        return self.head(self.layers(y)[:, 0])


class Recurrent(nn.Module):
    """Two layers of an LSTM in both directions, and a GRU behind."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y.transpose(0, 1))
        return z, torch.cat([h.flatten(), c.flatten(), last.flatten()])
