"""`TrainingLog`: one call an iteration; what a `LoggerConfig` asks for, in every backend and on the console."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import otel_ml
from otel_ml.compat.megatron import distributed
from otel_ml.compat.megatron.config import UNITS, LoggerConfig
from otel_ml.compat.megatron.console import Console, Line
from otel_ml.compat.megatron.console_line import Interval, console_line, validation_line
from otel_ml.compat.megatron.names import published, published_names
from otel_ml.compat.megatron.rates import Spent, Throughput, runtime
from otel_ml.compat.megatron.timers import Timers
from otel_ml.compat.tracking.printed import print_line
from otel_ml.compat.tracking.step_axes import WITHIN
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.integrations.several_numbers import as_one
from otel_ml.warn_once import say

__all__ = ["SAMPLES_AXIS", "TrainingLog"]

SAMPLES_AXIS = "samples"

_SHOWN, _TOTAL, _NAN = "shown", "total", "nan"
"""What a value of the console's line is."""

_GIVEN = {
    "grad_norm": ("grad-norm", "grad norm", ""),
    "num_zeros_in_grad": ("num-zeros", "num zeros", "log_num_zeros_in_grad"),
    "params_norm": ("params-norm", "params norm", "log_params_norm"),
    "max_attention_logit": ("max-attention-logit", "max attention logit", "log_max_attention_logit"),
    "decoupled_learning_rate": ("decoupled-learning-rate", "", ""),
}
"""Argument of `log()` → name in the backends, title on the console, the field that has to be set."""

_COUNTS = frozenset({"num-zeros"})
"""What the console shows as it is, a whole number without digits after the point."""


@dataclass
class _Since:
    """What iterations took since the last row, or the last line."""

    iterations: int = 0
    seconds: float = 0.0
    flops: Spent = field(default_factory=Spent)
    joules: Spent = field(default_factory=Spent)

    def add(self, seconds: float, flops: float | None, joules: float | None) -> None:
        self.iterations += 1
        self.seconds += seconds
        self.flops.add(flops, seconds)
        self.joules.add(joules, seconds)


class TrainingLog:
    """What every rank calls after each iteration; nobody waits for another rank or for the device.

    Args:
        config: what is asked for.
        timers: to be written and reported with it.
        train_iters: how many iterations there will be.
        seq_length: tokens of a sample.
        iteration: the one a resumed job has done last; the next one is counted from it.
        write: prints a line; called on the last rank alone.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        config: LoggerConfig,
        *,
        timers: Timers | None = None,
        train_iters: int | None = None,
        seq_length: int | None = None,
        iteration: int = 0,
        write: Callable[[str], object] = print_line,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._timers = timers
        self._train_iters = train_iters
        self._seq_length = seq_length
        self._first = iteration
        self._write = write
        self._console = Console(write)
        self._now = now
        self._world_size = distributed.world_size()
        self._began = self._last_at = now()
        self._row, self._of_line = _Since(), _Since()
        self._interval = Interval()
        self._throughput = Throughput(config.throughput_window_size)

    @reports_unrecordable
    def log(
        self,
        iteration: int,
        losses: Mapping[str, Any],
        *,
        learning_rate: float | None = None,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        consumed_samples: int | None = None,
        skipped_samples: int = 0,
        loss_scale: float | None = None,
        is_skipped: bool = False,
        flops: float | None = None,
        joules: float | None = None,
        l2_norm_grad: Mapping[str, float] | None = None,
        **given: Any,
    ) -> None:
        """Record an iteration, and print a line every `log_interval`.

        Args:
            iteration: the step.
            losses: name → value, reduced over the data-parallel ranks already; `lm loss` is published as `lm_loss`.
                Of a list or an array it is the mean.
            learning_rate: the largest of all ranks is recorded; a rank without one leaves it out.
            global_batch_size: samples of the iteration; of one that is logged again the last values count.
            micro_batch_size: samples of a micro-batch, recorded with the throughput.
            consumed_samples: so far; losses and the rest are recorded against it too, as `samples/<name>`.
            skipped_samples: so far.
            loss_scale: of mixed precision.
            is_skipped: the optimizer left the iteration out: its losses are in no backend and in no mean.
            flops: floating-point operations of the iteration, on all GPUs.
            joules: this GPU's, of the iteration.
            l2_norm_grad: parameter → norm of its gradient; `global` is that of all.
            **given: `grad_norm`, `params_norm`, `num_zeros_in_grad`, `max_attention_logit`,
                `decoupled_learning_rate`: what was computed.
        """
        now = self._now()
        # An iteration is what lies between two calls. The first one is counted from when this object was made.
        seconds, self._last_at = now - self._last_at, now
        losses = {name: as_one(value) for name, value in losses.items()}
        self._interval.add(losses, is_skipped=is_skipped)
        for since in (self._row, self._of_line):
            since.add(seconds, flops, joules)
        # Over all iterations since the last row, as its rates are.
        values: dict[str, Any] = {"iteration-time": self._row.seconds / self._row.iterations}
        if not is_skipped:
            values.update(published_names(losses))
        optional = {
            "batch-size": global_batch_size,
            "loss-scale": self._if("log_loss_scale_to_tensorboard", loss_scale),
        }
        optional |= {
            _GIVEN[name][0]: self._if(_GIVEN[name][2], value) for name, value in given.items() if name in _GIVEN
        }
        for name in set(given) - set(_GIVEN):
            say("compat-megatron", f"TrainingLog.log() has no argument {name!r}; expected one of {', '.join(_GIVEN)}.")
        optional["world-size"] = self._if("log_world_size_to_tensorboard", self._world_size)
        optional["skipped-train-samples"] = skipped_samples or None
        values |= {name: value for name, value in optional.items() if value is not None}
        values |= self._rates(iteration, consumed_samples, (global_batch_size, micro_batch_size))
        if self._config.log_l2_norm_grad_to_tensorboard and l2_norm_grad:
            values |= {f"l2_norm/grad/{published(name)}": value for name, value in l2_norm_grad.items()}
        # Iterations between two rows are in the next one with their times and rates; of losses and the like a row has
        # those of its own iteration.
        if not self._config.skip_train_metrics_log and iteration % self._config.tensorboard_log_interval == 0:
            self._record(iteration, values, learning_rate, consumed_samples)
        if iteration % self._config.log_interval == 0:
            # Megatron's line has the loss scale also where the backends are not to have it.
            shown = values if loss_scale is None else {**values, "loss-scale": loss_scale}
            self._show(iteration, shown, learning_rate, consumed_samples, skipped_samples)

    @reports_unrecordable
    def validation(
        self,
        iteration: int,
        losses: Mapping[str, float],
        *,
        prefix: str | None = None,
        consumed_samples: int | None = None,
    ) -> None:
        """Record `<loss>_validation`, its perplexity where the configuration says so, and print a line.

        With `consumed_samples` against samples, too.
        """
        # Megatron's bound: of any loss above 20 it shows e²⁰.
        perplexities = {name: math.exp(min(value, 20.0)) for name, value in losses.items()}  # NaN stays: it is not less
        values = {f"{name} validation": value for name, value in losses.items()}
        if self._config.log_validation_ppl_to_tensorboard:
            values |= {f"{name} validation ppl": value for name, value in perplexities.items()}
        _record_row(published_names(values), iteration, consumed_samples)
        line = validation_line(prefix or f"iteration {iteration}", losses, perplexities)
        self._print(lambda _: line, {})

    def _if(self, field: str, value: Any) -> Any:
        return value if not field or getattr(self._config, field) else None

    def _rates(self, iteration: int, samples: int | None, batches: tuple[int | None, int | None]) -> dict[str, Any]:
        config, found = self._config, dict[str, Any]()
        if config.log_throughput_to_tensorboard and samples is not None:
            found |= self._throughput.rates(self._last_at, samples, self._seq_length, self._world_size)
            sizes = zip(("throughput/global_batch_size", "throughput/micro_batch_size"), batches, strict=True)
            found |= {name: size for name, size in sizes if size is not None}
        is_wanted = config.log_throughput or config.log_throughput_to_tensorboard
        if is_wanted and (per_second := self._row.flops.per_second) is not None:
            found["throughput/tflops"] = per_second / 1e12
            found["throughput/tflops/device"] = found["throughput/tflops"] / self._world_size
        if config.log_runtime_to_tensorboard:
            # What remains is judged by the iterations of this job, and not by those before it was resumed.
            whole = None if self._train_iters is None else self._train_iters - self._first
            unit = UNITS[config.runtime_time_unit]
            found |= runtime(self._last_at - self._began, iteration - self._first, whole, unit)
            found["time/batches"] = iteration
            found |= {} if samples is None else {"time/samples": samples}
            if samples is not None and self._seq_length is not None:
                found["time/tokens"] = samples * self._seq_length
        return found

    def _record(
        self,
        iteration: int,
        values: Mapping[str, Any],
        learning_rate: float | None,
        consumed_samples: int | None,
    ) -> None:
        config, (row, self._row) = self._config, (self._row, _Since())
        largest = {} if learning_rate is None else {"learning-rate": learning_rate}
        if config.log_memory_to_tensorboard and iteration % (config.log_memory_interval or 1) == 0:
            largest |= _device_memory(config.memory_keys, with_used=config.log_device_memory_used)
        _record_row(values, iteration, consumed_samples, largest)
        if config.log_energy and (power := row.joules.per_second) is not None:
            _record_row({"iter-energy/gpu": row.joules.per_iteration, "power/gpu": power}, iteration)
        if config.log_timers_to_tensorboard and self._timers is not None:
            # Timers have run since the last row; divided by its iterations it is the time of one.
            self._timers.write(list(self._timers.names), None, iteration, normalizer=row.iterations)

    def _show(
        self,
        iteration: int,
        given: Mapping[str, Any],
        learning_rate: float | None,
        consumed_samples: int | None,
        skipped_samples: int,
    ) -> None:
        # Taken out first: another thread may make the line later, and what comes meanwhile is of the next one.
        interval, self._interval = self._interval, Interval()
        since, self._of_line = self._of_line, _Since()
        rates = self._rates_of_line(since)

        def line(known: Mapping[Hashable, Any]) -> str:
            values = {name: known[_SHOWN, name] for name in given}
            of_interval = {str(title): _one(known[title], ".1f") for title in rates}
            totals = {name: known[_TOTAL, name] for name in interval.totals}
            shown = {
                "consumed samples": None if consumed_samples is None else f"{consumed_samples:12.0f}",
                "skipped samples": f"{skipped_samples:12.0f}" if skipped_samples else None,
                "elapsed time per iteration (ms)": f"{since.seconds / since.iterations * 1e3:.1f}",
                **of_interval,
                "learning rate": _one(learning_rate, ".6E"),
                "global batch size": _one(values.get("batch-size"), "5.0f"),
                "losses": "",
                "loss scale": _one(values.get("loss-scale"), ".1f"),
            }
            titled = {
                title: _one(values.get(name), "" if name in _COUNTS else ".3f")
                for name, title, _ in _GIVEN.values()
                if title
            }
            found = {title: value for title, value in {**shown, **titled}.items() if value is not None}
            arrived = replace(interval, totals=totals, nan=known[_NAN])
            return console_line(iteration, self._train_iters, arrived, found)

        values: dict[Hashable, Any] = {(_SHOWN, name): value for name, value in given.items()}
        values |= {(_TOTAL, name): total for name, total in interval.totals.items()}
        self._print(line, values | rates | {_NAN: interval.nan})
        if self._timers is not None:
            # On the last rank too, like the line, as log() has it by default; the others reset with it.
            self._timers.log(normalizer=interval.iterations, write=self._write)

    def _rates_of_line(self, since: _Since) -> dict[Hashable, Any]:
        """Return title → value: of the interval, as the mean time beside it is."""
        flops = self._if("log_throughput", since.flops.per_second)
        return {
            "throughput per GPU (TFLOP/s/GPU)": None if flops is None else flops / 1e12 / self._world_size,
            "energy per GPU (J/iter/GPU)": self._if("log_energy", since.joules.per_iteration),
            "power per GPU (W/GPU)": self._if("log_energy", since.joules.per_second),
        }

    def _print(self, line: Line, values: Mapping[Hashable, Any]) -> None:
        # As Megatron, on the last rank, which has the losses where there is a pipeline.
        if distributed.rank() == distributed.world_size() - 1:
            self._console.print(line, values)


def _record_row(
    values: Mapping[str, Any], iteration: int, samples: int | None = None, largest: Mapping[str, Any] | None = None
) -> None:
    """Record values against iterations, and against samples where they are known; of `largest` the ranks' largest."""
    otel_ml.log(values, step=iteration, within=WITHIN)
    if largest:
        otel_ml.log(largest, step=iteration, reduce="max", within=WITHIN)
    if samples is not None:
        # Without `reduce=`: what the call above says of a name holds on all axes of its role (ADR 0036).
        otel_ml.log({**values, **(largest or {})}, step=int(samples), axis=SAMPLES_AXIS, within=WITHIN)


def _one(value: Any, form: str) -> str | None:
    """Return a number by its form; an array or a tensor of one element has none of its own where it has a dimension."""
    return None if value is None else format(value.item() if hasattr(value, "item") else value, form)


_MEMORY_KEYS = {
    f"{kind}_bytes.all.{when}": f"mem-{prefix}{name}-bytes"
    for kind, name in (
        ("allocated", "allocated"),
        ("active", "active"),
        ("inactive_split", "inactive"),
        ("reserved", "reserved"),
    )
    for when, prefix in (("current", ""), ("peak", "max-"))
} | {"num_alloc_retries": "mem-alloc-retires", "allocation.all.current": "mem-allocated-count"}
"""`mem-alloc-retires` is Megatron's spelling."""


def _device_memory(memory_keys: Mapping[str, str] | None, *, with_used: bool) -> dict[str, float]:
    """Return `memory/<name>`, with Bridge's `gigabytes` where a name has `bytes`, 10⁹ each; nothing without CUDA."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    # Numbers of the allocator in this process: nothing waits for the device.
    stats = torch.cuda.memory_stats()
    found: dict[str, float] = {}
    for key, name in (memory_keys or _MEMORY_KEYS).items():
        if key in stats:
            if "bytes" in key:
                found[f"memory/{name.replace('bytes', 'gigabytes')}"] = stats[key] / 1e9
            else:
                found[f"memory/{name}"] = stats[key]
    if with_used:
        free, total = torch.cuda.mem_get_info()
        found["memory/mem-device-used-gigabytes"] = (total - free) / 1e9
    return found
