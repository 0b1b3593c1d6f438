"""Records as a training job would make them; each is a function of its `seq`, so every process knows all of them."""

from __future__ import annotations

import hashlib
import io
import math
import wave
from pathlib import Path

from otel_ml_exporters.records import (
    Artifact,
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunInfo,
    RunStatus,
    Span,
    SpanBatch,
    StepRecord,
    Summary,
    Table,
    Text,
)

__all__ = ["AT", "every_kind", "png", "run_info", "scalars", "step", "training", "wav"]

AT = 1_700_000_000.0


def run_info(run_dir: Path, run_id: str) -> RunInfo:
    return RunInfo(id=run_id, experiment="digits", name=run_id, dir=run_dir, started_at=AT, tags=("contract",))


def step(seq: int, number: int, values: dict[str, float], **changed: object) -> StepRecord:
    """Return the row of a step of the trainer's axis `step`, unless `changed` says otherwise."""
    fields: dict[str, object] = {"role": "trainer", "axis": "step", "attempt": 0, "time": AT + seq, **changed}
    return StepRecord(seq=seq, step=number, values=values, **fields)


def training(seq: int) -> StepRecord:
    """Return record `seq` of a job with three axes, corrections, and now and then a NaN."""
    if seq % 7 == 5:
        return step(seq, seq, {"rollout/reward": float(seq), "rollout/length": 1 / seq}, axis="rollout")
    if seq % 7 == 6:
        return step(seq, seq, {"gpu/memory": seq / 3}, axis="time")
    if seq % 11 == 10:
        return step(seq, seq - 1, {"loss": float(-seq)}, amendment=True)
    loss = math.nan if seq % 13 == 0 else 1 / seq
    return step(seq, seq, {"loss": loss, f"layer_{seq % 5}/grad": seq / 7, "tokens": 512.0 * seq})


def scalars(record: StepRecord) -> list[tuple[str, str, int, float]]:
    """Return (name, axis, step, value) of each value."""
    return [(name, record.axis, record.step, value) for name, value in record.values.items()]


def png() -> bytes:
    """Return a small picture."""
    from PIL import Image as Picture

    out = io.BytesIO()
    Picture.new("RGB", (4, 2), (200, 30, 30)).save(out, format="PNG")
    return out.getvalue()


def wav() -> bytes:
    """Return a hundredth of a second of silence."""
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(160))
    return out.getvalue()


def every_kind(run_dir: Path) -> list[Record]:
    """Return one record of each kind there is, with a step before and after."""
    model = run_dir / "artifacts" / "model" / "weights.bin"
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_bytes(b"\x00\x01weights")
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    span = Span("0" * 31 + "1", "0" * 15 + "1", None, "forward", 1, 2, "trainer", 0, "step", 1, {"layer": 3})
    return [
        Params(1, AT, {"optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}, "epochs": 3, "amp": True, "net": "mlp"}),
        step(2, 1, {"loss": 0.5}),
        Text(3, AT + 3, "samples", "step", 1, "a *generated* text, with ünïcode\nin two lines"),
        Table(4, AT + 4, "wrong", "step", 1, ("image", "said", "sure"), ((3, "a|b", 0.25), (8, "", None))),
        Image(5, AT + 5, "digit", "step", 1, png(), 4, 2, "a red one"),
        Audio(6, AT + 6, "speech", "step", 1, wav(), 8000, "silence"),
        HistogramValue(7, AT + 7, "weights", "step", 1, (-1.0, 0.0, 0.1, 2.5), (3.0, 0.0, 7.0)),
        Artifact(8, AT + 8, "model", "model", "weights.bin", model, f"file://{model}", 9, digest, 1, ("latest",)),
        SpanBatch(9, (span,)),
        Summary(10, AT + 10, {"test/accuracy": 0.9375}),
        step(11, 2, {"loss": 0.25}),
        RunStatus(12, AT + 12, "finished"),
    ]
