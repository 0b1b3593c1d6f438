from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from otel_ml_exporters.backends.tensorboard import TensorBoardExporter
from otel_ml_exporters.backends.tensorboard.hparams import flat_params
from otel_ml_exporters.backends.tensorboard.markdown import MOST_ROWS, markdown_table
from otel_ml_exporters.backends.tensorboard.summary import float32
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import Params, RunInfo, RunStatus, SpanBatch, StepRecord, Summary
from tests.contract.readers.tensorboard import opened, params_and_status


def row(seq: int, step: int, values: dict[str, float], *, axis: str = "step", amendment: bool = False) -> StepRecord:
    return StepRecord(seq, "trainer", axis, step, 0, 1.7e9 + seq, values, amendment=amendment)


def started(run_dir: Path) -> TensorBoardExporter:
    exporter = TensorBoardExporter()
    exporter.start(RunInfo("01J", "digits", "01J", run_dir, 1.7e9))
    return exporter


def shown(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return [(point.step, point.value, point.wall_time) for point in accumulator.Scalars(tag)]


def test_points_have_the_time_of_their_record(tmp_path: Path) -> None:
    exporter = started(tmp_path)

    exporter.export([row(1, 7, {"loss": 0.5})])

    assert shown(tmp_path / "tensorboard", "loss") == [(7, 0.5, 1.7e9 + 1)]
    exporter.shutdown(1.0, None)


def test_a_number_that_no_double_can_hold_is_a_text() -> None:
    assert flat_params({"seed": 10**400}) == {"seed": str(10**400)}


@pytest.mark.parametrize("name", ["a" * 300, "名" * 120, "trial/" + "名" * 200])
def test_a_session_whose_name_no_folder_can_have_has_one_of_its_own(tmp_path: Path, name: str) -> None:
    exporter = started(tmp_path)

    exporter.export([Params(1, 1.0, {"otel_ml": {"sessions": [name]}}), Summary(2, 1.0, {f"{name}/accuracy": 0.5})])

    exporter.shutdown(1.0, None)
    [folder] = [path for path in (tmp_path / "tensorboard").iterdir() if path.is_dir()]
    assert shown(folder, "summary/accuracy")[0][:2] == (2, 0.5)


def test_notes_that_a_power_cut_has_emptied_are_made_again_from_the_records(tmp_path: Path) -> None:
    records = [Params(1, 1.0, {"lr": 0.5}), row(2, 1, {"loss": 1.0}), Summary(3, 2.0, {"accuracy": 0.9})]
    before = started(tmp_path)
    before.export(records)
    before.shutdown(1.0, None)
    (tmp_path / "tensorboard" / "otel_ml.json").write_bytes(b"")

    exporter = started(tmp_path)
    assert exporter.position() == 0
    exporter.export([*records, row(4, 2, {"loss": 0.5})])
    exporter.shutdown(1.0, None)

    assert [point[:2] for point in shown(tmp_path / "tensorboard", "loss")] == [(1, 1.0), (2, 0.5)]
    assert params_and_status(opened(tmp_path / "tensorboard"))[0] == {"lr": 0.5}


def layout(folder: Path) -> layout_pb2.Layout:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    tag = "custom_scalars__config__"
    if tag not in accumulator.Tags()["tensors"]:
        return []
    return layout_pb2.Layout.FromString(accumulator.Tensors(tag)[-1].tensor_proto.string_val[0])


def charts_with_bands(folder: Path) -> list[str]:
    charts = [chart for category in layout(folder).category for chart in category.chart]
    return [chart.title for chart in charts if chart.HasField("margin")]


def test_each_metric_of_the_user_has_one_chart_in_the_group_of_its_name(tmp_path: Path) -> None:
    exporter = TensorBoardExporter()
    exporter.start(RunInfo("run-1", "default", "run-1", tmp_path, 1.7e9))
    values = {"lr": 0.1, "time/step": 0.5, "time/step/max": 0.6, "time/data/rank_0": 0.1, "time/data/rank_1": 0.2}
    exporter.export([StepRecord(1, "trainer", "step", 0, 0, 1.7e9, {**values, "otel_ml/lag": 0.0})])
    exporter.shutdown(5.0, None)

    found = layout(tmp_path / "tensorboard")

    groups = {group.title: {chart.title: chart.multiline.tag[0] for chart in group.chart} for group in found.category}
    assert {title: list(charts) for title, charts in groups.items()} == {
        "lr": ["lr"],
        "time": ["time/step", "time/data"],
    }
    shown = {
        title: [name for name in values if re.match(tag, name)]
        for charts in groups.values()
        for title, tag in charts.items()
    }
    assert shown == {
        "lr": ["lr"],
        "time/step": ["time/step", "time/step/max"],
        "time/data": ["time/data/rank_0", "time/data/rank_1"],
    }


def test_only_series_of_the_run_itself_have_bands(tmp_path: Path) -> None:
    """Windows of time and corrections are runs of their own, where the chart would find nothing."""
    exporter = started(tmp_path)
    loss, gpu, late = (dict.fromkeys((name, f"{name}/min", f"{name}/max"), 1.0) for name in ("loss", "gpu", "late"))

    exporter.export([row(1, 1, loss), row(2, 1, gpu, axis="time"), row(3, 1, late, amendment=True)])
    exporter.shutdown(1.0, None)

    assert charts_with_bands(tmp_path / "tensorboard") == ["loss"]


def test_the_position_counts_records_that_leave_nothing_in_the_files(tmp_path: Path) -> None:
    exporter = started(tmp_path)

    exporter.export([row(1, 1, {"loss": 0.5}), row(2, 1, {"gpu": 1.0}, axis="time"), SpanBatch(3, ())])
    exporter.shutdown(1.0, None)

    assert started(tmp_path).position() == 3


def test_a_batch_that_reached_only_a_sub_run_is_not_written_to_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = started(tmp_path)
    exporter.export([row(1, 1, {"loss": 0.5}), row(2, 1, {"loss": 0.6}, amendment=True)])
    batch = [row(3, 2, {"loss": 0.25}), row(4, 1, {"loss": 0.7}, amendment=True)]
    main = (tmp_path / "tensorboard" / "events.out.tfevents.1.otel_ml").stat().st_ino
    write = os.write

    def full_for_the_run_itself(file: int, data: bytes) -> int:
        if os.fstat(file).st_ino == main:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full_for_the_run_itself)
        with pytest.raises(RetryableExportError, match="No space left"):
            exporter.export(batch)
    position = exporter.position()
    exporter.export(batch)
    exporter.shutdown(1.0, None)

    assert position == 2
    assert [at for at, _, _ in shown(tmp_path / "tensorboard", "loss")] == [1, 2]
    assert [value for _, value, _ in shown(tmp_path / "tensorboard" / "amended", "loss")] == pytest.approx([0.6, 0.7])


def test_a_folder_that_cannot_be_written_to_is_said_and_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder should be")

    with pytest.raises(RetryableExportError, match="tensorboard cannot be opened"):
        started(tmp_path)


def test_only_one_version_of_the_hparams_is_kept(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    for seq in range(1, 5):
        exporter.export([Params(seq, 1.7e9, {f"p{seq}": seq})])
    exporter.shutdown(1.0, RunStatus(5, 1.7e9, "finished"))

    assert len(list((tmp_path / "tensorboard").glob("*.hparams.*"))) == 1


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    text = markdown_table(["n"], [[at] for at in range(MOST_ROWS + 2_000)])

    assert text.endswith("\n2,000 more rows are not shown.")
    assert text.count("\n| ") == MOST_ROWS + 1


def test_numbers_that_are_not_finite_are_text_among_the_parameters() -> None:
    assert flat_params({"a": float("nan"), "b": {}, "c": {"d": None}}) == {"a": "nan", "b": "{}", "c.d": "None"}


def test_values_beyond_a_float_are_infinite() -> None:
    assert float32(-1e39) == float32(float("-inf"))


def test_a_parameter_that_is_an_empty_text_is_a_text(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    exporter.export([Params(1, 1.7e9, {"note": ""})])
    exporter.shutdown(1.0, RunStatus(1, 1.7e9, "finished"))

    run = opened(tmp_path / "tensorboard")
    assert run is not None
    assert params_and_status(run) == ({"note": ""}, "finished")


def sessions_in(folder: Path) -> dict[str, tuple[object, str, object]]:
    """Return sub-run → its parameter `lr`, its group, and its metric `acc`, as TensorBoard's tab reads them."""
    found = {}
    for place in sorted({file.parent for file in folder.rglob("*tfevents*")}):
        run = opened(place)
        content = run.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
        params = {name: value.number_value for name, value in started.hparams.items()}
        acc = [point.value for point in run.Scalars("summary/acc")]
        found[place.relative_to(folder).as_posix()] = (params, started.group_name, acc)
    return found


def test_each_session_is_a_row_of_its_own_in_the_hparams_tab_also_after_a_restart(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    exporter.export([Params(1, 1.7e9, {"lr": 0.5}), Summary(2, 1.7e9, {"acc": 0.5})])
    exporter.export(
        [
            Params(3, 1.7e9, {"otel_ml.sessions": ["trial1"], "trial1": {"lr": 0.25}}),
            Summary(4, 1.7e9, {"trial1/acc": 0.75}),
        ]
    )
    exporter.shutdown(1.0, None)
    exporter = started(tmp_path)  # the service was started again
    last = [
        Params(5, 1.7e9, {"otel_ml.sessions": ["trial1", "../b"], "../b": {"lr": 0.125}}),
        Summary(6, 1.7e9, {"../b/acc": 0.875}),
    ]
    exporter.export(last)
    exporter.export(last)  # an answer that was lost
    exporter.shutdown(1.0, RunStatus(7, 1.7e9, "finished"))

    found = sessions_in(tmp_path / "tensorboard")

    [outside] = found.keys() - {".", "trial1"}
    assert "/" not in outside, "a session's name leads out of the run's folder"
    assert found["."] == ({"lr": 0.5}, "01J", [0.5])
    assert found["trial1"] == ({"lr": 0.25}, "01J/trial1", [0.75])
    assert found[outside] == ({"lr": 0.125}, f"01J/{outside}", [0.875])


def test_of_sessions_whose_names_begin_alike_each_has_its_own(tmp_path: Path) -> None:
    exporter = started(tmp_path)
    sessions = ["lr1", "lr1.5", "lr1.5/b"]
    params = {
        "otel_ml.sessions": sessions,
        "lr": 0.5,
        "lr1": {"lr": 1.0},
        "lr1.5": {"lr": 1.5},
        "lr1.5/b": {"lr": 1.75},
    }
    exporter.export(
        [
            Params(1, 1.7e9, params),
            Summary(2, 1.7e9, {"acc": 0.125, "lr1/acc": 0.5, "lr1.5/acc": 0.25, "lr1.5/b/acc": 1.0}),
        ]
    )
    exporter.shutdown(1.0, None)

    found = {
        folder: (params, acc) for folder, (params, _, acc) in sessions_in(tmp_path / "tensorboard").items() if params
    }

    [longest] = found.keys() - {".", "lr1", "lr1.5"}
    assert found == {
        ".": ({"lr": 0.5}, [0.125]),
        "lr1": ({"lr": 1.0}, [0.5]),
        "lr1.5": ({"lr": 1.5}, [0.25]),
        longest: ({"lr": 1.75}, [1.0]),
    }
