"""Generators hand samples to trainers, whose spans say what they are made of; now and then something fails.

    python -m tests.traces.job FOLDER STEPS

The role and the rank come from the environment, as from a launcher. Prints `step <i>` for each step. At half of the
steps everybody waits until `go_on()` was called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from opentelemetry import trace
from opentelemetry.trace import StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import otel_ml
from tests.e2e.jobs import environment
from tests.waiting import eventually

__all__ = ["ROLES", "STEPS", "go_on", "job"]

STEPS = 40
ROLES = {"trainer": 2, "generator": 2}


def job(folder: Path, endpoint: str, **env: object) -> list[tuple[Sequence[object], Mapping[str, str]]]:
    """Return the commands of the job; the first one is that of trainer 0."""
    command, host = [sys.executable, "-m", "tests.traces.job", folder, STEPS], folder / "host"
    host.mkdir(mode=0o700)
    shared = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "XDG_RUNTIME_DIR": host, **env}
    return [
        (command, environment(OTEL_SERVICE_NAME=role, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, **shared))
        for role, size in ROLES.items()
        for rank in range(size)
    ]


def go_on(folder: Path) -> None:
    """Let the job do the second half of its steps."""
    (folder / "go-on").touch()


def main(folder: Path, steps: int) -> None:
    role, rank = os.environ["OTEL_SERVICE_NAME"], int(os.environ["RANK"])
    with otel_ml.init("traced"):
        tracer = trace.get_tracer("program")
        for step in otel_ml.steps(range(steps)):
            if step == steps // 2:
                eventually((folder / "go-on").exists, timeout=280)
            if role == "generator":
                generate(folder / f"sample-{step}-{rank}", step)
            else:
                train(tracer, [folder / f"sample-{step}-{rank}" for rank in range(ROLES["generator"])], step)
            print("step", step, flush=True)


def generate(file: Path, step: int) -> None:
    with otel_ml.timed("sample") as span:
        span.set_attributes({"prompt": "größer als 1?", "tokens": 2**40 + step, "temperature": 0.1, "is_greedy": False})
        span.set_attribute("lengths", [step, 7])
        with otel_ml.timed("decode"):
            otel_ml.log({"rl/reward": step / 3})
        made = otel_ml.context(version=step)
    whole = file.with_suffix(".new")
    whole.write_text(made)
    whole.rename(file)


def train(tracer: trace.Tracer, files: Sequence[Path], step: int) -> None:
    samples = [file.read_text() for file in files if eventually(file.exists, timeout=280)]
    remote = TraceContextTextMapPropagator().extract({"traceparent": samples[0]})
    with tracer.start_as_current_span("score", remote):  # its parent is of a generator
        otel_ml.log({"loss": 1 / (1 + step)})
    with otel_ml.timed("train") as train_span:
        otel_ml.consumed(samples, version=step)
        with otel_ml.timed("forward") as forward:
            pass
        with otel_ml.timed("backward") as backward:
            backward.add_link(forward.get_span_context(), {"why": "gradients", "layers": 3})
    with tracer.start_as_current_span("publish", links=[trace.Link(train_span.get_span_context())]) as publish:
        if step % 5 == 2:
            publish.set_status(StatusCode.ERROR, "nobody listens")
        if step % 5 == 3:
            publish.set_status(StatusCode.OK)
    if step % 8 == 4:
        save()
    otel_ml.log_text("note", f"step {step}")


def save() -> None:
    """Fail within a timer."""
    with suppress(FileNotFoundError), otel_ml.timed("save"):
        Path("nowhere/checkpoint").write_text("weights")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
