"""Valid input of every decoder, a little wrong: it is taken, or refused as documented, in little memory.

The quick half of `make fuzz`, without coverage and without atheris; a failure prints the seed that repeats it.
"""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS
from tests.integration.conftest import Bench, bench
from tests.otlp import FakeWriter

__all__ = ["bench"]

SLOW = {"recording", "journal", "journal_file", "http", "answer"}
"""Each input is a file, a database or a socket."""

BYTES_PER_BYTE = 2000
"""Most memory for a byte of input; small input has the megabytes that the first call of anything takes."""

FLOOR = 16 * 2**20


def test_there_are_seeds_for_every_target() -> None:
    assert SEEDS.keys() == TARGETS.keys()


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_are_taken(target: str) -> None:
    seeds = SEEDS[target]()

    assert seeds
    for seed in seeds:
        TARGETS[target](seed)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_a_little_wrong_is_taken_or_refused_as_documented(target: str) -> None:
    seeds = SEEDS[target]()

    @settings(max_examples=15 if target in SLOW else 60)
    @given(seed=st.integers(0, 2**32), at=st.integers(0, len(seeds) - 1), rounds=st.integers(1, 3))
    def check(seed: int, at: int, rounds: int) -> None:
        random, data = Random(seed), seeds[at]
        for _ in range(rounds):
            data = mutated(target, data, random)
        tracemalloc.start()
        try:
            TARGETS[target](data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < FLOOR + BYTES_PER_BYTE * len(data), f"{peak} bytes for {len(data)}"

    check()


@pytest.mark.parametrize("signal", ["metrics", "logs", "traces"])
def test_a_service_that_gets_it_over_the_network_goes_on_and_counts_it(bench: Bench, signal: str) -> None:
    service = bench.service()
    sender = bench.sender(service)
    random, seeds = Random(1), SEEDS[signal]()

    statuses = {sender.send(signal, mutated(signal, random.choice(seeds), random)).status for _ in range(150)}

    assert statuses <= {200, 400}
    assert 200 in statuses
    text = sender.request("GET", "/metrics").body.decode()
    refused = 'otel_ml_refused_total{reason="undecodable"}' in text
    assert refused == (400 in statuses)
    assert sender.send("metrics", FakeWriter(experiment="next").step(1, {"loss": 1.0})).status == 200
