"""Each trial of a Trainer's `hyperparameter_search()` is a run, with its own checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from otel_ml.integrations.huggingface.checkpoints import Checkpoints
from otel_ml.testing import Capture

if TYPE_CHECKING:
    from otel_ml.integrations.huggingface import OtelMLCallback


def search(folder: Path, callback: OtelMLCallback, hp_name: Callable[[Any], str] | None) -> None:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    rows = [{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": index % 2} for index in range(8)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=2, save_steps=1, eval_strategy="steps", eval_steps=2,
        report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = Trainer(
        args=arguments,
        model_init=lambda: BertForSequenceClassification(config),
        train_dataset=rows,
        eval_dataset=rows,
        callbacks=[callback],
    )
    trainer.hyperparameter_search(
        lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-4)},
        backend="optuna",
        n_trials=2,
        hp_name=hp_name,
    )


@pytest.mark.parametrize(
    ("hp_name", "folders"),
    [(None, ["run-0", "run-1"]), (lambda trial: f"rate/{trial.number}", ["0", "1"])],
    ids=["numbered", "named"],
)
def test_the_checkpoints_of_each_trial_are_kept(
    otel_ml_capture: Capture, tmp_path: Path, hp_name: Callable[[Any], str] | None, folders: list[str]
) -> None:
    from otel_ml.integrations.huggingface import OtelMLCallback

    search(tmp_path / "out", OtelMLCallback(checkpoints=True), hp_name)

    uris = [str(event.attributes["ml.artifact.uri"]) for event in otel_ml_capture.events if event.kind == "ml.artifact"]
    saved = {(Path(uri).parts[-3], Path(uri).parts[-2]) for uri in uris if uri.endswith("model.safetensors")}
    assert saved == {(folder, f"checkpoint-{step}") for folder in folders for step in (1, 2)}


def test_a_checkpoint_that_is_nowhere_is_said(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    args = SimpleNamespace(output_dir=str(tmp_path), world_size=1)
    state = SimpleNamespace(global_step=3, best_model_checkpoint=None, trial_name=None, is_hyper_param_search=True)
    Checkpoints().saved(args, state)

    assert f"checkpoint-3 is not kept: expected a folder in {str(tmp_path)!r}" in caplog.text
