from __future__ import annotations

from collections.abc import Sequence

import pytest

from otel_ml.compat.itwinai import ConsoleLogger, Logger


@pytest.mark.feature("I3", "yes", "epoch, batch, every n-th batch; anything else is refused")
@pytest.mark.parametrize(
    ("log_freq", "logged"),
    [("epoch", [None]), ("batch", [None, 0, 1, 2, 3, 4, 5]), (2, [None, 0, 2, 4]), (3, [None, 0, 3])],
)
def test_log_freq_decides_on_batches_and_what_has_no_batch_is_always_logged(
    log_freq: str | int, logged: list[int | None]
) -> None:
    logger = ConsoleLogger(log_freq=log_freq)

    assert [batch for batch in (None, 0, 1, 2, 3, 4, 5) if logger.should_log(batch)] == logged


@pytest.mark.parametrize("wrong", [0, -1, "step", 2.5, True, None])
def test_another_log_freq_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="log_freq"):
        ConsoleLogger(log_freq=wrong)  # type: ignore[arg-type]


@pytest.mark.feature("I4", "yes", "-1, a rank, or several; asked before the batch")
@pytest.mark.parametrize(
    ("log_on_workers", "ranks"), [(0, [0]), (2, [2]), (-1, [0, 1, 2, 3]), ([1, 3], [1, 3]), ((-1,), [0, 1, 2, 3])]
)
def test_log_on_workers_is_asked_before_the_batch(log_on_workers: int | Sequence[int], ranks: list[int]) -> None:
    found = []
    for rank in range(4):
        logger = Logger(log_freq="batch", log_on_workers=log_on_workers)
        logger.worker_rank = rank
        if logger.should_log(batch_idx=0):
            found.append(rank)

    assert found == ranks
