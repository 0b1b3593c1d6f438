"""`log()` beside what many trainers do: one `all_reduce` per key over gloo, in turns, on all ranks of a job."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

from tests.benchmarks.child import bare_environment, sending_to
from tests.benchmarks.figures import Figure, Found, middle, ratio
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.e2e.jobs import torchrun

__all__ = ["measure"]

KEYS = {f"metric_{i}": float(i) for i in range(10)}


def measure(size: Size) -> Found:
    """Measure on so many ranks; what rank 0 waits for is what the job waits for."""
    figures: dict[str, Figure] = {}
    for ranks in size.collective_ranks:
        ours, theirs = job(ranks, size.collective_pairs)
        figures[f"{ranks}.otel_ml"] = middle(ours, "µs")
        figures[f"{ranks}.all_reduce"] = middle(theirs, "µs", better="neither")
        figures[f"{ranks}.ratio"] = ratio(ours, theirs)
    return Found(figures)


def job(ranks: int, pairs: int) -> tuple[list[float], list[float]]:
    """Return µs a step of rank 0: ours, and one collective a key."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder, sink() as url:
        command = [*torchrun(ranks, "-m", "tests.benchmarks.collectives"), pairs]
        done = subprocess.run(
            [str(part) for part in command],
            env=bare_environment(**sending_to(url)),
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    if done.returncode:
        raise RuntimeError(f"The job of all_reduce failed:\n{done.stdout}{done.stderr}")
    ours, theirs = json.loads(done.stdout.splitlines()[-1])
    return ours, theirs


def rank(pairs: int) -> None:
    import torch
    import torch.distributed as dist

    import otel_ml
    from tests.benchmarks.turns import hot_calls, in_turns

    dist.init_process_group("gloo")
    otel_ml.init("bench")
    otel_ml.set_step(0)
    names = {"otel_ml": otel_ml, "KEYS": KEYS, "torch": torch, "dist": dist}
    # As many calls on each rank, or one would wait for the other for ever.
    theirs = "for value in KEYS.values(): dist.all_reduce(torch.tensor(value))"
    answers = in_turns(
        hot_calls("otel_ml.log(KEYS)", names, 0, calls=200), hot_calls(theirs, names, 0, calls=20), pairs
    )
    if dist.get_rank() == 0:
        print("\n" + json.dumps(answers), flush=True)
    otel_ml.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    rank(int(sys.argv[1]))
