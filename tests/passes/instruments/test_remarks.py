"""``Remarks`` collects the remarks of passes, and filters them by pass, kind, function and text."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Pass, PassContext, PassInstrument, Remark, Remarks, Sequential, module_pass
from tilewright.passes.graph import FoldScaleAxis, FuseOps


def saying(name: str, *said: tuple[str, str, str]) -> Pass:
    """A pass that makes remarks: kind, function, message."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        for kind, function, message in said:
            ctx.remark(message, kind, f"place of {message}", function)
        return mod

    return module_pass(transform, opt_level=0, name=name)


FUSE = saying(
    "FuseOps", ("applied", "main", "fused a and b"), ("missed", "main", "c stays"), ("missed", "f", "d stays")
)
FOLD = saying("FoldConstant", ("note", "", "computed e"))


def collected(mod: IRModule, *args: Any, **options: Any) -> Remarks:
    remarks = Remarks(*args, **options)
    with PassContext(instruments=[remarks]):
        Sequential([FUSE, FOLD])(mod)
    return remarks


@pytest.mark.parametrize(
    ("filters", "messages"),
    [
        ({}, ["fused a and b", "c stays", "d stays", "computed e"]),
        ({"passes": "FoldConstant"}, ["computed e"]),
        ({"passes": ["F[ou]*Con*"]}, ["computed e"]),
        ({"kinds": ["applied", "note"]}, ["fused a and b", "computed e"]),
        ({"functions": "main"}, ["fused a and b", "c stays"]),
        ({"message": r"\b[cd]\b"}, ["c stays", "d stays"]),
        ({"message": "place of computed"}, ["computed e"]),
        ({"passes": "FuseOps", "kinds": "missed", "functions": "f*"}, ["d stays"]),
    ],
)
def test_remarks_are_found_by_pass_kind_function_and_text(
    mod: IRModule, filters: dict[str, Any], messages: list[str]
) -> None:
    assert [remark.message for remark in collected(mod).select(**filters)] == messages
    assert [remark.message for remark in collected(mod, **filters).remarks] == messages


def test_the_text_is_grouped_by_pass_with_places(mod: IRModule) -> None:
    assert collected(mod).render(kinds=["applied", "note"]).splitlines() == [
        "FuseOps",
        "  applied @main: fused a and b",
        "          at place of fused a and b",
        "FoldConstant",
        "  note    computed e",
        "          at place of computed e",
    ]


def test_what_is_said_again_has_one_line_with_a_number(mod: IRModule) -> None:
    remarks = Remarks()
    with PassContext(instruments=[remarks]):
        Sequential([FOLD, FOLD])(mod)
    assert "computed e  (x2)" in remarks.render()
    assert len(remarks.remarks) == 2


def test_data_and_json_have_all_fields(mod: IRModule) -> None:
    remarks = collected(mod, kinds="applied")
    assert remarks.as_dict() == {
        "remarks": [
            {
                "pass_name": "FuseOps",
                "function": "main",
                "kind": "applied",
                "message": "fused a and b",
                "place": "place of fused a and b",
            }
        ]
    }
    assert json.loads(remarks.to_json()) == remarks.as_dict()


def test_a_stream_gets_each_remark_that_fits_when_it_is_made(mod: IRModule) -> None:
    stream = io.StringIO()
    remarks = collected(mod, kinds="applied", stream=stream)
    assert stream.getvalue() == f"{remarks.remarks[0]}\n"


def test_reset_forgets(mod: IRModule) -> None:
    remarks = collected(mod)
    remarks.reset()
    assert remarks.render() == ""


def test_a_filter_that_is_no_name_is_refused() -> None:
    with pytest.raises(TypeError, match="passes: expected a name or pattern"):
        Remarks(passes=3)  # type: ignore[arg-type]
    with pytest.raises(re.error):
        Remarks(message="(")


def test_every_instrument_of_the_context_hears_remarks_also_those_repeated(mod: IRModule) -> None:
    heard: list[str] = []

    class Listens(PassInstrument):
        def remark(self, remark: Remark) -> None:
            heard.append(remark.message)

    with PassContext(instruments=[Listens()]) as ctx:
        FOLD(mod)
        ctx.repeat([Remark("P", "", "note", "from an earlier build")])
    assert heard == ["computed e", "from an earlier build"]


def fuse(body: gi.Expr, *params: gi.Var) -> Remarks:
    remarks = Remarks()
    with PassContext(opt_level=3, instruments=[remarks]):
        FuseOps()(IRModule.from_expr(gi.Function(params, body)))
    return remarks


def test_a_fusion_that_did_not_happen_names_the_nodes_and_the_reason() -> None:
    x = gi.var("x", shape=(4, 4))
    first = gi.Call("matmul", [x, x], span="scores")
    second = gi.Call("matmul", [first, x], span="mixed")
    (remark,) = fuse(second, x).select(kinds="missed", message="scores")
    assert remark.message == (
        "matmul scores and matmul mixed not fused: matmul mixed is a contraction as well, and a group holds only one"
    )


def test_an_operator_before_one_that_is_in_no_group_is_told_so() -> None:
    x = gi.var("x", shape=(4, 4))
    body = gi.Call("cumsum", [gi.Call("tanh", [x], span="squashed")], {"axis": 0}, span="summed")
    (remark,) = fuse(body, x).select(kinds="missed")
    assert remark.message == "tanh squashed and cumsum summed not fused: cumsum summed cannot be fused: it is opaque"


def test_a_factor_that_stays_behind_a_convolution_says_why() -> None:
    x = gi.var("x", shape=(1, 4, 8, 8))
    product = gi.nn.conv2d(x, gi.const(np.ones((4, 4, 3, 3), "f4")))
    scaled = product * gi.const(np.ones((4, 1, 1), "f4"))
    remarks = Remarks(kinds="missed")
    with PassContext(opt_level=3, instruments=[remarks]):
        FoldScaleAxis()(IRModule.from_expr(gi.Function([x], gi.nn.relu(scaled) + product)))
    assert "the tensor that it multiplies has 2 uses" in remarks.render()


def test_a_build_says_how_much_was_computed_and_merged() -> None:
    x = gi.var("x", shape=(4,))
    constant = gi.exp(gi.const(np.ones(4, "f4"))) + gi.const(np.ones(4, "f4"))
    body = gi.sigmoid(gi.tanh(x) + constant) + gi.sigmoid(gi.tanh(x) + constant)
    remarks = Remarks(kinds="applied")
    with PassContext(opt_level=2, instruments=[remarks]):
        tw.build(IRModule.from_expr(gi.Function([x], body)))
    first = {remark.pass_name: remark.message for remark in reversed(remarks.remarks)}
    assert first["EliminateCommonSubexpr"] == "calls replaced by equal ones: 3"
    assert first["FoldConstant"] == "calls evaluated at build time: 2"
