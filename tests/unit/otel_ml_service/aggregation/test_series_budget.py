"""Of the series of a scraped engine the first that are wanted are taken, and go on to be."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.series_budget import SeriesBudget
from otel_ml_service.aggregation.settings import EngineSettings


def test_the_first_series_up_to_the_limit_are_taken_and_those_go_on() -> None:
    budget = SeriesBudget(EngineSettings(scraped_series=2))

    for _ in range(2):
        assert budget.verdict("vllm", "tokens", ()) == "taken"
        assert budget.verdict("vllm", "tokens", (("model", "a"),)) == "taken"
        assert budget.verdict("vllm", "tokens", (("model", "b"),)) == "overflow"
        assert budget.verdict("sglang", "tokens", ()) == "overflow"


@pytest.mark.parametrize(
    ("allow", "deny", "name", "verdict"),
    [
        (("*",), (), "up", "taken"),
        (("*",), ("scrape_*",), "scrape_duration", "denied"),
        (("vllm:*", "sglang:*"), (), "sglang:tokens", "taken"),
        (("vllm:*", "sglang:*"), (), "python_gc", "denied"),
        (("vllm:*",), ("*_bucket",), "vllm:time_bucket", "denied"),
        (("VLLM:*",), (), "vllm:tokens", "denied"),
        ((), (), "up", "denied"),
        ((), ("*",), "otel_ml/lag", "taken"),
    ],
)
def test_names_are_wanted_that_are_allowed_and_not_denied(
    allow: tuple[str, ...], deny: tuple[str, ...], name: str, verdict: str
) -> None:
    budget = SeriesBudget(EngineSettings(scraped_allow=allow, scraped_deny=deny))

    for _ in range(2):
        assert budget.verdict("vllm", name, ()) == verdict


def test_what_is_denied_and_our_own_take_no_room() -> None:
    budget = SeriesBudget(EngineSettings(scraped_series=1))

    for name in ("scrape_a", "scrape_b", "otel_ml/lag", "otel_ml/queue"):
        budget.verdict("vllm", name, ())

    assert budget.verdict("vllm", "tokens", ()) == "taken"
    assert budget.verdict("vllm", "requests", ()) == "overflow"
    assert budget.verdict("vllm", "scrape_c", ()) == "denied"
