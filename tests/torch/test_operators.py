"""Entries of PyTorch's database of operators, compiled: a few of each family of converters.

``opinfo.py`` judges all.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
pytest.importorskip("expecttest", reason="the database of operators needs expecttest: make torch")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.torch import opinfo  # noqa: E402
from tilewright.graphir.frontend.torch import registry  # noqa: E402

#: Entries of each family of converters, which the operators' NumPy references compute: these are fast.
ENTRIES = (
    *("add", "atan2", "copysign", "remainder", "div.floor_rounding", "where", "clamp", "lerp", "frexp"),
    *("sum", "var_mean", "argmax", "logsumexp", "cumsum", "linalg.vector_norm", "median", "cummax", "unique", "histc"),
    *("as_strided", "roll", "diagonal", "unfold", "cat", "tile", "slice_scatter", "nn.functional.pixel_shuffle"),
    *("gather", "index_put", "scatter_reduce.mean", "masked_scatter", "topk", "searchsorted", "index_reduce.amax"),
    *("matmul", "addmm", "nn.functional.bilinear", "einsum", "linalg.qr", "cholesky", "linalg.lu_solve"),
    *("nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.max_pool2d"),
    *("nn.functional.group_norm", "nn.functional.batch_norm", "nn.functional.layer_norm"),
    *("nn.functional.interpolate.bilinear", "nn.functional.grid_sample", "nn.functional.unfold"),
    *("lgamma", "erfinv", "special.i1e", "special.bessel_j1", "special.legendre_polynomial_p"),
    *("nn.functional.embedding_bag", "fft.rfft", "fft.hfft2", "polar"),
)
#: Entries that are compiled, too: those whose converters make loops, runtime sizes, or an axis of two parts.
COMPILED = ("special.legendre_polynomial_p", "linalg.lu_solve", "unique", "fft.rfft", "frexp")


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_agrees_with_pytorch(name: str) -> None:
    (entry,) = (entry for entry in op_db if opinfo.name_of(entry) == name)
    assert opinfo.judge(entry, 2, compile=False) == ("passed", "")


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_entry_agrees_with_pytorch(name: str) -> None:
    (entry,) = (entry for entry in op_db if opinfo.name_of(entry) == name)
    assert opinfo.judge(entry, 1, compile=True) == ("passed", "")


def test_a_wrong_converter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CONVERTERS", dict(registry._CONVERTERS))
    registry._CONVERTERS["aten.sin.default"] = registry._CONVERTERS["aten.cos.default"]
    (entry,) = (entry for entry in op_db if opinfo.name_of(entry) == "sin")
    assert opinfo.judge(entry, 1, compile=False)[0] == "wrong"
