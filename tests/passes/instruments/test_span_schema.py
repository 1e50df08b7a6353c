"""Check the data of reports made of spans against ``docs/spans.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, PassMemoryInstrument, PassTimingInstrument, Sequential, module_pass

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "spans.schema.json").read_text(encoding="utf-8"))
REPORTS = (PassTimingInstrument, PassMemoryInstrument)


def report_of(kind: type[Any], mod: IRModule, seen: Callable[[Any], None] = lambda report: None) -> dict[str, Any]:
    """A report on a pipeline with a pass that ends, one that looks at the report, and one that fails."""
    instrument = kind()

    @module_pass(opt_level=1, name="Look")
    def look(mod: IRModule, ctx: PassContext) -> IRModule:
        seen(instrument.as_dict())
        return mod

    @module_pass(opt_level=1, name="Fail")
    def fail(mod: IRModule, ctx: PassContext) -> IRModule:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), PassContext(instruments=[instrument]):
        Sequential([look, look, fail], name="S")(mod)
    return instrument.as_dict()


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_is_valid_while_passes_run_and_after_one_failed(kind: type[Any], mod: IRModule) -> None:
    open_reports: list[Any] = []
    whole = report_of(kind, mod, open_reports.append)
    assert open_reports[0]["spans"][0]["status"] == "running"
    assert whole["spans"][0]["status"] == "failed"
    for report in (*open_reports, whole):
        jsonschema.validate(json.loads(json.dumps(report)), SCHEMA)


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_without_spans_is_valid(kind: type[Any]) -> None:
    jsonschema.validate(kind().as_dict(), SCHEMA)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda report: report.update(kind="other"),
        lambda report: report.pop("schema"),
        lambda report: report["spans"][0].update(duration="1 s"),
        lambda report: report["spans"][0]["children"][0].pop("self"),
        lambda report: report["attributes"]["flat"][0].update(runs=0),
    ],
)
def test_what_is_no_report_is_not_valid(spoil: Callable[[dict[str, Any]], None], mod: IRModule) -> None:
    report = report_of(PassTimingInstrument, mod)
    spoil(report)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)
