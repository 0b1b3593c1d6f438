"""What all diagnostics but the inspection of tensors cost loops of 50-ms steps: blocks with and without in turns.

One process and one run, whose sender and hardware monitor are at work all the time: what those use while nothing trains
is stated, and is in both sides. What diagnostics make the sender do is in theirs.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.steps_of_50_ms import TOKENS, Train, Training, one_pass, small_passes
from tests.benchmarks.training_loop import confident, difference, slowdown

__all__ = ["measure"]

LOOPS: dict[str, Callable[[], Training]] = {"one_pass": one_pass, "small_passes": small_passes}
SAMPLES = 32
"""Of an RL batch, each of `TOKENS`."""

BEFORE, STEPS = 2, 5
"""Steps of a block that do not count, and that do. A request goes out every half second of training, whichever block
that is in. Many short blocks find the difference four times as exactly as few long ones in the same time: what the
machine does beside changes within seconds."""

IDLE_S = 3
"""Long enough for a few samples of the monitor."""


def measure(size: Size) -> Found:
    """Measure blocks of steps of both loops, wall and CPU time of the process."""
    figures: dict[str, Figure] = {}
    for loop in LOOPS:
        with sink() as url:
            found = answer_of(steps, env=sending_to(url), loop=loop, pairs=size.diagnosed_pairs)
        on, off = ({name: [one[name] for one in found[side]] for name in found[side][0]} for side in ("on", "off"))
        for kind in ("wall", "cpu"):
            figures[f"{loop}.{kind}.slowdown"] = slowdown(on[kind], off[kind])
            figures[f"{loop}.{kind}.difference"] = difference(on[kind], off[kind])
            figures[f"{loop}.{kind}.step"] = Figure(statistics.median(off[kind]) * 1e3, "ms", better="neither")
        figures[f"{loop}.calls"] = confident([seconds * 1e6 for seconds in on["calls"]], "µs")
        figures[f"{loop}.others"] = difference(on["others"], off["others"])
        figures[f"{loop}.waits"] = difference(on["waits"], off["waits"])
        figures[f"{loop}.idle"] = Figure(
            found["idle"] * 100, "%", note="of a core, monitor and sender, with nothing to train"
        )
    return Found(figures)


def steps(loop: str, pairs: int) -> dict[str, Any]:
    """Train in this process; return seconds of a step, block by block, with diagnostics and without."""
    import otel_ml
    from otel_ml.diagnostics import hardware

    otel_ml.init("bench")
    with hardware.start_monitor(interval=1):
        idle = cores_while_idle()
        training = LOOPS[loop]()
        diagnose = diagnosed(training)
        numbers = itertools.count()
        sides: dict[str, Callable[[], float]] = {
            "on": lambda: diagnose(next(numbers), training.train),
            "off": lambda: training.train(lambda: None),
        }
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for pair in range(-1, pairs):
            for side in ("on", "off") if pair % 2 else ("off", "on"):
                taken = block(sides[side])
                otel_ml.flush(10)  # what a block has recorded is not a load of the next
                if pair >= 0:
                    found[side].append(taken)
    otel_ml.shutdown()
    return {**found, "idle": idle}


def block(step: Callable[[], float]) -> dict[str, float]:
    """Return seconds of a step: wall, CPU of the process and of its other threads, in diagnostics, and of waiting.

    Training waits where it does not compute: for the interpreter, while another thread has it, and for a core.
    """
    for _ in range(BEFORE):
        step()
    wall, cpu, own = time.perf_counter(), time.process_time(), time.thread_time()
    trained = sum(step() for _ in range(STEPS))
    found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    found["calls"] = found["wall"] - trained
    own = time.thread_time() - own
    found["others"], found["waits"] = found["cpu"] - own, found["wall"] - own
    return {name: seconds / STEPS for name, seconds in found.items()}


def cores_while_idle() -> float:
    """Return CPU seconds a second of this process while its main thread sleeps."""
    began = time.process_time()
    time.sleep(IDLE_S)
    return (time.process_time() - began) / IDLE_S


def diagnosed(training: Training) -> Callable[[int, Train], float]:
    """Return a step with every diagnostic that a program would call in it."""
    import torch

    import otel_ml
    from otel_ml.diagnostics import dynamics, rl
    from otel_ml.diagnostics.device_memory import report_memory
    from otel_ml.diagnostics.efficiency import Efficiency
    from otel_ml.diagnostics.goodput import Goodput
    from otel_ml.diagnostics.progress import Progress
    from otel_ml.diagnostics.throughput import Throughput

    throughput, progress = Throughput(window=50, peak=1e12), Progress(steps=1_000_000)
    efficiency, goodput = Efficiency(), Goodput()
    norms, iterations = dynamics.Norms(training.model), dynamics.Iterations(interval=10)
    advantages, loss = torch.randn(SAMPLES, TOKENS), torch.ones(())

    def before_update() -> None:
        norms.record_gradients()
        norms.record_parameters()

    def step(number: int, train: Train) -> float:
        otel_ml.set_step(number)
        otel_ml.set_step(number, axis="policy_version")
        with goodput.work(number), otel_ml.operation("actor_train/train_step") as op:
            with op.onload():
                pass
            seconds = train(before_update)
            with op.offload():
                pass
        throughput.step(samples=SAMPLES, tokens=SAMPLES * TOKENS, flops=1e6)
        progress.step(samples=SAMPLES, tokens=SAMPLES * TOKENS)
        efficiency.step()
        iterations.step(loss, samples=SAMPLES)
        dynamics.record_state(training.optimizer, batch_size=SAMPLES)
        report_memory()
        rl.advantages(advantages)
        rl.kl(advantages)
        rl.policy_staleness([number] * SAMPLES)
        rl.batch_reward([0.5] * SAMPLES)
        rl.buffer_state(size=SAMPLES, capacity=2 * SAMPLES)
        return seconds

    return step
