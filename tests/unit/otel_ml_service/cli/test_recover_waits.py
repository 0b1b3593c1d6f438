"""What `otel-ml recover` says while a run takes its time."""

from __future__ import annotations

from typing import Any

from otel_ml_service.cli.recover_outcome import Waits


def account(pending: int, **exporters: tuple[int, str | None]) -> dict[str, Any]:
    told = {name: {"pending": left, "problem": problem} for name, (left, problem) in exporters.items()}
    return {"pending": pending, "exporters": told}


def heard(*looks: tuple[float, dict[str, Any]]) -> list[str]:
    """Return what is said of a run that may take 300 s, after looks at these seconds."""
    said: list[str] = []
    now = 0.0
    waits = Waits(300.0, said.append, clock=lambda: now)
    for now, found in looks:  # noqa: B007 (the clock)
        waits.look(found)
    return said


def test_a_backend_that_fails_is_named_at_once_and_once() -> None:
    down = account(3, jsonl=(0, None), mlflow=(3, "connection refused"))

    assert heard((0.2, down), (0.4, down), (100.0, down)) == ["waits for mlflow, for at most 5 min: connection refused"]


def test_a_backend_that_takes_its_time_is_named_after_two_seconds_and_again_where_it_fails() -> None:
    slow, down = account(3, wandb=(3, None)), account(3, wandb=(3, "HTTP 500"))

    assert heard((1.0, slow), (2.5, slow), (5.0, slow), (10.0, down)) == [
        "waits for wandb, for at most 4 min 58 s",
        "waits for wandb, for at most 4 min 50 s: HTTP 500",
    ]


def test_a_run_whose_backends_have_all_that_there_is_waits_for_its_last_steps() -> None:
    assert heard((1.0, account(1, jsonl=(0, None))), (3.0, account(1, jsonl=(0, None)))) == [
        "waits for its last steps, for at most 4 min 57 s"
    ]


def test_what_is_quick_is_said_nothing_of() -> None:
    assert heard((0.2, {}), (0.4, account(2, jsonl=(2, None))), (4.0, account(0, jsonl=(0, None)))) == []
