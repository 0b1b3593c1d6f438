"""`otel-ml explain`: from what a person saw to what it means."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml_exporters.errors import UnknownExporterError
from otel_ml_service.cli import cli
from otel_ml_service.cli.catalogue import catalogue


def explain(*what: str, **variables: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *what], prog_name="otel-ml", env=variables)


def explained_slugs(*what: str) -> list[str]:
    done = explain(*what)
    assert done.exit_code == 0, done.output
    return [line for line in done.output.splitlines() if line in catalogue().sections]


def test_a_slug_is_explained() -> None:
    done = explain("spool-full")

    assert done.output.startswith("spool-full\n\nNo receiver answers")
    assert [word in done.output for word in ("Means:", "Why:", "Do:")] == [True, True, True]
    assert "**" not in done.output
    assert "](" not in explain("wrong-setting").output


@pytest.mark.parametrize("written", ["SPOOL-FULL", "spool_full", "(otel-ml explain spool-full)"])
def test_a_slug_may_be_written_as_it_was_seen(written: str) -> None:
    """`spool_full` is how the line at the end of a run names what was lost."""
    assert explained_slugs(written) == ["spool-full"]


@pytest.mark.parametrize("written", ["quantised-tensor", "The norm of 'w' … (otel-ml explain quantised-tensor)"])
def test_a_slug_that_is_spelled_otherwise_now_is_explained(written: str) -> None:
    """Runs that were recorded before name it in their notices."""
    assert explained_slugs(written) == ["quantized-tensor"]


@pytest.mark.parametrize(
    ("message", "slug"),
    [
        ("otel_ml: Metric 'loss': expected a number, got {'a': 1}. (otel-ml explain bad-value)", "bad-value"),
        ("otel_ml: Metric 'loss': expected a number, got None.", "bad-value"),
        ("[rank3]: otel_ml: No step is set; call otel_ml.set_step(i) or pass step=.", "no-step"),
        ("otel_ml: 1,204 points of rank 3 are not acknowledged (timed out); they are kept on this host. The next start "
         "of this run sends them, or: otel-ml recover", "not-acknowledged"),
        ("Run digits-1: Exporter 'mlflow': MLflow: no answer. It is tried again; the others go on, and what it does "
         "not have is kept.", "exporter-failing"),
        ("--embedded is old; Step 7 of axis 'step' is still open: it waits for ranks 3, 4 and 12 more.", "step-open"),
        ("'/data/runs/.service/journal.db' is in use by another otel_ml service. Stop that one, or choose another "
         "OTEL_ML_DIR.", "storage"),
        ("The receiver has not answered for so long that the spool is\nfull: from now on the oldest points are\n"
         "dropped and counted.", "spool-full"),
        ("The spool was full: 1,204 points were dropped, of steps 3 to 9 of axis 'step'.", "spool-full"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_message_is_explained_as_it_was_printed(message: str, slug: str) -> None:
    assert explained_slugs(message) == [slug]
    assert explained_slugs(*message.split()) == [slug]  # without quotes in the shell


def test_a_message_of_several_problems_is_explained_as_a_whole() -> None:
    error = ConfigError("init(rank=): expected 0, got -1.", str(UnknownExporterError("wandbb", ["wandb"])))

    assert explained_slugs(str(error)) == ["wrong-setting", "unknown-exporter"]


@pytest.mark.parametrize("template", catalogue().messages, ids=lambda text: text[:30])
def test_every_message_of_the_catalogue_leads_to_its_section(template: str) -> None:
    seen = template.replace("…", "'/tmp/x 1' (3)")

    assert catalogue().messages[template] in explained_slugs(seen)


def test_what_is_unknown_is_answered_with_what_is_near_or_with_the_list() -> None:
    near, far = explain("spoolfull"), explain("qwertyuiop")

    assert (near.exit_code, far.exit_code) == (1, 1)
    assert "Nothing is known of 'spoolfull'. Did you mean 'spool-full'" in near.output
    assert "otel-ml explain` lists all names" in near.output
    assert "  no-step" not in near.output
    assert "  no-step" in far.output


def test_without_anything_every_section_is_listed_in_80_columns() -> None:
    done = explain()

    assert done.exit_code == 0
    assert [slug for slug in catalogue().sections if f"  {slug} " not in done.output] == []
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize("slug", catalogue().sections)
def test_a_section_is_readable_in_80_columns(slug: str) -> None:
    assert max(map(len, explain(slug).output.splitlines())) <= 80


def test_the_shell_completes_slugs() -> None:
    done = CliRunner().invoke(
        cli,
        [],
        prog_name="otel-ml",
        env={"_OTEL_ML_COMPLETE": "bash_complete", "COMP_WORDS": "otel-ml explain spool", "COMP_CWORD": "2"},
    )

    assert sorted(done.output.split()) == ["plain,spool-full", "plain,spool-not-read", "plain,spool-not-written"]


def test_an_error_names_its_section_and_can_be_quoted_without_it() -> None:
    error = MissingDependencyError("Exporter 'mlflow'", package="mlflow", extra="mlflow")

    assert str(error) == f"{error.sentence} (otel-ml explain missing-package)"


def test_an_error_of_several_lines_names_its_section_in_the_first() -> None:
    first, *problems = str(ConfigError("a is wrong.", "b is wrong.")).splitlines()

    assert first == "2 settings are wrong (otel-ml explain wrong-setting):"
    assert problems == ["  a is wrong.", "  b is wrong."]


def test_problems_that_name_their_own_sections_need_no_common_one() -> None:
    error = ConfigError(*[str(UnknownExporterError(name, ["wandb"])) for name in ("a", "b")])

    assert str(error).startswith("2 settings are wrong:\n  No exporter is registered as 'a'.")


def test_each_part_of_the_list_has_its_heading_once() -> None:
    headings = [line for line in explain().output.splitlines() if line and not line.startswith(" ")]

    assert headings
    assert len(headings) == len(set(headings))


def test_a_program_gets_an_object_for_each_section() -> None:
    [found] = map(json.loads, explain("spool-full", "--json").stdout.splitlines())
    every = [json.loads(line)["slug"] for line in explain("--json").stdout.splitlines()]

    section = catalogue().sections["spool-full"]
    assert found == {"slug": "spool-full", "part": section.part, "summary": section.line, "text": section.text}
    assert every == list(catalogue().sections)


def test_a_program_gets_no_list_for_what_is_unknown() -> None:
    done = explain("spoolfull", "--json")

    assert (done.exit_code, done.stdout) == (1, "")
    assert "Nothing is known of 'spoolfull'. Did you mean 'spool-full'" in done.stderr
