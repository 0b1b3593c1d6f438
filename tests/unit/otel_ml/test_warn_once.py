"""What a program hears though no run may ever begin: once, from one process of each host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_ml._internal.identity.ranks import detect
from otel_ml.warn_once import forget_warnings, say
from tests.rank_variables import LAUNCHERS, told


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OTEL_ML_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    forget_warnings()
    yield
    forget_warnings()


def test_a_sentence_is_logged_the_first_time_with_the_command_that_explains_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    say("setting-unused", "One has no meaning.")
    say("setting-unused", "One has no meaning.")
    say("setting-unused", "Another has none.")

    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("otel_ml", "WARNING", "One has no meaning. (otel-ml explain setting-unused)"),
        ("otel_ml", "WARNING", "Another has none. (otel-ml explain setting-unused)"),
    ]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("within", ["", "slurm"], ids=["on its own", "in a step of SLURM"])
@pytest.mark.parametrize("launcher", sorted(LAUNCHERS.keys() - {"slurm", "torch_env"}))
def test_of_the_ranks_that_a_launcher_starts_only_the_first_one_speaks(
    launcher: str, within: str, rank: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = {**told("slurm", 0), "SLURM_STEP_NUM_TASKS": "1"} if within else {}
    environ = {**step, **told(launcher, rank)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    say("setting-unused", "One has no meaning.")

    assert detect(environ).local_rank == rank
    assert len(caplog.records) == (rank == 0)


@pytest.mark.parametrize(("local_rank", "sentences"), [("0", 1), ("1", 0)])
def test_of_the_ranks_of_a_host_only_the_first_one_speaks(
    local_rank: str, sentences: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)

    say("setting-unused", "One has no meaning.")

    assert len(caplog.records) == sentences
