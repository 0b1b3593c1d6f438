"""What the demo reads from backends that are asked with their own library."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.demo.stored import NotStoredError, Stored, read_jsonl, read_tensorboard, read_wandb
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History, SeriesName, history
from tests.recorded_run import write_run

LOSS, PACE, RATE = SeriesName("step", "loss"), SeriesName("time", "pace"), SeriesName("eval", "rate")


def records() -> list[Record]:
    return [
        StepRecord(1, "trainer", "step", 0, 0, 10.0, {"loss": 4.0, "other": 1.0}),
        StepRecord(2, "trainer", "step", 1, 0, 11.0, {"loss": 2.0}),
        StepRecord(3, "trainer", "time", 7, 0, 12.0, {"pace": 0.5}),
        StepRecord(4, "trainer", "eval", 1, 0, 13.0, {"rate": 0.25}),
        StepRecord(5, "trainer", "step", 0, 0, 14.0, {"loss": 3.0}, amendment=True),
    ]


@pytest.mark.parametrize(("read", "backend"), [(read_jsonl, "jsonl"), (read_tensorboard, "tensorboard")])
def test_the_last_value_of_each_point_is_read_and_every_value_is_counted(
    tmp_path: Path, read: Callable[[RunFolder, History], Stored], backend: str
) -> None:
    run = write_run(tmp_path, "one", records(), exporters=[backend])

    stored = read(run, history(records()))

    assert stored.last == {
        (LOSS, 0): 3.0, (LOSS, 1): 2.0, (PACE, 7): 0.5, (RATE, 1): 0.25, (SeriesName("step", "other"), 0): 1.0,
    }  # fmt: skip
    assert (stored.values, stored.extra) == (6, 1)


def test_what_a_backend_holds_more_than_once_is_extra() -> None:
    stored = Stored()
    for step, value in ((0, 1.0), (1, 2.0), (0, 3.0), (0, 4.0)):
        stored.add(LOSS, step, value)

    assert stored == Stored({(LOSS, 0): 4.0, (LOSS, 1): 2.0}, 4)
    assert stored.extra == 2


def test_the_offline_log_of_wandb_is_read_across_blocks_and_files(tmp_path: Path) -> None:
    first = [history_row({"otel_ml/step": "0", "loss": "4.0", "unknown": "9", "otel_ml/lag": "1"})]
    # 32,768 bytes of a block, less the file's header and both records' headers: 5 are left, too few for a header.
    first.append(padding(32_768 - 7 - 7 - len(first[0]) - 7 - 5))
    first.append(history_row({"otel_ml/step": "1", "loss": "2.0"}))
    long = '"' + "y" * 70_000 + '"'
    first.append(history_row({"otel_ml/time": "7", "otel_ml/step": "1", "pace": "0.5", "note": long}))
    write_log(tmp_path / "wandb" / "offline-run-1-one" / "run-one.wandb", first)
    second = [history_row({"otel_ml/step": "0", "loss": "3.0"}), history_row({"nested": "1"})]
    write_log(tmp_path / "wandb" / "offline-run-2-one" / "run-one.wandb", second)
    write_log(tmp_path / "wandb" / "offline-run-2-two" / "run-two.wandb", second)

    stored = read_wandb(RunFolder(tmp_path / "digits" / "one"), history(records()))

    assert stored == Stored({(LOSS, 0): 3.0, (LOSS, 1): 2.0, (PACE, 7): 0.5}, 4)


def test_a_run_that_wandb_does_not_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotStoredError, match=r"wandb' holds no offline run 'one'\."):
        read_wandb(RunFolder(tmp_path / "digits" / "one"), history(records()))


def history_row(values: dict[str, str]) -> bytes:
    wandb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    record = wandb.Record()
    for key, value in values.items():
        item = record.history.item.add(value_json=value)
        item.nested_key.extend(key.split("/"))
    return bytes(record.SerializeToString())


def padding(size: int) -> bytes:
    """Return a record of no history, of so many bytes."""
    wandb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    record = wandb.Record()
    record.output_raw.line = "z" * (size - 10)
    record.output_raw.line += "z" * (size - len(record.SerializeToString()))
    content = bytes(record.SerializeToString())
    assert len(content) == size
    return content


def write_log(path: Path, payloads: Sequence[bytes]) -> None:
    """Write a LevelDB log: pieces that end with their block, and zeros where no header fits into its rest."""
    content = bytearray(b":W&B\xbe\xe1\x00")
    for payload in payloads:
        left, is_first = payload, True
        while left or is_first:
            room = 32_768 - len(content) % 32_768
            if room < 7:
                content += bytes(room)
                continue
            piece, left = left[: room - 7], left[room - 7 :]
            kind = (1 if is_first else 4) if not left else (2 if is_first else 3)
            content += struct.pack("<IHB", 0, len(piece), kind) + piece
            is_first = False
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
