"""What stands in a report, and that nothing in it acts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from otel_ml_exporters.records import Params, Span, StepRecord, Table
from otel_ml_service.cli import main
from otel_ml_service.findings.finding import COLUMNS
from otel_ml_service.report.contents import contents
from otel_ml_service.report.page import page, page_of_parts
from otel_ml_service.report.timeline import timeline
from otel_ml_service.report.timing import timers
from otel_ml_service.stored_runs.run_history import history
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.report.runs import HOSTILE, records_of_everything


class Reader(HTMLParser):
    """Collects the elements, their attributes and all text of a page; complains of what is not closed."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(content)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in {"meta", "link", "img", "input"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in {"script", "style"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@pytest.fixture(scope="module")
def content() -> str:
    return page([contents("run-1", "pages", records_of_everything())])


@pytest.mark.feature("N19", "yes", "its picture and the tables of samples stand on the page of the run")
def test_everything_of_a_run_stands_on_one_page(content: str) -> None:
    read = Reader(content)

    for wanted in (
        "run-1", "finished", "59 s", "values lost", "with a rank missing", "Slow and silent ranks", "critical",
        "Where the time goes", "What every worker did in the last steps", "samples", "What is 7?", "line one",
        "forward", "model.pt", "ab" * 8, "cd" * 16,
        "test/accuracy", "Parameters", "model.name", "best", "12.3 kB",
    ):  # fmt: skip
        assert wanted in read.text, wanted
    assert sum(tag == "svg" for tag, _ in read.elements) >= 5


def test_a_finding_that_names_a_span_of_other_steps_gets_the_one_that_shows_it() -> None:
    slow = ("critical", "slow", 1, "forward", 20, 39, 1.2, 0.5, 10.0, "forward", 58, "ab" * 8, "cd" * 16, "rank 1", 0.5)
    run = contents("run-1", "pages", [Table(1, 1060.0, "otel_ml/findings", "step", 59, COLUMNS[: len(slow)], (slow,))])
    stored = [
        Span("e" * 32, f"{step}{rank}".rjust(16, "0"), None, "forward", 0, 900 - step, "trainer", rank, "step", step)
        for step in (20, 21)
        for rank in (0, 1)
    ]

    without, with_it = page([run]), page([run], {("trainer", "step", 20): stored})

    assert "ab" * 8 in Reader(without).text
    assert "ab" * 8 not in Reader(with_it).text
    assert "201".rjust(16, "0") in Reader(with_it).text


@pytest.mark.feature("M4", "yes", "timers of all ranks in one table, with the rank that is mostly the slowest")
@pytest.mark.feature("N21", "yes", "timers sorted, each with its share of the step and the rank that is at the front")
def test_timers_are_sorted_with_their_share_of_the_step_and_the_slowest_rank(content: str) -> None:
    texts = Reader(content).texts

    place = texts.index("rank at the front")
    assert texts[place + 1 : place + 6] == ["step", "1.17 s", "1.5 s", "1 min 10 s", "100 %"]
    forward = texts.index("forward", place)
    assert texts[forward + 1 : forward + 6] == ["567 ms", "900 ms", "34 s", "48.6 %", "3"]


def test_what_remains_is_no_time_that_was_spent() -> None:
    values = {"time/step": 1.0, "time/forward": 0.5, "time/remaining": 900.0, "time/remaining_estimate": 15.0}

    found = timers(history([StepRecord(1, "trainer", "step", 0, 0, 10.0, values)]))

    assert [timer.name for timer in found] == ["step", "forward"]


def test_what_megatron_counts_below_time_is_no_timer() -> None:
    counted = {"time/total": 7200.0, "time/batches": 900.0, "time/samples": 3600.0, "time/tokens": 1e9}
    values = {"time/step": 1.0, "time/forward": 0.5, "time/total/mean": 7200.0, **counted}
    over_samples = {f"samples/{name}": value for name, value in counted.items()}

    found = timers(
        history(
            [
                StepRecord(1, "trainer", "step", 900, 0, 10.0, values),
                StepRecord(2, "trainer", "samples", 3600, 0, 10.0, over_samples),
            ]
        )
    )

    assert [timer.name for timer in found] == ["step", "forward"]


def test_a_timer_that_is_called_total_is_a_timer() -> None:
    found = timers(history([StepRecord(1, "trainer", "step", 0, 0, 10.0, {"time/total": 2.0, "time/tokens": 1.0})]))

    assert [timer.name for timer in found] == ["total", "tokens"]


def test_nothing_is_loaded_from_elsewhere_and_no_name_becomes_an_element(content: str) -> None:
    read = Reader(content)

    assert [tag for tag, _ in read.elements].count("script") == 1
    assert not [attributes for _, attributes in read.elements if any(name.startswith("on") for name in attributes)]
    links = [
        value or "" for _, attributes in read.elements for name, value in attributes.items() if name in {"src", "href"}
    ]
    assert links
    assert all(link.startswith("data:") for link in links)
    assert HOSTILE in read.text
    assert "\x1b" not in content


def test_values_that_are_no_numbers_are_gaps_and_the_largest_ones_are_drawn(content: str) -> None:
    paths = re.findall(r'<path d="([^"]+)" class="c0">', content)

    assert "nan" not in "".join(paths).lower()
    assert "inf" not in "".join(paths).lower()
    assert any(path.count("M") == 2 for path in paths)


def test_a_run_with_next_to_nothing_has_a_page_too() -> None:
    for records in ([], [Params(1, 1.0, {})], [StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": float("nan")})]):
        read = Reader(page([contents("empty", "pages", records)]))

        assert "empty" in read.text
        assert "Slow and silent ranks" not in read.text


def test_a_step_that_begins_a_moment_before_the_last_one_ends_stands_beside_it_and_not_in_it() -> None:
    """Begin and end of a span are read from the clock one after the other."""
    steps = [
        Span("0" * 32, f"{step}" * 16, None, "step", step * 10**9 - 500, (step + 1) * 10**9, "trainer", 0, "step", step)
        for step in range(3)
    ]

    picture = timeline(steps)

    assert len(set(re.findall(r'<rect x="[0-9.]+" y="(\d+)"', picture))) == 1


@pytest.mark.feature("I20", "yes", "speed-up and efficiency; energy, utilization, compute share where recorded")
def test_several_runs_are_compared_from_the_fewest_ranks_on() -> None:
    runs = [
        contents(f"run-{ranks}", "pages", records_of_everything(ranks=ranks, step_s=step_s))
        for ranks, step_s in ((8, 0.3), (4, 0.5), (2, 1.0))
    ]

    texts = Reader(page(runs)).texts

    head = texts.index("a step", texts.index("Side by side"))
    assert texts[head - 3 : head + 4] == [
        "run", "ranks", "steps", "a step", "speed-up", "efficiency", "compute share",
    ]  # fmt: skip
    rows = [texts[texts.index(f"run-{ranks}", head) :][:6] for ranks in (2, 4, 8)]
    assert rows == [
        ["run-2", "2", "60", "1 s", "1 ×", "100 %"],
        ["run-4", "4", "60", "500 ms", "2 ×", "100 %"],
        ["run-8", "8", "60", "300 ms", "3.33 ×", "83.3 %"],
    ]
    assert "Speed-up is over run-2: every step counts as the same work in all runs." in texts


def test_the_command_writes_the_file_into_the_run_or_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    run = write_run(tmp_path, "01abc", records_of_everything())

    assert main(["report"]) == 0
    assert main(["report", "01abc", "--out", str(tmp_path / "new" / "page.html")]) == 0

    shown = capsys.readouterr().out.splitlines()
    assert shown == [str(run.path / "report.html"), str(tmp_path / "new" / "page.html")]
    assert Path(shown[0]).read_text() == Path(shown[1]).read_text()


def test_where_the_file_cannot_be_written_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    write_run(tmp_path, "01abc", records_of_everything())
    (tmp_path / "file").write_text("")

    assert main(["report", "--out", str(tmp_path / "file" / "page.html")]) == 1

    assert "Write it elsewhere with --out. (otel-ml explain report-not-written)" in capsys.readouterr().err


def test_a_report_is_not_attached_to_a_run_of_which_only_a_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    run = write_run(tmp_path, "01abc", records_of_everything())
    run.database.unlink()

    assert main(["report", "--attach"]) == 1

    assert (run.path / "report.html").exists()
    assert "'01abc' has no database of a service (state/run.db)" in capsys.readouterr().err


def test_the_command_says_as_json_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    run = write_run(tmp_path, "01abc", records_of_everything())

    assert main(["report", "--json"]) == 0

    file = run.path / "report.html"
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file), "bytes": file.stat().st_size,
        "runs": [{"id": "01abc", "experiment": "digits", "attached_to": []}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "notes", "title", "texts"),
    [
        ("", "", "run-1", ["pages", "run-1"]),
        ("run-1", "", "run-1", ["pages", "run-1"]),
        ("best", "a note", "best", ["pages/run-1", "best", "a note"]),
    ],
)
def test_a_page_has_the_name_that_people_gave_its_run(name: str, notes: str, title: str, texts: list[str]) -> None:
    run = contents("run-1", "pages", [])
    run.name, run.notes = name, notes

    read = Reader(page([run]))

    assert read.texts[: 1 + len(texts)] == [title, *texts]
    assert read.texts[-1] == "Made by otel-ml report."
    assert Reader(page([run, run])).texts[:2] == ["2 runs of pages", "2 runs"]


def test_parts_of_a_live_page_have_their_names_and_their_digests() -> None:
    read = Reader(page_of_parts("best", {"title": ("ab", "<b>x</b>"), "curves": ("cd", "")}, 7))

    parts = [(has["data-part"], has["data-hash"]) for tag, has in read.elements if "data-part" in has]
    [main] = [(has["data-live-run"], has["data-version"]) for tag, has in read.elements if tag == "main"]
    [back] = [has["href"] for tag, has in read.elements if tag == "a"]
    assert (parts, main, back) == ([("title", "ab"), ("curves", "cd")], ("best", "7"), "../../../")
