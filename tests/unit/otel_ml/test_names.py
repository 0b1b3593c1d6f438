"""Names are published as they were written, and what is made of them for paths stays where it is put."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml.wire.published_name import MAX_LENGTH, ascii_spelling, by_precedence, matches, published_name, sanitized
from otel_ml.wire.safe_names import as_path, unique_identifier, unique_path

PRINTED = st.characters(exclude_categories=["Cc", "Cs", "Cf", "Zl", "Zp"])
ANY = st.text(st.characters()) | st.text("./\\ a\x00", max_size=40) | st.text("层", min_size=1200, max_size=1300)

PLAIN = re.compile(r"[A-Za-z0-9_/.\-]{1,250}")


@given(st.text(PRINTED, min_size=1, max_size=MAX_LENGTH))
def test_what_has_no_control_characters_is_published_as_it_is(name: str) -> None:
    assert sanitized(name) == name


@given(ANY)
@example("a\ud800b")
def test_every_name_becomes_one_of_one_line_that_a_file_can_hold(name: str) -> None:
    published = sanitized(name)

    assert 0 < len(published) <= MAX_LENGTH
    assert len(published.splitlines()) == 1
    assert published.encode().decode() == published
    assert sanitized(published) == published


def test_two_long_names_that_begin_alike_stay_two() -> None:
    names = ["layer." * 300 + end for end in ("q", "k")]

    assert len({sanitized(name) for name in names}) == 2


@pytest.mark.parametrize("name", ["训练 损失", "mfu (%)", "acc[top-1]", "a@b:c"])
def test_roles_axes_and_attributes_are_written_as_they_are(name: str) -> None:
    found = published_name(name, f"axis {name}", "loss", [(f"key {name}", name)])

    assert found == f"{name}/axis {name}/loss/key {name}/{name}"


@given(ANY)
@example("a/" * 400)
@example("层" * 300)
def test_a_path_of_a_name_stays_below_where_it_is_put(name: str) -> None:
    for path in (as_path(name), unique_path(name)):
        assert os.path.normpath(path) == path
        assert not {"", ".", ".."} & set(path.split("/"))
        assert not PurePosixPath(path).is_absolute()
        assert not set(path) & set('\x00<>:"\\|?*#%')
        assert max(len(part.encode()) for part in path.split("/")) <= 200


@given(st.lists(ANY, unique=True))
@example(["model?", "model", "model*", "model?.bin", "model.bin"])
def test_different_names_have_different_unique_paths(names: list[str]) -> None:
    assert len({unique_path(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "pattern", "wanted"),
    [
        ("tokens/sum", "tokens*", True),
        ("acc[top-1]", "acc[top-1]", True),
        ("acct", "acc[top-1]", False),
        ("val/acc[top-1]", "*[top-1]", True),
        ("val/acct", "*[top-1]", False),
        ("acc[top-5]", "acc[top-?]", True),
        ("a]b", "a]b", True),
        ("loss*", "loss*", True),
    ],
)
def test_brackets_of_a_glob_are_those_of_a_name(name: str, pattern: str, wanted: bool) -> None:
    assert matches(name, pattern) is wanted


def test_how_older_runs_spell_a_name_is_known() -> None:
    assert ascii_spelling("training loss") == "training_loss-f372ad93"
    assert ascii_spelling("损失/训练") == "__/__-599cea1e"
    assert ascii_spelling("mfu(%)") == "mfu___-8ae227af"


@given(ANY | st.from_regex(r"[A-Za-z0-9_/.\-]{1,300}", fullmatch=True))
@example("a" * 250)
@example("a" * 251)
@example("a/" * 130)
@example("../a//b/.")
def test_what_older_runs_call_a_metric_is_a_short_path_in_ascii(name: str) -> None:
    found = ascii_spelling(name)

    assert re.fullmatch(r"[A-Za-z0-9_/.\-]{1,250}", found)
    assert not {"", ".", ".."} & set(found.split("/"))
    assert (found == name) == bool(not {"", ".", ".."} & set(name.split("/")) and PLAIN.fullmatch(name))


@given(st.text("ab c", max_size=30), st.integers(10, 20))
@example("a" * 12, 12)
@example("a" * 13, 12)
@example("", 12)
def test_an_identifier_is_the_text_where_it_may_be_and_one_of_its_own_where_not(text: str, limit: int) -> None:
    found = unique_identifier(text, re.compile(" "), limit)

    assert 0 < len(found) <= limit
    assert " " not in found
    assert (found == text) == (0 < len(text) <= limit and " " not in text)
    assert len(found) == limit or len(text) < limit


@pytest.mark.parametrize("length", [MAX_LENGTH - 1, MAX_LENGTH, MAX_LENGTH + 1])
def test_a_name_is_cut_where_it_is_longer_than_it_may_be(length: int) -> None:
    name = "x" * length

    found = sanitized(name)

    assert (found == name) == (length <= MAX_LENGTH)
    assert len(found) == min(length, MAX_LENGTH)


@pytest.mark.parametrize(
    ("patterns", "first"),
    [(["*", "t*"], "t*"), (["tok*", "tok?ns"], "tok?ns"), (["t????", "tok*"], "tok*")],
)
def test_of_globs_that_with_more_characters_of_its_own_comes_first(patterns: list[str], first: str) -> None:
    assert min(patterns, key=by_precedence) == min(reversed(patterns), key=by_precedence) == first
