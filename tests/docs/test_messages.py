"""The catalogue of messages is complete, messages name its sections, and every link of the docs has a target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_ml_service.cli.catalogue import Section, catalogue
from tests.docs.messages import anchor, messages, messages_in, slugs
from tests.docs.test_blocks import PAGES, relative
from tests.e2e.jobs import ROOT

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([^"]+)">')


def test_every_message_of_the_code_has_an_anchor_in_the_catalogue() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")

    assert len(messages()) > 200
    assert {message.text for message in messages() if anchor(message.text) not in anchors(page)} == set()


def test_every_message_of_the_code_names_a_section_that_exists() -> None:
    assert {(str(message.source), message.text) for message in messages() if not message.slug} == set()
    assert slugs() - set(catalogue().sections) == set()


def test_every_section_is_named_by_a_message_or_is_a_reason_of_a_loss() -> None:
    assert set(catalogue().sections) - slugs() == set()


@pytest.mark.parametrize("section", catalogue().sections.values(), ids=lambda section: section.slug)
def test_a_section_says_what_it_means_why_it_happens_and_what_to_do(section: Section) -> None:
    assert [paragraph.partition(":** ")[0] for paragraph in section.text.split("\n\n")] == ["**Means", "**Why", "**Do"]
    assert all(len(paragraph.split()) > 3 for paragraph in section.text.split("\n\n"))


def test_the_list_of_sections_fits_a_terminal_of_80_columns() -> None:
    sections = catalogue().sections.values()
    width = max(len(section.slug) for section in sections)

    assert {section.line for section in sections if 2 + width + 2 + len(section.line) > 80} == set()


def test_a_message_is_found_whatever_string_it_is_written_as(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "def f():\n"
        '    raise ConfigError(f"{a!r} is not right. " + "Write it so.")\n'
        '    raise ConfigError(f"The port {a} is in use.", slug="cannot-listen")\n'
        '    guard.drop("bad_name", "This one is said once.")\n'
        '    guard.drop("reason", variable)\n'
        '    sentence = "This one has a name."\n'
        '    log(explained(sentence, "storage"))\n'
    )

    assert [(message.slug, message.text) for message in messages_in(source)] == [
        ("wrong-setting", "… is not right. Write it so."),
        ("cannot-listen", "The port … is in use."),
        ("bad-name", "This one is said once."),
        ("storage", "This one has a name."),
    ]


def test_a_message_without_a_section_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("def f():\n    guard.say(variable, 'Something is wrong here.')\n    say('And here is more.')\n")

    assert [message.slug for message in messages_in(source)] == ["", ""]


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
