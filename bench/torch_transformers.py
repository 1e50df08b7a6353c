"""Write transformers as PyTorch modules, in the way of PyTorch's users: fused projections, and
``scaled_dot_product_attention``.

Weights are random: a module is made from PyTorch's global generator, so that equal seeds give equal weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def _heads(x: Tensor, count: int) -> Tensor:
    """Split ``[batch, words, width]`` to ``[batch, count, words, width / count]``."""
    batch, words, width = x.shape
    return x.view(batch, words, count, width // count).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    """Join heads again."""
    batch, heads, words, head = x.shape
    return x.transpose(1, 2).reshape(batch, words, heads * head)


def _scaled_down(module: nn.Module, deviation: float = 0.02) -> None:
    """Draw matrices as BERT and GPT-2 do, so that sums over layers stay small."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.normal_(part.weight, std=deviation)


class Block(nn.Module):
    """A transformer block: norms before the parts as in GPT-2 and ViT, or behind the sums as in BERT."""

    def __init__(
        self, width: int, heads: int, before: bool = True, causal: bool = False, tanh: bool = False, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.heads, self.before, self.causal = heads, before, causal
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.project, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = nn.GELU("tanh" if tanh else "none")

    def attend(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the attention of ``x``, also to ``past`` keys and values, and all keys and values."""
        query, key, value = (_heads(part, self.heads) for part in self.project(x).chunk(3, -1))
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        is_causal = self.causal and past is None
        made = functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
        return self.mixed(_joined(made)), (key, value)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        attended, kept = self.attend(self.norm1(x) if self.before else x, past)
        x = x + attended if self.before else self.norm1(x + attended)
        made = self.narrow(self.gelu(self.wide(self.norm2(x) if self.before else x)))
        return (x + made if self.before else self.norm2(x + made)), kept


class ViT(nn.Module):
    """A vision transformer (Dosovitskiy et al., 2020), by default B/16: ``[batch, 3, 224, 224]`` to
    ``[batch, 1000]``."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 14 * 14 + 1, width) * 0.02)
        self.blocks = nn.ModuleList([Block(width, heads, eps=1e-6) for _ in range(layers)])
        self.norm, self.classify = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)
        _scaled_down(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x, _ = block(x)
        return self.classify(self.norm(x)[:, 0])


class BERT(nn.Module):
    """BERT (Devlin et al., 2018), by default its size base: word numbers ``[batch, words]`` to the last layer's states
    and the pooled first one."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, words: int = 30522) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.blocks = nn.ModuleList([Block(width, heads, before=False, eps=1e-12) for _ in range(layers)])
        self.pool = nn.Linear(width, width)
        _scaled_down(self)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(words.shape[1], device=words.device)
        x = self.norm(self.words(words) + self.places(places) + self.kinds(torch.zeros_like(words)))
        for block in self.blocks:
            x, _ = block(x)
        return x, torch.tanh(self.pool(x[:, 0]))


class GPT2(nn.Module):
    """GPT-2 (Radford et al., 2019), by default its size small: word numbers ``[batch, words]`` and the keys and values
    of words before, for each layer, to the scores of the next word, and all keys and values."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, words: int = 50257) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList([Block(width, heads, causal=True, tanh=True) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        _scaled_down(self)

    def forward(self, words: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        start = past[0].shape[2] if past else 0
        x = self.words(words) + self.places(torch.arange(start, start + words.shape[1], device=words.device))
        kept: list[Tensor] = []
        for number, block in enumerate(self.blocks):
            x, pair = block(x, (past[2 * number], past[2 * number + 1]) if past else None)
            kept += pair
        return functional.linear(self.norm(x)[:, -1], self.words.weight), *kept


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class RMSNorm(nn.Module):
    """Root-mean-square normalization, as Llama's code writes it."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class LlamaBlock(nn.Module):
    """A block of Llama (Touvron et al., 2023): rotary positions, fewer heads for keys and values, SwiGLU."""

    def __init__(self, width: int, heads: int, of_keys: int, inner: int) -> None:
        super().__init__()
        self.heads, self.of_keys, head = heads, of_keys, width // heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.query, self.key, self.value, self.mixed = (
            nn.Linear(width, count * head, bias=False) for count in (heads, of_keys, of_keys, heads)
        )
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        normed = self.norm1(x)
        query, key = _heads(self.query(normed), self.heads), _heads(self.key(normed), self.of_keys)
        value = _heads(self.value(normed), self.of_keys)
        query, key = _rotated(query, cosine, sine), _rotated(key, cosine, sine)
        repeated = self.heads // self.of_keys
        key, value = key.repeat_interleave(repeated, 1), value.repeat_interleave(repeated, 1)
        made = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixed(_joined(made))
        normed = self.norm2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """A stack of Llama's blocks, of 125 million weights: states ``[batch, words, 768]`` to states."""

    def __init__(
        self, width: int = 768, layers: int = 16, heads: int = 12, of_keys: int = 4, inner: int = 2688
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, of_keys, inner) for _ in range(layers)])
        self.norm = RMSNorm(width)
        self.head = width // heads
        _scaled_down(self)

    def forward(self, x: Tensor) -> Tensor:
        frequencies = 10000.0 ** (-torch.arange(0, self.head, 2, dtype=torch.float32) / self.head)
        angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequencies
        angles = torch.cat([angles, angles], -1)
        cosine, sine = angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cosine, sine)
        return self.norm(x)


class Blocks(nn.Module):
    """GPT's blocks alone: states ``[batch, words, width]`` to states."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, heads, causal=True, tanh=True) for _ in range(layers)])
        _scaled_down(self)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x, _ = block(x)
        return x
