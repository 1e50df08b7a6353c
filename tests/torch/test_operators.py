"""Entries of PyTorch's database of operators, compiled: a few of each family of converters.

``opinfo.py`` judges all.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")
pytest.importorskip("expecttest", reason="the database of operators needs expecttest: make torch")

from tests.torch import judging, opinfo  # noqa: E402
from tilewright.graphir.frontend.torch import registry  # noqa: E402

#: Entries of each family of converters, which the operators' NumPy references compute: these are fast.
ENTRIES = (
    *("add", "atan2", "copysign", "remainder", "div.floor_rounding", "where", "clamp", "lerp", "frexp"),
    *("sum", "var_mean", "argmax", "logsumexp", "cumsum", "linalg.vector_norm", "median", "cummax", "mode", "unique"),
    *("histc", "isin"),
    *("as_strided", "roll", "diagonal", "unfold", "cat", "tile", "slice_scatter", "nn.functional.pixel_shuffle"),
    *("gather", "index_put", "scatter_reduce.mean", "masked_scatter", "topk", "searchsorted", "index_reduce.amax"),
    *("matmul", "addmm", "nn.functional.bilinear", "einsum", "linalg.qr", "cholesky_solve", "linalg.lu_solve"),
    *("nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.max_pool2d"),
    *("nn.functional.group_norm", "nn.functional.batch_norm", "nn.functional.layer_norm"),
    *("nn.functional.interpolate.bilinear", "nn.functional.grid_sample", "nn.functional.unfold"),
    *("lgamma", "erfinv", "special.i1e", "special.bessel_j1", "special.legendre_polynomial_p"),
    *("nn.functional.embedding_bag", "fft.rfft", "fft.hfft2", "polar"),
    # Each of these runs lines of converters that no entry above and no network runs.
    *("digamma", "polygamma.polygamma_n_4", "special.erfcx", "special.modified_bessel_k1", "special.bessel_y1"),
    *("nextafter", "logaddexp2", "logcumsumexp", "logit", "hypot", "fmax", "isin", "linspace", "trace", "mode"),
    *("kthvalue", "diagonal_scatter", "select_scatter", "index_select", "put", "resize_as_"),
    *("linalg.cholesky", "linalg.slogdet", "lu_unpack", "linalg.solve_ex", "linalg.householder_product", "ormqr"),
    *("triangular_solve", "nn.functional.pdist", "nn.functional.glu", "nn.functional.prelu", "nn.functional.kl_div"),
    *("nn.functional.pixel_unshuffle", "nn.functional.channel_shuffle", "nn.functional.adaptive_max_pool3d"),
    *("nn.functional.max_unpool2d.grad",),
)
#: Entries that are compiled, too: those whose converters make loops, runtime sizes, or an axis of two parts.
COMPILED = ("special.legendre_polynomial_p", "linalg.lu_solve", "unique", "fft.rfft", "frexp")


def verdict(
    name: str, most: int, compute: Any = opinfo.by_reference, dtype: torch.dtype = torch.float32
) -> tuple[str, Any]:
    """Judge the first samples of an entry."""
    entry = opinfo.entries(dtype)[name]
    judge = functools.partial(opinfo.judge_sample, compute=compute)
    found = judging.judge(opinfo.cases(entry, dtype, most, judge))
    return found.outcome, found.reasons


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_agrees_with_pytorch(name: str) -> None:
    assert verdict(name, 2) == ("passed", [])


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_entry_agrees_with_pytorch(name: str) -> None:
    assert verdict(name, 1, opinfo.Compiled()) == ("passed", [])


@pytest.mark.parametrize("name", ["sinc", "erfc"])
def test_functions_of_half_types_are_as_exact_as_pytorchs(name: str) -> None:
    assert verdict(name, 2, dtype=torch.bfloat16) == ("passed", [])


def test_statistics_of_half_types_are_single_ones() -> None:
    assert verdict("nn.functional.batch_norm", 1, dtype=torch.bfloat16)[0] in ("passed", "closer")


def test_a_wrong_converter_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CONVERTERS", dict(registry._CONVERTERS))
    registry._CONVERTERS["aten.sin.default"] = registry._CONVERTERS["aten.cos.default"]
    assert verdict("sin", 1)[0] == "wrong"


def test_a_verdict_goes_on_where_it_was() -> None:
    entry = opinfo.entries(torch.float32)["add"]
    judge = functools.partial(opinfo.judge_sample, compute=opinfo.by_reference)
    begun = judging.judge(opinfo.cases(entry, torch.float32, 3, judge), judging.Verdict("passed", judged=2), -1.0)
    assert (begun.outcome, begun.judged, begun.complete) == ("passed in part", 2, False)
    ended = judging.judge(opinfo.cases(entry, torch.float32, 3, judge), begun)
    assert (ended.outcome, ended.judged, ended.complete) == ("passed", 3, True)


@pytest.mark.parametrize("right", [False, True])
def test_a_nan_belongs_behind_all_bounds(right: bool) -> None:
    bounds, values = torch.tensor([-1.0, 0.5, 2.0]), torch.tensor([0.5, float("nan"), 3.0])

    def search(bounds: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(bounds, values, right=right)

    compiled = torch.compile(search, backend="tilewright", options={"fallback": False})
    assert torch.equal(compiled(bounds, values), search(bounds, values))


def test_an_element_is_among_many_others_or_is_not() -> None:
    others = torch.arange(0.0, 60.0, 2.0)
    others[3] = float("nan")
    elements = torch.tensor([[0.0, 1.0, 58.0], [float("nan"), 6.0, 60.0]])
    compiled = torch.compile(torch.isin, backend="tilewright", options={"fallback": False})
    assert torch.equal(compiled(elements, others), torch.isin(elements, others))
