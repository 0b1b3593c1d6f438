"""What a person sees in TensorBoard, on the run of a small job."""

from __future__ import annotations

import pytest

from tests.browser.job import HOSTILE, STEPS, loss_at
from tests.browser.page import Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

TALL = (1400, 1600)
LAST = sum(loss_at(STEPS - 1, rank) for rank in range(2)) / 2


def test_a_series_has_a_card_with_a_chart_and_its_last_value(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}?tagFilter=loss|tokens|digit|weights#timeseries", size=TALL)

    page.shows("loss", "loss/min", "loss/max", "tokens", "digit", "weights")
    page.shows(f"{LAST:.4g}", str(STEPS - 1), "1,024")
    page.until(lambda: page.count("line-chart canvas") >= 4)
    page.picture("tensorboard-time-series")


def test_series_are_in_groups_by_what_they_are_of(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#timeseries", size=TALL)

    page.shows("eval", "loss", "summary", "time", "tokens")
    page.picture("tensorboard-groups")


def test_the_scalars_tab_lists_the_same_series(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#scalars", size=TALL)

    page.shows("eval/accuracy", "loss", "loss/min", "loss/max")
    page.until(lambda: page.count("tf-scalar-card path"))
    page.picture("tensorboard-scalars")


def test_parameters_and_the_summary_are_columns_of_the_hparams_tab(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#hparams")

    page.shows("learning_rate", "model.width", "model.name", "final/accuracy", "0.10000", "128.00", "0.89000")
    page.picture("tensorboard-hparams")


def test_a_metric_with_min_and_max_has_a_chart_with_a_band(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#custom_scalars")

    page.shows("loss", "Matches (1)")
    page.until(lambda: page.count("tf-custom-scalar-margin-chart-card path.area"))
    page.picture("tensorboard-custom-scalars")


def test_images_are_drawn(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#images")

    page.shows("tag: digit", "step 39")
    page.until(lambda: page.count("tf-image-loader img"))
    page.picture("tensorboard-images")


def test_texts_and_tables_are_shown_and_a_cell_is_never_taken_for_html(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#text")

    page.shows("a generated text", "confusions", "taken for", HOSTILE, "*not* emphasised <b>nor bold</b>")
    page.picture("tensorboard-text")
    assert page.title == "TensorBoard"


def test_histograms_are_drawn(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#histograms")

    page.shows("weights")
    page.until(lambda: page.count("vz-histogram-timeseries path"))
    page.picture("tensorboard-histograms")
