"""`wandb.init(resume=…)` on several ranks: what is there by then may be what rank 0 has begun."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_ml.compat import wandb
from otel_ml.compat.wandb.resuming import goes_on
from otel_ml.wire.rendezvous import run_folder
from tests.rank_variables import LAUNCHERS

TOLD = {"by otel_ml's own": {"OTEL_ML_RANK": "{rank}", "OTEL_ML_WORLD_SIZE": "2"}, **LAUNCHERS}


@pytest.mark.parametrize("variables", TOLD.values(), ids=TOLD)
def test_a_run_that_must_not_be_there_may_be_on_ranks_above_0(
    variables: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    folder = run_folder(tmp_path, "digits", "once")
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    arguments = {"experiment": "digits", "id": "once"}

    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(rank=1))
    is_resumed = goes_on("never", arguments)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(rank=0))

    assert not is_resumed
    with pytest.raises(wandb.UsageError, match="never"):
        goes_on("never", arguments)
