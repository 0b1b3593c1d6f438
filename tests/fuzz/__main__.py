"""`make fuzz`: coverage-guided fuzzing of every decoder of foreign bytes, with atheris (libFuzzer).

::

    python -m tests.fuzz                           every target, one after the other, FUZZ_SECONDS (20) each
    python -m tests.fuzz metrics http              these
    python -m tests.fuzz --input crash-… metrics   one input again

Each target runs in a process of its own: libFuzzer ends it. An input that crashes it, hangs for more than 5 s or
takes more than 2 GiB is kept in `build/fuzz/<target>/`; make it a test in `tests/fuzz/test_findings.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

from tests.e2e.jobs import ROOT

__all__ = ["main"]

_LIMITS = ("-timeout=5", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1")
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def main() -> int:
    """Fuzz, and return how many targets failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--inside", action="store_true", help="fuzz in this process")
    parser.add_argument("--input", type=Path, help="run one input")
    chosen = parser.parse_args()
    if chosen.inside:
        _fuzz(chosen.targets[0])
    if chosen.input is not None:
        from tests.fuzz.targets import TARGETS

        TARGETS[chosen.targets[0]](chosen.input.read_bytes())
        return 0
    from tests.fuzz.seeds import SEEDS

    return sum(not _passes(target) for target in chosen.targets or SEEDS)


def _passes(target: str) -> bool:
    """Fuzz one target in a process of its own, and say how it went."""
    seconds = os.environ.get("FUZZ_SECONDS", "20")
    folder = ROOT / "build" / "fuzz" / target
    corpus = _seeded(target, folder / "corpus")
    command = [sys.executable, "-m", "tests.fuzz", "--inside", target]
    limits = [f"-max_total_time={seconds}", f"-artifact_prefix={folder}/", *_LIMITS, str(corpus)]
    environ = {**os.environ, "OTEL_ML_FUZZ_ARGUMENTS": "\n".join(limits)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", check=False)
    executed = _EXECUTED.search(done.stderr)
    print(
        f"{target:14} {executed[1] if executed else '?':>9} inputs  {'ok' if not done.returncode else 'FAILED'}",
        flush=True,
    )
    if done.returncode:
        print(done.stderr[-6000:])
    return not done.returncode


def _seeded(target: str, corpus: Path) -> Path:
    from tests.fuzz.seeds import SEEDS

    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[target]()):
        (corpus / f"seed-{number}").write_bytes(seed)
    return corpus


def _fuzz(name: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["otel_ml", "otel_ml_exporters", "otel_ml_service"]):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz.mutate import mutated

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return mutated(name, data, random)[:most]

    target = TARGETS[name]
    atheris.Setup(
        [sys.argv[0], *os.environ["OTEL_ML_FUZZ_ARGUMENTS"].split("\n")],
        lambda data: target(bytes(data)),
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
