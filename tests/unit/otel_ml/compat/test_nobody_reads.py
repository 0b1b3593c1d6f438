"""Where nobody reads stdout or stderr anymore, training goes on, and all else is recorded."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any

import pytest

from otel_ml.compat import wandb
from otel_ml.compat.megatron import LoggerConfig, Timers, TrainingLog, barrier_and_log
from otel_ml.compat.nemo_rl import TimeoutChecker, log_container_init_timing, print_message_log_samples
from otel_ml.compat.roll import create_tracker
from otel_ml.compat.verl import Tracking
from otel_ml.testing import Capture, capture


class BrokenPipe(io.StringIO):
    """A stream whose reader has gone; what replaces its descriptor, as rich does, replaces that of a file."""

    def __init__(self, file: IO[str]) -> None:
        super().__init__()
        self.fileno = file.fileno  # type: ignore[method-assign]

    def write(self, text: str) -> int:
        raise BrokenPipeError(text)

    def flush(self) -> None:
        raise BrokenPipeError("flush")


class Closed(BrokenPipe):
    """A stream that the program has closed."""

    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file")

    def flush(self) -> None:
        raise ValueError("I/O operation on closed file")


@contextmanager
def nobody_reads(stream: type[BrokenPipe], folder: Path) -> Iterator[Capture]:
    # In the test itself: pytest sets both streams anew between a fixture and its test.
    with ExitStack() as stack:
        file = stack.enter_context((folder / "stream").open("w"))
        run = stack.enter_context(capture())
        stack.enter_context(redirect_stdout(stream(file)))
        stack.enter_context(redirect_stderr(stream(file)))
        yield run


def _timers() -> None:
    timers = Timers(2, "max")
    timers("forward").start()
    timers("forward").stop()
    timers.log()


CALLS: dict[str, Callable[[], Any]] = {
    "megatron-barrier": lambda: barrier_and_log("after training"),
    "megatron-timers": _timers,
    "megatron-log": lambda: TrainingLog(LoggerConfig(log_interval=1), timers=Timers(2, "max")).log(1, {"loss": 1.0}),
    "nemo-check": lambda: TimeoutChecker().check_save(),
    "nemo-mark": lambda: TimeoutChecker().mark_iteration(),
    "nemo-startup": log_container_init_timing,
    "nemo-samples": lambda: print_message_log_samples([[{"role": "user", "content": "hi"}]], [1.0]),
    "roll": lambda: create_tracker("stdout", {}).log({"loss": 1.0}, 1),
    "verl": lambda: Tracking("p", "e", ["console"]).log({"loss": 1.0}, 1),
    "verl-console": lambda: Tracking("p", "e", ["console"]).logger["console"].log({"loss": 1.0}, 1),
    "wandb": lambda: wandb.termwarn("slow"),
}


@pytest.mark.parametrize("stream", [BrokenPipe, Closed])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_prints_raises_nothing(
    call: Callable[[], Any], stream: type[BrokenPipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NRL_JOB_START_EPOCH", "100")
    with nobody_reads(stream, tmp_path) as captured:
        call()

    assert not any("is not recorded" in notice for notice in captured.notices)


@pytest.mark.parametrize("stream", [BrokenPipe, Closed])
def test_verls_file_has_the_step_all_the_same(stream: type[BrokenPipe], tmp_path: Path) -> None:
    with nobody_reads(stream, tmp_path):
        tracking = Tracking("p", "e", ["console", "file"])
        tracking.log({"loss": 1.0}, 1)
        tracking.finish()

    assert Path("p/e.jsonl").read_text() == '{"step": 1, "data": {"loss": 1.0}}\n'
