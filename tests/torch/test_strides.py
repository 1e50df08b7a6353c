"""Inputs that are no row-major arrays: what is read in place, and what is copied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tests.torch.compiling import assert_close, compile_  # noqa: E402
from tilewright.graphir.frontend.torch.strides import enclosing_box  # noqa: E402
from tilewright.runtime.executable import Executable  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

Make = Callable[[], torch.Tensor]

#: Tensors that are parts of arrays without gaps.
PARTS: dict[str, Make] = {
    "columns": lambda: torch.randn(6, 9)[:, 2:7],
    "the last columns": lambda: torch.randn(6, 9)[:, 5:],
    "columns, transposed": lambda: torch.randn(6, 9)[:, 2:7].t(),
    "rows and columns": lambda: torch.randn(8, 9)[3:, 2:7],
    "heads of a projection": lambda: torch.randn(2, 5, 36).chunk(3, -1)[1].view(2, 5, 3, 4).transpose(1, 2),
    "the first words of a cache": lambda: torch.randn(2, 3, 11, 4)[:, :, :7],
    "an axis of one element": lambda: torch.randn(6, 4, 9)[:, 2:3, 1:4],
    "numbers of two bytes": lambda: torch.arange(54, dtype=torch.int16).view(6, 9)[:, 2:7],
}
#: Tensors that are none.
OTHERS: dict[str, Make] = {
    "no gaps": lambda: torch.randn(6, 9),
    "transposed": lambda: torch.randn(6, 9).t(),
    "every second column": lambda: torch.randn(6, 9)[:, ::2],
    "repeated rows": lambda: torch.randn(9).expand(6, 9)[:, 2:],
    "windows that overlap": lambda: torch.randn(20).unfold(0, 5, 3),
    "rows that are cut in two": lambda: torch.randn(60).as_strided((5, 6), (9, 1), 5),
    "no elements": lambda: torch.randn(6, 9)[:, 2:2],
    "complex numbers": lambda: torch.randn(6, 9, dtype=torch.complex64)[:, 2:7],
}


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) * 2


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_a_part_lies_in_its_box(make: Make) -> None:
    x = make()
    box = enclosing_box(x)
    assert box is not None
    whole = torch.as_strided(x, (int(np.prod(box.shape)),), (1,), x.storage_offset() - box.offset).view(box.shape)
    part = whole[tuple(slice(at, at + x.shape[axis]) for at, axis in zip(box.starts, box.order, strict=True))]
    assert torch.equal(part, x.permute(box.order))
    assert part.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_tensors_have_no_box(make: Make) -> None:
    assert enclosing_box(make()) is None


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_a_part_is_read_in_place(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Executable, "__call__", lambda *inputs: pytest.fail("the inputs are copied"))
    model = compile_(doubled)
    for x in make(), make():
        torch.testing.assert_close(model(x), doubled(x))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", {**PARTS, **OTHERS}.values(), ids={**PARTS, **OTHERS})
def test_every_layout_agrees(make: Make, dynamic: bool) -> None:
    x = make()
    assert_close(compile_(lambda x: (x * 2).contiguous(), dynamic=dynamic)(x), (x * 2).contiguous())


def test_a_part_whose_memory_ends_before_the_box_is_copied() -> None:
    x = torch.randn(52).as_strided((6, 5), (9, 1), 2)  # the box would have 54 elements
    assert enclosing_box(x) is not None
    assert_close(compile_(lambda x: x * 2)(x.t()), x.t() * 2)


def test_a_part_at_another_place_of_its_memory_agrees() -> None:
    base = torch.randn(40, 9)
    model = compile_(lambda x: (x * 2).contiguous())
    for x in base[:6, 2:7], base[:6, :5], base[34:, 4:], base[3:9, 1:6]:
        assert_close(model(x), (x * 2).contiguous())
