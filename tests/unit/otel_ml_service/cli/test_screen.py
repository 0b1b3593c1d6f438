from __future__ import annotations

import pytest

from otel_ml_service.cli.screen import screen


def test_in_a_pipe_one_long_name_does_not_push_the_figures_of_the_others_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen().table(["metric", "last"], [["loss", "0.5"], ["x" * 700, "1"]], right=["last"])

    header, short, long = capsys.readouterr().out.splitlines()
    assert header.split() == ["metric", "last"]
    assert short.split() == ["loss", "0.5"]
    assert len(header) == len(short) < 80
    assert long.split() == ["x" * 700, "1"]
