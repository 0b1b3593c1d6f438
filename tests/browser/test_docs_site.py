"""The documentation as a reader sees it: on a desktop and a phone, light and dark."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urldefrag

import pytest

from tests.browser.page import PHONE, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

PICTURED = ("", "concepts/", "exporters/", "exporters/mlflow/", "deployment/", "api/", "environment/", "errors/")
"""Pages that are kept as pictures."""

_IMAGES_NOT_DRAWN = """
return [...document.images].filter(image => image.checkVisibility() && !image.naturalWidth).map(image => image.src)
"""
_WIDER_THAN_THE_SCREEN = """
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= width) return [];
const scrolls = node => node && node !== document.body
    && (getComputedStyle(node).overflowX !== 'visible' || scrolls(node.parentElement));
return [...document.querySelectorAll('article *')]
    .filter(node => node.getBoundingClientRect().right > width + 1 && !scrolls(node.parentElement))
    .map(node => node.outerHTML.slice(0, 200));
"""
_LINKS = "return [...document.querySelectorAll('a[href]')].map(link => link.href)"
_FIRST_RESULTS = """
return [...document.querySelectorAll('.md-search-result__link')].slice(0, 3).map(link => link.href)
"""
_PLACES = "return [...document.querySelectorAll('[id], a[name]')].map(place => place.id || place.name)"


def pages_of(site: Path) -> list[str]:
    """Return the paths of all pages, as addresses have them."""
    found = (path.parent.relative_to(site).as_posix() for path in site.rglob("index.html"))
    return sorted("" if path == "." else f"{path}/" for path in found)


def name_of(path: str) -> str:
    return path.strip("/").replace("/", "-") or "index"


def test_every_page_is_whole_and_every_link_leads_somewhere(page: Page, site: Path, address: str) -> None:
    errors, links, places = {}, {}, {}
    for path in pages_of(site):
        page.open(f"{address}{path}")
        page.until(lambda: page.run("return document.readyState") == "complete")
        if path in PICTURED:
            page.picture(f"docs-{name_of(path)}-light")
        errors[path] = [*page.errors, *page.run(_IMAGES_NOT_DRAWN)]
        links[path] = {link for link in page.run(_LINKS) if link.startswith(address)}
        places[f"{address}{path}"] = {*page.run(_PLACES), ""}

    assert {path: found for path, found in errors.items() if found} == {}
    assert {path: broken for path, found in links.items() if (broken := unknown(found, places, site, address))} == {}


def unknown(links: set[str], places: dict[str, set[str]], site: Path, address: str) -> list[str]:
    """Return the links that lead to no page, no file and no place of a page."""
    broken = []
    for link in sorted(links):
        target, place = urldefrag(link)
        target = target.removesuffix("index.html")
        is_file = (site / target.removeprefix(address)).is_file()
        if not is_file and place not in places.get(target, ()):
            broken.append(link)
    return broken


def test_in_the_dark_every_page_is_dark_and_so_are_its_pictures(page: Page, site: Path, address: str) -> None:
    wrong = {}
    for path in pages_of(site):
        page.open(f"{address}{path}", scheme="dark")
        page.until(lambda: page.run("return document.readyState") == "complete")
        if path in PICTURED:
            page.picture(f"docs-{name_of(path)}-dark")
        shown = page.run("return [...document.images].filter(one => one.checkVisibility()).map(one => one.src)")
        scheme = page.run("return document.body.getAttribute('data-md-color-scheme')")
        problems = [*page.errors, *page.run(_IMAGES_NOT_DRAWN), *(source for source in shown if "-light" in source)]
        if problems or scheme != "slate":
            wrong[path] = [scheme, *problems]

    assert wrong == {}


def test_on_a_phone_no_page_is_wider_than_the_screen(page: Page, site: Path, address: str) -> None:
    wide = {}
    for path in pages_of(site):
        page.open(f"{address}{path}", size=PHONE)
        page.until(lambda: page.run("return document.readyState") == "complete")
        if path in PICTURED:
            page.picture(f"docs-{name_of(path)}-phone")
        wide[path] = page.run(_WIDER_THAN_THE_SCREEN)

    assert {path: found for path, found in wide.items() if found} == {}


def test_a_name_in_a_table_is_not_broken(page: Page, address: str) -> None:
    page.open(f"{address}environment/")

    height = "return Math.max(...[...document.querySelectorAll('td:first-child code')].map(it => it.offsetHeight))"
    assert page.run(height) < 30, "a name has several lines"


def test_the_search_finds_how_steps_close(page: Page, address: str) -> None:
    page.open(address)
    page.run("document.querySelector('[data-md-toggle=search]').click()")
    page.type("[data-md-component=search-query]", "closing")

    def is_found() -> bool:
        """Whether it is among the first: at each letter it searches anew, and shows what was found for the last."""
        first = page.run(_FIRST_RESULTS)
        return any("/concepts/" in link and "closing-when-a-step-closes" in link for link in first)

    page.until(is_found, "closing-when-a-step-closes among the first three")
    page.picture("docs-search")
