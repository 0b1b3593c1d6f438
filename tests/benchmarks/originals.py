"""What users call today, and the same call of ours: what sets each up in one process.

Megatron Core, Megatron Bridge, verl and itwinai are installed into a folder of their own, without what they need for
training: what one of them needs contradicts what another needs, or what is tested here.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.benchmarks.calls import TEN
from tests.benchmarks.peers import PEERS

__all__ = ["ORIGINALS", "install"]

PACKAGES = {
    "megatron-core": "0.16.1",
    "megatron-bridge": "0.3.1",
    "verl": "0.9.1",
    "itwinai": "0.4.2",
    # What verl and itwinai import before their loggers.
    "tensordict": "0.15.3",
    "pyvers": "0.2.3",
    "orjson": "3.13.0",
    "codetiming": "1.4.0",
    "omegaconf": "2.4.0",
    "antlr4-python3-runtime": "4.9.3",
}
FOLDER = Path(__file__).parents[2] / ".cache" / "originals"

Setup = Callable[[], Mapping[str, Any]]


class Original(NamedTuple):
    """A statement, and what sets its names up: the original, and ours."""

    statement: str
    original: Setup
    ours: Setup


def install() -> None:
    """Install the originals that are not the project's own test dependencies, once."""
    wanted = [f"{name}=={version}" for name, version in PACKAGES.items()]
    done = FOLDER / "installed.txt"
    if done.exists() and done.read_text() == "\n".join(wanted):
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--target", str(FOLDER)]
    subprocess.run([*pip, *wanted], check=True)
    done.write_text("\n".join(wanted))


def _from_folder() -> None:
    sys.path.append(str(FOLDER))  # last: what the project itself depends on comes first


def names_of(peer: str) -> Setup:
    """Return what sets a peer up, for its names."""
    return lambda: PEERS[peer]()[1]


def compat_wandb() -> Mapping[str, Any]:
    from otel_ml.compat import wandb

    return {"run": wandb.init()}


def compat_summary_writer() -> Mapping[str, Any]:
    from otel_ml.compat.tensorboard import SummaryWriter

    return {"writer": SummaryWriter("runs")}


def tensorboardx_summary_writer() -> Mapping[str, Any]:
    from tensorboardX import SummaryWriter

    return {"writer": SummaryWriter("runs")}


def compat_mlflow() -> Mapping[str, Any]:
    from otel_ml.compat import mlflow

    mlflow.start_run()
    return {"mlflow": mlflow}


def lightning_tensorboard() -> Mapping[str, Any]:
    from lightning.pytorch.loggers import TensorBoardLogger

    return {"logger": TensorBoardLogger("runs")}


def our_lightning() -> Mapping[str, Any]:
    from otel_ml.integrations.lightning import OtelMLLogger

    return {"logger": OtelMLLogger()}


def _trainer() -> Mapping[str, Any]:
    from transformers import TrainingArguments

    state = SimpleNamespace(is_world_process_zero=True, global_step=1)
    return {"args": TrainingArguments("trained", report_to="none"), "state": state}


def huggingface_tensorboard() -> Mapping[str, Any]:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    return {"callback": TensorBoardCallback(SummaryWriter("runs")), **_trainer()}


def our_huggingface() -> Mapping[str, Any]:
    from otel_ml.integrations.huggingface import OtelMLCallback

    return {"callback": OtelMLCallback(), **_trainer()}


def accelerate_tensorboard() -> Mapping[str, Any]:
    from accelerate.tracking import TensorBoardTracker

    return _started(TensorBoardTracker("bench", logging_dir="runs"))


def our_accelerate() -> Mapping[str, Any]:
    from otel_ml.integrations.huggingface import OtelMLTracker

    return _started(OtelMLTracker("bench"))


def _started(tracker: Any) -> Mapping[str, Any]:
    from accelerate import PartialState

    PartialState()
    tracker.start()
    return {"tracker": tracker}


def megatron_timers() -> Mapping[str, Any]:
    _from_folder()
    import torch
    from megatron.core.timers import Timers

    torch.cuda.synchronize = lambda *_: None  # what it calls twice a timer, and what is not there without a GPU
    return {"timers": Timers(1, "minmax")}


def compat_megatron_timers() -> Mapping[str, Any]:
    from otel_ml.compat.megatron import Timers

    return {"timers": Timers(1, "minmax")}


def bridge_callbacks() -> Mapping[str, Any]:
    # By its file: the package around it imports every model that it knows.
    file = FOLDER / "megatron" / "bridge" / "training" / "callbacks.py"
    spec = importlib.util.spec_from_file_location("bridge_callbacks", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = callbacks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(callbacks)
    return _manager(callbacks)


def compat_bridge_callbacks() -> Mapping[str, Any]:
    from otel_ml.compat import megatron

    return _manager(megatron)


def _manager(callbacks: Any) -> Mapping[str, Any]:
    manager = callbacks.CallbackManager()
    manager.register("on_train_step_end", lambda context: context.loss_dict)
    context = callbacks.CallbackContext(state=None, model=[], loss_dict=TEN)
    return {"manager": manager, "should_fire": callbacks.should_fire, "context": context}


def verl_tracking() -> Mapping[str, Any]:
    _from_folder()
    from verl.utils.tracking import Tracking

    return {"tracking": Tracking("bench", "original", default_backend="tensorboard")}


def compat_verl_tracking() -> Mapping[str, Any]:
    from otel_ml.compat.verl import Tracking

    return {"tracking": Tracking("bench", "ours", default_backend="tensorboard")}


def itwinai_tensorboard() -> Mapping[str, Any]:
    _from_folder()
    from itwinai.loggers import TensorBoardLogger

    return _in_context(TensorBoardLogger("runs"))


def compat_itwinai_tensorboard() -> Mapping[str, Any]:
    from otel_ml.compat.itwinai import TensorBoardLogger

    return _in_context(TensorBoardLogger("runs"))


def _in_context(logger: Any) -> Mapping[str, Any]:
    logger.create_logger_context(rank=0)
    return {"logger": logger}


ORIGINALS: Mapping[str, Original] = {
    "wandb run.log, 10 keys": Original("run.log(TEN)", names_of("wandb (offline)"), compat_wandb),
    "SummaryWriter.add_scalar": Original(
        "writer.add_scalar('loss', 0.5, next(STEP))", names_of("torch SummaryWriter"), compat_summary_writer
    ),
    "tensorboardX's SummaryWriter.add_scalar": Original(
        "writer.add_scalar('loss', 0.5, next(STEP))", tensorboardx_summary_writer, compat_summary_writer
    ),
    "mlflow.log_metrics, 10 keys": Original(
        "mlflow.log_metrics(TEN, step=next(STEP))", names_of("mlflow.log_metrics (sqlite)"), compat_mlflow
    ),
    "Lightning's logger (TensorBoard), 10 keys": Original(
        "logger.log_metrics(TEN, next(STEP))", lightning_tensorboard, our_lightning
    ),
    "Hugging Face's callback (TensorBoard), 10 keys": Original(
        "callback.on_log(args, state, None, logs=TEN)", huggingface_tensorboard, our_huggingface
    ),
    "Accelerate's tracker (TensorBoard), 10 keys": Original(
        "tracker.log(TEN, next(STEP))", accelerate_tensorboard, our_accelerate
    ),
    "Megatron's timer, start and stop": Original(
        "timer = timers('forward', 1); timer.start(); timer.stop()", megatron_timers, compat_megatron_timers
    ),
    "Megatron Bridge's callbacks, the end of a step": Original(
        "if should_fire(manager, 'on_train_step_end'): manager.fire('on_train_step_end', context)",
        bridge_callbacks,
        compat_bridge_callbacks,
    ),
    "verl Tracking.log (TensorBoard), 10 keys": Original(
        "tracking.log(TEN, next(STEP))", verl_tracking, compat_verl_tracking
    ),
    "itwinai's logger (TensorBoard)": Original(
        "logger.log(0.5, 'loss', 'metric', next(STEP))", itwinai_tensorboard, compat_itwinai_tensorboard
    ),
}
"""NeMo RL, torchforge and ROLL are not here: a package index has nothing of them but their names, or other projects."""
