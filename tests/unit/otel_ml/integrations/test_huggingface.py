from __future__ import annotations

import threading
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml._internal.error_reporting import reporter
from otel_ml.integrations.huggingface.checkpoints import Checkpoints
from otel_ml.testing import Capture

if TYPE_CHECKING:
    from transformers import Trainer

    from otel_ml.integrations.huggingface import OtelMLCallback

STEPS = 4


def rows(count: int) -> list[dict[str, Any]]:
    return [{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": index % 2} for index in range(count)]


def telling(**settings: Any) -> OtelMLCallback:
    """Return our callback; imported here, for each process that collects tests would import Transformers with it."""
    from otel_ml.integrations.huggingface import OtelMLCallback

    return OtelMLCallback(**settings)


def trainer(folder: Path, callback: OtelMLCallback, **more: Any) -> Trainer:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, num_labels=2
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        logging_steps=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **more,
    )
    model = BertForSequenceClassification(config)  # random weights: nothing is downloaded
    return Trainer(model, arguments, train_dataset=rows(8), eval_dataset=rows(4), callbacks=[callback])


def test_what_the_trainer_logs_is_in_the_run_under_the_names_of_its_other_callbacks(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    trained = trainer(tmp_path / "out", telling())

    trained.train()
    trained.evaluate()

    logged = trained.state.log_history
    assert otel_ml_capture.values("train/loss") == [row["loss"] for row in logged if "loss" in row]
    assert [point.step for point in otel_ml_capture.points if point.name == "train/loss"] == [2, 4]
    assert otel_ml_capture.values("eval/loss") == [row["eval_loss"] for row in logged if "eval_loss" in row]
    [summary] = [event.body for event in otel_ml_capture.events if event.kind == "ml.summary"]
    assert summary["train/train_loss"] == pytest.approx(logged[-2]["train_loss"])
    arguments, model, size = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert (arguments["max_steps"], model["model"]["hidden_size"]) == (STEPS, 8)
    assert (arguments["optim_args"], arguments["train_batch_size"]) == (None, 2)
    assert size["model"]["num_parameters"] == trained.model.num_parameters()


def test_the_adapters_that_peft_has_put_on_a_model_are_parameters(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling())
    trained.model.peft_config = {"default": SimpleNamespace(to_dict=lambda: {"r": 8})}

    trained.train()

    bodies = [event.body for event in otel_ml_capture.events if event.kind == "ml.params"]
    assert [body["peft_config"] for body in bodies if "peft_config" in body] == [{"default": {"r": 8}}]


def test_how_far_training_is_has_one_name_also_in_an_evaluation(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling(), eval_strategy="steps", eval_steps=1)

    trained.train()

    assert {name for name, _ in where(otel_ml_capture, "epoch")} == {"train/epoch"}
    assert {step for _, step in where(otel_ml_capture, "epoch")} == {1, 2, 3, 4}


def test_what_a_trainer_adds_to_the_metrics_of_each_data_set_is_kept_for_each(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    trained = trainer(tmp_path / "out", telling())
    trained.eval_dataset = {"math": rows(2), "code": rows(4)}
    log, margins = trained.log, iter((1.0, 2.0))
    # As TRL's trainers do: the names do not say the data set.
    trained.log = lambda logs, *more: log({**logs, "eval_margin": next(margins)}, *more)

    trained.evaluate()

    assert where(otel_ml_capture, "margin") == {("eval/math_margin", 0): 1.0, ("eval/code_margin", 0): 2.0}


def test_a_metric_that_has_no_value_is_left_out_and_is_no_mistake(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling())

    trained.log({"reward": None, "scores": {"math": None, "code": 1.0}})  # TRL's, where no sample has one

    assert where(otel_ml_capture, "reward") == {}
    assert otel_ml_capture.values("train/scores/code") == [1.0]
    assert reporter.dropped == {}


def test_of_two_evaluations_at_one_step_the_last_counts(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling())
    trained.train()

    first = trained.evaluate()["eval_loss"]
    with torch.no_grad():
        for weights in trained.model.parameters():
            weights.add_(torch.randn_like(weights))
    last = trained.evaluate()["eval_loss"]

    assert last != first
    assert otel_ml_capture.values("eval/loss") == [last]


def test_each_step_and_its_optimizer_are_timed(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trainer(tmp_path / "out", telling(), gradient_accumulation_steps=2).train()

    points = [point for point in otel_ml_capture.points if point.name in {"time/train_step", "time/optimizer"}]
    assert sorted((point.name, point.step, point.count) for point in points) == [
        (name, step, 1) for name in ("time/optimizer", "time/train_step") for step in range(1, STEPS + 1)
    ]


def test_a_step_lasts_until_the_next_one_begins(otel_ml_capture: Capture, tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Late(TrainerCallback):  # type: ignore[misc] # transformers' types are not looked at
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            begun = perf_counter()
            while perf_counter() < begun + 0.02:  # between two steps, in no other timer
                pass

    training = trainer(tmp_path / "out", telling())
    training.add_callback(Late())
    training.train()

    whole = {point.step: point.value for point in otel_ml_capture.points if point.name == "time/step"}
    inside = {point.step: point.value for point in otel_ml_capture.points if point.name == "time/train_step"}
    assert list(whole) == list(range(1, STEPS + 1))
    assert all(whole[step] >= inside[step] + 0.02 for step in whole)


def test_what_the_loss_records_is_at_the_step_that_the_trainer_counts(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling())
    loss = trained.compute_loss

    def recording(*arguments: Any, **more: Any) -> Any:
        otel_ml.log({"calls": 1.0}, reduce="sum")
        return loss(*arguments, **more)

    trained.compute_loss = recording
    trained.train()

    assert [point.step for point in otel_ml_capture.points if point.name == "calls"] == [1, 2, 3, 4]


def test_checkpoints_are_kept_where_asked_for(otel_ml_capture: Capture, tmp_path: Path) -> None:
    callback = telling(checkpoints=True)
    trainer(tmp_path / "out", callback, save_steps=2, eval_strategy="steps", load_best_model_at_end=True).train()

    kept = {str(event.name): event for event in otel_ml_capture.events if event.kind == "ml.artifact"}
    assert set(kept) == {"checkpoint-2", "checkpoint-4"}
    assert kept["checkpoint-4"].step == 4
    assert "latest" in list(kept["checkpoint-2"].attributes["ml.artifact.aliases"])


def two_ranks(folder: Path, step: int) -> tuple[SimpleNamespace, SimpleNamespace]:
    """Return what the callback of rank 0 is given by a Trainer that has saved its part of a checkpoint."""
    saved = folder / f"checkpoint-{step}"
    saved.mkdir()
    torch.save({}, saved / "rng_state_0.pth")
    args = SimpleNamespace(output_dir=str(folder), world_size=2, save_only_model=False)
    return args, SimpleNamespace(global_step=step, is_world_process_zero=True, best_model_checkpoint=None)


def kept(captured: Capture) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for event in captured.events:
        if event.kind == "ml.artifact":
            found.setdefault(str(event.name), set()).add(Path(str(event.attributes["ml.artifact.path_in"])).name)
    return found


def test_a_checkpoint_has_the_file_of_a_rank_that_wrote_it_later(otel_ml_capture: Capture, tmp_path: Path) -> None:
    otel_ml.init()
    callback = telling(checkpoints=True)
    args, state = two_ranks(tmp_path, 2)

    callback.on_save(args, state, None)
    torch.save({}, tmp_path / "checkpoint-2" / "rng_state_1.pth")
    callback.on_step_end(args, state, None)

    assert kept(otel_ml_capture) == {"checkpoint-2": {"rng_state_0.pth", "rng_state_1.pth"}}


def test_the_last_checkpoint_waits_for_the_files_of_all_ranks(otel_ml_capture: Capture, tmp_path: Path) -> None:
    otel_ml.init()
    callback = telling(checkpoints=True)
    args, state = two_ranks(tmp_path, 4)
    callback.on_save(args, state, None)
    late = threading.Timer(0.3, torch.save, ({}, tmp_path / "checkpoint-4" / "rng_state_1.pth"))

    late.start()
    callback.on_train_end(args, state, None)

    assert kept(otel_ml_capture) == {"checkpoint-4": {"rng_state_0.pth", "rng_state_1.pth"}}


def test_a_checkpoint_whose_files_never_come_is_kept_and_says_what_it_lacks(
    otel_ml_capture: Capture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    otel_ml.init()
    checkpoints = Checkpoints()
    checkpoints.saved(*two_ranks(tmp_path, 6))

    checkpoints.finish(timeout=0.0)

    assert kept(otel_ml_capture) == {"checkpoint-6": {"rng_state_0.pth"}}
    assert "checkpoint-6 is kept without 1 of 2 files of ranks: rng_state_1.pth is not in its folder" in caplog.text


@pytest.mark.parametrize("given", ["", "search"])
def test_each_trial_of_a_search_is_a_run_also_where_one_id_is_given_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    from transformers import TrainerState

    if given:
        monkeypatch.setenv("OTEL_ML_EXPERIMENT_ID", given)
    callback = telling(exporters="jsonl")
    trained = trainer(tmp_path / "out", callback)
    runs = []
    for number in range(3):
        state = TrainerState(is_hyper_param_search=True, trial_name=f"rate-{number}")
        callback.on_train_begin(trained.args, state, trained.control)
        assert callback.run is not None
        runs.append(callback.run)
    otel_ml.shutdown()

    assert len({run.id for run in runs}) == 3
    assert [run.name for run in runs] == ["rate-0", "rate-1", "rate-2"]
    assert all(run.id.startswith(given) for run in runs)


def recording_its_loss(trained: Trainer) -> Trainer:
    """Let the loss record its own value, whatever it is asked for: the usual idiom of a shared step."""
    loss = trained.compute_loss

    def recording(*arguments: Any, **more: Any) -> Any:
        found = loss(*arguments, **more)
        otel_ml.log({"calls": 1.0}, reduce="sum")
        return found

    trained.compute_loss = recording
    return trained


def where(capture: Capture, suffix: str) -> dict[tuple[str, int | None], float]:
    return {(point.name, point.step): point.value for point in capture.points if point.name.endswith(suffix)}


def test_what_the_program_records_in_an_evaluation_is_apart_from_training(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    callback = telling()
    trained = recording_its_loss(trainer(tmp_path / "out", callback, eval_strategy="steps", eval_steps=2))
    trained.args.per_device_eval_batch_size = 4

    trained.train()
    trained.predict(rows(4))

    training = {("calls", step): 1.0 for step in range(1, STEPS + 1)}
    assert where(otel_ml_capture, "calls") == {
        **training,
        ("eval/calls", 2): 1.0,
        ("eval/calls", 4): 1.0,
        ("test/calls", 4): 1.0,
    }


def test_each_data_set_that_is_evaluated_is_a_stage_of_its_own(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = recording_its_loss(trainer(tmp_path / "out", telling()))
    trained.eval_dataset = {"math": rows(2), "code": rows(4)}

    trained.evaluate()

    assert set(where(otel_ml_capture, "calls")) == {("eval/math/calls", 0), ("eval/code/calls", 0)}
    assert set(where(otel_ml_capture, "_loss")) == {("eval/math_loss", 0), ("eval/code_loss", 0)}


def test_what_a_trainer_logs_without_its_stage_in_an_evaluation_is_not_trainings(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    trained = trainer(tmp_path / "out", telling(), eval_strategy="steps", eval_steps=4)
    loss = trained.compute_loss

    def logging(*arguments: Any, **more: Any) -> Any:
        trained.log({"width": 1.0 if trained.model.training else 9.0})
        return loss(*arguments, **more)

    trained.compute_loss = logging
    trained.train()

    # One step later: it is logged before the step that the Trainer counts is done.
    assert where(otel_ml_capture, "width") == {
        **{("train/width", step): 1.0 for step in range(4)},
        ("eval/width", 4): 9.0,
    }


def test_a_trainer_without_the_callback_evaluates_in_no_stage(otel_ml_capture: Capture, tmp_path: Path) -> None:
    callback = telling()
    trained = recording_its_loss(trainer(tmp_path / "out", callback))
    trained.remove_callback(callback)
    otel_ml.set_step(3)

    trained.evaluate()

    assert set(where(otel_ml_capture, "calls")) == {("calls", 3)}


def test_a_list_is_its_mean_and_not_its_last_element(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling())
    trained.compute_metrics = lambda _: {
        "per_class": [0.9, 0.1],
        "tensor": torch.tensor([1, 4]),
        "array": np.array([2, 4]),
    }

    trained.evaluate()

    assert otel_ml_capture.values("eval/per_class") == [0.5]
    assert otel_ml_capture.values("eval/tensor") == [2.5]
    assert otel_ml_capture.values("eval/array") == [3.0]
