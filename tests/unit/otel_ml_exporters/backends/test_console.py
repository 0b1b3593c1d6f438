from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.console import ConsoleExporter
from otel_ml_exporters.errors import PermanentExportError
from otel_ml_exporters.records import Params, Record, RunInfo, RunStatus, StepRecord, Summary

RUN = RunInfo("01J", "digits", "first", Path(), 1.7e9)


def row(step: int, values: dict[str, float], **changed: object) -> StepRecord:
    fields: dict[str, object] = {"role": "trainer", "axis": "step", "attempt": 0, "time": 1.0, **changed}
    return StepRecord(seq=step, step=step, values=values, **fields)


def written(*records: Record, stream: io.StringIO | None = None, **options: object) -> list[str]:
    out = stream or io.StringIO()
    exporter = ConsoleExporter(stream=out, **options)
    exporter.start(RUN)
    exporter.export(records)
    exporter.shutdown(1.0, None)
    return out.getvalue().splitlines()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_is_one_line_with_what_is_looked_at_first() -> None:
    values = {"time/forward": 0.012, "loss/max": 3.0, "loss": 0.42134, "otel_ml/lag": 1.0, "accuracy": 0.9}

    said = written(row(120, values))

    assert said == ["run digits/first", "step 120  loss  0.4213  accuracy  0.9000  time/forward 0.01200"]


def test_the_values_of_a_table_are_seen_whole_beside_names_of_any_length() -> None:
    values = {"a" * 300: 0.12345, "模型训练😀" * 20: 0.54321}

    said = "\n".join(written(row(1, values), stream=Terminal(), width=60))

    assert "0.1235" in said or "0.1234" in said
    assert "0.5432" in said


def test_columns_stay_where_they_are() -> None:
    said = written(row(9, {"loss": 0.5, "lr": 0.1}), row(10, {"lr": 1e-5}), row(11, {"loss": 0.25, "lr": 0.1}))

    assert [line.index("lr") for line in said[2:]] == [said[2].index("lr")] * 2
    assert "loss" not in said[2]


def test_the_time_of_a_step_is_shown_by_what_adds_up_and_not_by_the_slowest_rank_of_each_timer() -> None:
    slowest = {"time/forward": 0.020, "time/all_reduce": 0.016}
    account = {"time/exposed/forward": 0.020, "time/exposed/all_reduce": 0.001, "time/exposed/forward/rank": 2.0}

    _, first, second, *_ = written(row(1, {**slowest, **account}), row(2, {**slowest, **account}))

    assert second.split()[2:] == ["time/exposed/all_reduce", "0.001000", "time/exposed/forward", "0.02000"]
    assert first.split()[2:] == second.split()[2:]


def test_lines_are_never_longer_than_the_width_and_say_what_is_missing() -> None:
    values = {f"metric_{at}": 1e-9 / (at + 1) for at in range(50)}
    rows = [row(step, values, writers_missing=step % 3) for step in range(1, 200)]

    said = written(Params(1, 1.0, {f"p{at}": at for at in range(99)}), *rows, width=70)

    assert max(map(len, said)) <= 70
    assert said[2].endswith("(1 writer missing)")
    assert said[3].endswith("(2 writers missing)")
    assert said[4].count("metric_") >= 2


@pytest.mark.parametrize(
    "timed",
    [
        {"time/forward": 0.29, "time/forward/mean": 0.09, "time/forward/argmax": 2.0},
        {"time/forward": 0.09, "time/forward/max": 0.29, "time/forward/argmax": 2.0},
        {"time/forward/rank_0": 0.02, "time/forward/rank_1": 0.03, "time/forward/rank_2": 0.29, "time/forward": 0.29},
    ],
    ids=["max,mean,argmax", "mean,max,argmax", "max,rank"],
)
def test_who_took_longest_is_named_where_the_step_tells(timed: dict[str, float]) -> None:
    waiting = {"time/sync": 0.3, "time/sync/mean": 0.28, "time/sync/argmax": 0.0}

    said = written(row(1, {"loss": 1.0, **timed, **waiting}))

    assert said[1].endswith("(rank 2 longest in forward: 290 ms)")


def test_who_waits_longest_is_not_named_but_who_is_in_front() -> None:
    forward = {
        "time/forward": 0.29,
        "time/forward/mean": 0.15,
        "time/forward/argmax": 0.0,
        "time/exposed/forward": 0.29,
    }
    waiting = {"time/sync": 0.3, "time/sync/mean": 0.15, "time/sync/argmax": 1.0, "time/exposed/sync": 0.01}

    said = written(row(1, {"loss": 1.0, **forward, **waiting}))

    assert said[1].endswith("(rank 0 longest in forward: 290 ms)")


def test_nobody_is_named_where_ranks_are_alike_or_the_difference_is_small() -> None:
    alike = {"time/forward": 0.29, "time/forward/mean": 0.27, "time/forward/argmax": 2.0}
    small = {"time/load": 0.002, "time/load/mean": 0.0005, "time/load/argmax": 1.0}

    assert "longest" not in written(row(1, {**alike, **small}))[1]


def test_who_is_missing_is_named_where_ranks_have_series_of_their_own() -> None:
    ranks = {f"loss/rank_{rank}": 1.0 for rank in range(4)}
    fewer = {name: value for name, value in ranks.items() if name not in {"loss/rank_1", "loss/rank_3"}}

    said = written(row(1, ranks), row(2, fewer, writers_missing=2), row(3, {"loss": 1.0}, writers_missing=2))

    assert said[2].endswith("(2 writers missing: ranks 1, 3)")
    assert said[3].endswith("(2 writers missing)")


def test_the_table_names_who_took_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    timed = {"time/forward": 0.29, "time/forward/mean": 0.09, "time/forward/argmax": 2.0}

    assert "rank 2 longest in forward" in "\n".join(written(row(1, timed), stream=Terminal(), width=100))


def test_chosen_metrics_are_shown_in_the_chosen_order() -> None:
    said = written(row(1, {"a": 1.0, "b/max": 2.0, "c": 3.0}), metrics=["c", "b/*"], digits=2)

    assert said[1] == "step 1  c     3  b/max     2"


def test_axes_corrections_attempts_summary_and_end_are_said() -> None:
    said = written(
        row(3, {"eval/accuracy": 0.5}, axis="eval", role="evaluator"),
        row(5, {"loss": 1.5}),
        row(4, {"loss": 2.5}, amendment=True),
        row(4, {"loss": 0.5}, attempt=1),
        Params(9, 1.0, {"optimizer": {"lr": 0.1}}),
        Summary(10, 1.0, {"test/accuracy": 0.9375}),
        RunStatus(11, 1.0, "failed"),
    )

    assert said[1].startswith("evaluator eval 3  eval/accuracy")
    assert said[3].endswith("(amended)")
    assert said[4] == "attempt 1 begins at step 4"
    assert said[-3:] == ["params  optimizer.lr=0.1", "summary  test/accuracy 0.9375", "run failed"]


def test_a_log_file_has_no_control_characters() -> None:
    assert "\x1b" not in "".join(written(row(1, {"loss": float("nan")})))


def test_a_terminal_gets_a_table_that_is_drawn_over_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")

    said = "\n".join(
        written(*(row(step, {"loss": 1 / step, "lr": 0.1}) for step in range(1, 9)), stream=Terminal(), width=60)
    )

    assert "digits/first" in said
    assert "step 8" in said
    assert "0.1250" in said
    assert "█▄▃▂▂▁▁▁" in said
    assert "\x1b[" in said


def test_no_color_is_respected_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")

    said = "\n".join(written(row(1, {"loss": 0.5}), stream=Terminal()))

    assert "\x1b[36m" not in said
    assert "0.5000" in said


def test_a_pipe_that_nobody_reads_is_a_permanent_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        exporter = ConsoleExporter(stream=stream)
        exporter.start(RUN)
        with pytest.raises(PermanentExportError, match="cannot be written to"):
            exporter.export([row(1, {"loss": 0.5})])
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


def test_all_wrong_options_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        ConsoleExporter(every=0, digits=40, width=3, style="tabel")

    assert len(error.value.problems) == 4


@pytest.mark.parametrize("digits", [0, 18, 4.0, True, "4"])
def test_values_are_shown_with_1_to_17_digits(digits: object) -> None:
    assert written(row(1, {"a": 1 / 3}), digits=17)[1] == "step 1  a  0.33333333333333331"
    with pytest.raises(ConfigError, match="digits"):
        ConsoleExporter(digits=digits)  # type: ignore[arg-type]


def test_of_the_parameters_those_that_otel_ml_captures_are_not_shown() -> None:
    said = written(Params(1, 1.0, {"otel_ml": {"command": "python train.py"}}), Params(2, 1.0, {"lr": 0.1}))

    assert said == ["run digits/first", "params  lr=0.1"]
