"""The scripts of a page show the texts they are given: none of these moves a cursor, or turns the direction."""

from __future__ import annotations

import json

from otel_ml_service.report.contents import contents
from otel_ml_service.report.page import page
from tests.unit.otel_ml_service.report.odd_names import SHOWN, controls_in, odd_run, texts_in
from tests.unit.otel_ml_service.report.test_page import Reader

GIVEN = {"data-steps", "data-heat", "data-bands", "data-goto", "data-times", "data-curves"}


def test_what_a_report_gives_its_scripts_is_written_out():
    content = page([contents("run-1", "pages", odd_run())])

    elements = Reader(content).elements
    given = [(name, json.loads(value or "")) for _, has in elements for name, value in has.items() if name in GIVEN]

    assert {name for name, _ in given} >= {"data-steps", "data-heat", "data-bands", "data-goto", "data-times"}
    assert all(SHOWN in set(texts_in(value)) for name, value in given if name in {"data-steps", "data-goto"})
    assert controls_in([value for _, value in given]) == []
    assert controls_in(content) == []
