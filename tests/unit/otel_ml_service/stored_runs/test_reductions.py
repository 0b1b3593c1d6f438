"""`otel-ml replay --reduce`: what is added, and what cannot be told later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from otel_ml.exceptions import ConfigError
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.fold import STATS
from otel_ml_service.aggregation.observation import Fragment, Partials, SeriesKey, Writer
from otel_ml_service.stored_runs.extra_reductions import ExtraReductions


def fragment(*names: str, reduction: str = "mean", records: float = 3.0) -> Fragment:
    """Return moments of `names` as a rank sends them: no buckets, no order."""
    stats = np.full((len(names), STATS), np.nan)
    stats[:, :4] = records, 6.0, 1.0, 3.0
    times = np.zeros((len(names), 2), dtype=np.int64)
    series = tuple(SeriesKey(name, (), "moments") for name in names)
    parts = Partials(series, stats, times)
    return Fragment(Writer("run", "trainer", "a"), "step", 0, Reduction.parse(reduction), 1, len(names), parts)


def applied(rules: Sequence[str], sent: Fragment) -> dict[str, str]:
    """Return metric → reduction."""
    extra = ExtraReductions(rules)
    found = {
        key.name: str(part.reduction)
        for part in extra.applied(sent)
        if isinstance(part, Fragment)
        for key in part.partials.series
    }
    extra.check()
    return found


def test_a_rule_adds_to_what_was_asked_for_and_touches_no_other_metric() -> None:
    assert applied(["loss=rank,mean,max"], fragment("loss", "reward")) == {"loss": "mean,rank,max", "reward": "mean"}


def test_a_name_may_be_a_glob_and_several_rules_add_up() -> None:
    rules = ["train/*=rank", "train/loss=max"]

    assert applied(rules, fragment("train/loss", "train/kl")) == {
        "train/loss": "mean,rank,max",
        "train/kl": "mean,rank",
    }


def test_what_was_split_keeps_the_running_number_and_how_many_points_there_were() -> None:
    parts = list(ExtraReductions(["loss=rank"]).applied(fragment("loss", "reward")))

    assert [(part.seq, part.seq_points) for part in parts if isinstance(part, Fragment)] == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("loss=p50", "'loss' was sent without buckets"),
        ("loss=histogram", "'loss' was sent without buckets"),
        ("loss=last", "'loss' was sent without the order of its records"),
        ("loss=std", "'loss' was sent without its spread"),
        ("los=rank", "no metric is called so. There are: loss."),
        ("loss=ranks", "Did you mean 'rank'?"),
        ("loss", "is not NAME=REDUCTION"),
    ],
)
def test_what_cannot_be_told_later_is_said(rule: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r".") as caught:
        applied([rule], fragment("loss"))

    assert said in str(caught.value)


def test_the_spread_and_order_of_single_records_are_known() -> None:
    assert applied(["loss=std,last"], fragment("loss", records=1.0)) == {"loss": "mean,std,last"}
