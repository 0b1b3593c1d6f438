"""What a program links spans with is in `spans.jsonl`, and in what readers make of it."""

from __future__ import annotations

import json
from pathlib import Path

from otel_ml_exporters.span_lines import span_of
from tests.integration.worker_process import environment, run


def test_links_of_timers_and_of_the_programs_own_spans_are_stored(tmp_path: Path) -> None:
    program = """
        from opentelemetry import trace
        import otel_ml
        with otel_ml.init("links", exporters="jsonl"):
            otel_ml.set_step(1)
            with otel_ml.timed("cause") as cause:
                pass
            context = cause.get_span_context()
            with otel_ml.timed("effect") as effect:
                effect.add_link(context, {"samples": 3})
            tracer = trace.get_tracer("program")
            with tracer.start_as_current_span("own", links=[trace.Link(context)]) as own:
                own.add_link(effect.get_span_context(), {"why": "größe"})
    """

    run(program, environment(tmp_path), tmp_path)

    [path] = (tmp_path / "runs").glob("*/*/spans.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    by_name = {row["name"]: row for row in rows}
    cause, effect, own = by_name["cause"], by_name["effect"], by_name["own"]
    to_cause = {"trace_id": cause["trace_id"], "span_id": cause["span_id"]}
    to_effect = {"trace_id": effect["trace_id"], "span_id": effect["span_id"]}
    assert "links" not in cause
    assert effect["links"] == [{**to_cause, "attributes": {"samples": 3}}]
    assert own["links"] == [{**to_cause, "attributes": {}}, {**to_effect, "attributes": {"why": "größe"}}]
    read = span_of({key: value for key, value in own.items() if key != "seq"})
    assert [(link.span_id, link.attributes) for link in read.links] == [
        (cause["span_id"], {}),
        (effect["span_id"], {"why": "größe"}),
    ]
