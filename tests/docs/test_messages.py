"""The catalogue of messages is complete, and every link in the documentation has a target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.messages import PACKAGES, anchor, messages_in
from tests.docs.test_blocks import PAGES, relative
from tests.e2e.jobs import ROOT

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)">')


def test_every_message_of_the_code_has_an_anchor_in_the_catalogue() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    messages = {message for package in PACKAGES for source in package.rglob("*.py") for message in messages_in(source)}

    assert len(messages) > 20
    assert {message for message in messages if anchor(message) not in anchors(page)} == set()


def test_a_message_is_found_whatever_string_it_is_written_as(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        'raise ConfigError(f"{a!r} is not right. " + "Write it so.")\n'
        'guard.drop("reason", "This one is said once.")\n'
        'guard.drop("reason", variable)\n'
    )

    assert list(messages_in(source)) == ["… is not right. Write it so.", "This one is said once."]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_of_the_page_has_a_target(page: Path) -> None:
    for path, fragment in _LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page}: {path}"
        if fragment:
            assert fragment in anchors(target.read_text(encoding="utf-8")), f"{page}: {path}#{fragment}"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page, headings as mkdocs and GitHub name them."""
    headings = (
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in _HEADING.findall(text)
    )
    return {*headings, *_ANCHOR.findall(text)}
