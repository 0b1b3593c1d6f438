"""What all diagnostics but the inspection of tensors cost a loop of 50-ms steps: blocks with and without in turns.

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
from tests.benchmarks.training_loop import confident, difference, slowdown

__all__ = ["measure"]

STEP_S = 0.050
WIDTH = 64
BATCH = 32
BEFORE, STEPS = 2, 5
"""Steps of a block that do not count, and that do. A request goes out every half second of training, whichever block
that is in. Many short blocks find the difference four times as exactly as few long ones in the same time: what the
machine does beside changes within seconds."""

IDLE_S = 3
"""Long enough for a few samples of the monitor."""


def measure(size: Size) -> Found:
    """Measure blocks of steps, wall and CPU time of the process."""
    with sink() as url:
        found = answer_of(steps, env=sending_to(url), pairs=size.diagnosed_pairs)
    on, off = ({name: [one[name] for one in found[side]] for name in found[side][0]} for side in ("on", "off"))
    figures: dict[str, Figure] = {}
    for kind in ("wall", "cpu"):
        figures[f"{kind}.slowdown"] = slowdown(on[kind], off[kind])
        figures[f"{kind}.difference"] = difference(on[kind], off[kind])
        figures[f"{kind}.step"] = Figure(statistics.median(off[kind]) * 1e3, "ms", better="neither")
    figures["calls"] = confident([seconds * 1e6 for seconds in on["calls"]], "µs")
    figures["others"] = difference(on["others"], off["others"])
    figures["waits"] = difference(on["waits"], off["waits"])
    figures["idle"] = Figure(found["idle"] * 100, "%", note="of a core, monitor and sender, with nothing to train")
    return Found(figures)


def steps(pairs: int) -> dict[str, Any]:
    """Train in this process; return seconds of a step, block by block, with diagnostics and without."""
    import otel_ml
    from otel_ml.diagnostics import hardware

    otel_ml.init("bench")
    with hardware.start_monitor(interval=1):
        idle = cores_while_idle()
        train, diagnose = training()
        numbers = itertools.count()
        sides: dict[str, Callable[[], float]] = {
            "on": lambda: diagnose(next(numbers), train),
            "off": lambda: train(lambda: None),
        }
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for pair in range(-1, pairs):
            for side in ("on", "off") if pair % 2 else ("off", "on"):
                taken = block(sides[side])
                otel_ml.flush(10)  # what a block has recorded is no load of the next
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


Train = Callable[[Callable[[], None]], float]


def training() -> tuple[Train, Callable[[int, Train], float]]:
    """Return a step of a small model that takes `STEP_S`, and the same with all diagnostics around it.

    Both return the seconds of the step itself; the first calls its argument between backward and update.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(BATCH, WIDTH)

    def train(before_update: Callable[[], None]) -> float:
        began = time.perf_counter()
        aside = 0.0
        optimizer.zero_grad()
        for index in range(passes):
            model(batch).square().mean().backward()
            if index == passes - 1:
                between = time.perf_counter()
                before_update()
                aside = time.perf_counter() - between
        optimizer.step()
        return time.perf_counter() - began - aside

    passes = 20
    for _ in range(3):  # the first steps of a process are slower, and a long step is more than many short ones
        passes = max(1, round(passes * STEP_S / statistics.median(train(lambda: None) for _ in range(10))))
    return train, diagnosed(model, optimizer)


def diagnosed(model: Any, optimizer: Any) -> Callable[[int, Train], float]:
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
    norms, iterations = dynamics.Norms(model), dynamics.Iterations(interval=10)
    advantages, loss = torch.randn(BATCH, 8), torch.ones(())

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
        throughput.step(samples=BATCH, tokens=BATCH * WIDTH, flops=1e6)
        progress.step(samples=BATCH, tokens=BATCH * WIDTH)
        efficiency.step()
        iterations.step(loss, samples=BATCH)
        dynamics.record_state(optimizer, batch_size=BATCH)
        report_memory()
        rl.advantages(advantages)
        rl.kl(advantages)
        rl.policy_staleness([number] * BATCH)
        rl.batch_reward([0.5] * BATCH)
        rl.buffer_state(size=BATCH, capacity=2 * BATCH)
        return seconds

    return step
