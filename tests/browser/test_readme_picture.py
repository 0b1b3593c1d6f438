"""The README's picture, on a light and on a dark page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import markdown
import pytest

from tests.browser.conftest import served
from tests.browser.page import PHONE, Page
from tests.e2e.jobs import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

GROUND = {"light": "#ffffff", "dark": "#0d1117"}
"""The colors of the page on GitHub."""


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "docs" / "images", folder / "docs" / "images")
    body = markdown.markdown((ROOT / "README.md").read_text(), extensions=["tables", "fenced_code"])
    style = "body { max-width: 900px; margin: auto; font-family: sans-serif; overflow-wrap: anywhere }"
    style += "img { max-width: 100% } pre { overflow: auto }"
    style += f"body {{ background: {GROUND['light']} }}"
    style += f"@media (prefers-color-scheme: dark) {{ body {{ background: {GROUND['dark']}; color: #e6edf3 }} }}"
    viewport = '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
    page = f"<!doctype html><html><head><meta charset=utf-8>{viewport}<style>{style}</style></head><body>{body}"
    Path(folder, "index.html").write_text(page)
    with served(folder) as address:
        yield address


@pytest.mark.parametrize("scheme", GROUND)
def test_the_picture_is_the_one_for_the_pages_colors(page: Page, readme: str, scheme: str) -> None:
    page.open(readme, scheme=scheme)

    picture = "const [it] = document.images; return it.complete && it.naturalWidth > 0 && it.currentSrc"
    shown = page.until(lambda: page.run(picture))
    page.picture(f"readme-{scheme}")
    assert shown.endswith(f"overview-{scheme}.svg")
    assert page.errors == []


def test_it_fits_a_phone(page: Page, readme: str) -> None:
    page.open(readme, size=PHONE)

    page.until(lambda: page.run("return document.images[0].naturalWidth > 0"))
    page.picture("readme-phone")
    assert page.run("return document.documentElement.scrollWidth") <= PHONE[0]
