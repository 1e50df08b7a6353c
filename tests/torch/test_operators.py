"""Entries of PyTorch's database of operators, compiled: a few of each family of converters. ``opinfo.py`` judges all."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
pytest.importorskip("expecttest", reason="the database of operators needs expecttest: make torch")

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

from tests.torch import opinfo  # noqa: E402

#: Entries that are compiled, with at most so many samples.
ENTRIES = {
    **dict.fromkeys(("add", "atan2", "copysign", "remainder", "div.floor_rounding", "where", "clamp", "lerp"), 3),
    **dict.fromkeys(("sum", "var_mean", "argmax", "logsumexp", "cumsum", "linalg.vector_norm", "std"), 3),
    **dict.fromkeys(("as_strided", "roll", "diagonal", "unfold", "cat", "tile", "slice_scatter"), 2),
    **dict.fromkeys(("gather", "index_put", "scatter_reduce.mean", "masked_scatter", "topk", "searchsorted"), 3),
    **dict.fromkeys(("matmul", "addmm", "nn.functional.bilinear", "einsum", "linalg.qr", "cholesky", "lu_solve"), 2),
    **dict.fromkeys(("nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.max_pool2d"), 3),
    **dict.fromkeys(("nn.functional.group_norm", "nn.functional.batch_norm", "nn.functional.layer_norm"), 2),
    **dict.fromkeys(("nn.functional.interpolate.bilinear", "nn.functional.grid_sample", "nn.functional.unfold"), 2),
    **dict.fromkeys(("lgamma", "erfinv", "special.i1e", "special.bessel_y0", "special.legendre_polynomial_p"), 2),
    **dict.fromkeys(("median", "cummax", "unique", "histc", "nn.functional.embedding_bag"), 2),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_agrees_with_pytorch(name: str) -> None:
    (entry,) = (entry for entry in op_db if opinfo.name_of(entry) == name)
    assert opinfo.judge(entry, ENTRIES[name], compile=True) == ("passed", "")


def test_a_wrong_converter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.graphir.frontend.torch import registry

    monkeypatch.setattr(registry, "_CONVERTERS", dict(registry._CONVERTERS))
    registry._CONVERTERS["aten.sin.default"] = registry._CONVERTERS["aten.cos.default"]
    (entry,) = (entry for entry in op_db if opinfo.name_of(entry) == "sin")
    assert opinfo.judge(entry, 1, compile=False)[0] == "wrong"
