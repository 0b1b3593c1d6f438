"""A training of the Trainer that fails, and the one that comes after it; methods that others have wrapped."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import otel_ml
from otel_ml.integrations.huggingface.stages import follow_trainers
from otel_ml.testing import Capture
from tests.unit.otel_ml.integrations.test_huggingface import STEPS, kept, telling, trainer, two_ranks


def counts(capture: Capture, name: str) -> dict[int | None, int]:
    return {point.step: point.count for point in capture.points if point.name == name}


def failing_once(trained: Any, message: str) -> Any:
    """Let the second loss that is asked for fail."""
    loss, asked = trained.compute_loss, []

    def failing(*arguments: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise RuntimeError(message)
        return loss(*arguments, **more)

    trained.compute_loss = failing
    return trained


def test_a_step_that_failed_is_over_when_its_training_is(otel_ml_capture: Capture, tmp_path: Path) -> None:
    callback = telling()
    with pytest.raises(RuntimeError, match="not today"):
        failing_once(trainer(tmp_path / "out", callback), "not today").train()

    assert counts(otel_ml_capture, "time/train_step") == {1: 1, 2: 1}
    trainer(tmp_path / "out", callback).train()
    again = {1: 2, 2: 2, **dict.fromkeys(range(3, STEPS + 1), 1)}
    assert counts(otel_ml_capture, "time/train_step") == again
    assert counts(otel_ml_capture, "time/step") == {
        **again,
        2: 1,
    }  # until the next one begins: after a failure none does


def test_a_batch_that_is_too_large_for_memory_ends_its_step(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling(), auto_find_batch_size=True)
    failing_once(trained, "CUDA out of memory.").train()

    assert counts(otel_ml_capture, "time/step") == {
        1: 2,
        **dict.fromkeys(range(2, STEPS + 1), 1),
    }  # the first was done before, too; not the second


def test_a_checkpoint_that_waited_when_training_failed_is_kept(otel_ml_capture: Capture, tmp_path: Path) -> None:
    callback = telling(checkpoints=True)
    trained = trainer(tmp_path / "out", callback)
    loss = trained.compute_loss

    def failing(*arguments: Any, **more: Any) -> Any:
        if trained.state.global_step == 1:
            callback.on_save(*two_ranks(tmp_path, 1), None)
            raise RuntimeError("not today")
        return loss(*arguments, **more)

    trained.compute_loss = failing
    with pytest.raises(RuntimeError, match="not today"):
        trained.train()

    assert kept(otel_ml_capture) == {"checkpoint-1": {"rng_state_0.pth"}}


def test_a_trainer_whose_methods_others_have_wrapped_is_followed_once() -> None:
    entered: list[str] = []

    class Follower:
        @contextmanager
        def evaluating(self, trainer: Any, prefix: str) -> Iterator[None]:
            entered.append(prefix)
            yield

        def fail(self) -> None:
            """Nothing fails here."""

    class Trained:
        def __init__(self) -> None:
            self.callback_handler = SimpleNamespace(callbacks=[Follower()])

        def evaluate(self, metric_key_prefix: str = "eval") -> None: ...
        def predict(self, metric_key_prefix: str = "test") -> None: ...
        def evaluation_loop(self, metric_key_prefix: str = "eval") -> None: ...
        def train(self) -> None: ...
        def log(self, logs: dict[str, float]) -> None: ...

    evaluate = Trained.evaluate
    Trained.evaluate = functools.wraps(evaluate)(lambda self, **named: evaluate(self, **named))  # type: ignore[method-assign]
    for _ in range(2):
        follow_trainers(Trained, Follower)
    Trained().evaluate()

    assert entered == ["eval"]


def test_a_name_that_is_no_text_is_recorded_as_one(otel_ml_capture: Capture, tmp_path: Path) -> None:
    trained = trainer(tmp_path / "out", telling())
    trained.log({1: 0.5})
    otel_ml.flush()

    assert otel_ml_capture.values("train/1") == [0.5]


def test_a_model_whose_configuration_cannot_be_told_trains(
    otel_ml_capture: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = trainer(tmp_path / "out", telling())
    monkeypatch.setattr(type(trained.model.config), "to_dict", lambda self, how: {})  # as an object of the user's own
    trained.args.save_strategy = "no"  # which would need it, too
    trained.train()

    assert otel_ml_capture.values("train/loss")
    assert "missing 1 required positional argument: 'how'" in " ".join(otel_ml_capture.notices)


def test_a_callback_that_has_begun_its_run_is_sent_to_another_process(tmp_path: Path) -> None:
    callback = telling(exporters="jsonl")
    trainer(tmp_path / "out", callback).evaluate()
    assert callback.run is not None

    sent = pickle.loads(pickle.dumps(callback))
    trainer(tmp_path / "out", sent).train()
    otel_ml.shutdown()

    assert sent.run is not None
    assert sent.run.id == callback.run.id
