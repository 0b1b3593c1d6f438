"""The pages that a job's own service has, from the first question on."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from otel_ml_service.ui.pages_of_a_job import pages_of
from tests.recorded_run import digits_records, write_run


def test_whoever_has_the_address_sees_the_runs_and_nobody_else(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2))
    pages, others = pages_of(tmp_path), pages_of(tmp_path)
    assert pages is not None
    assert others is not None
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{43}/", pages.address)
    assert pages.address.rsplit("/", 2)[1] != others.address.rsplit("/", 2)[1]

    others._listener.close()
    pages.serve_when_asked()

    with urllib.request.urlopen(f"{pages.address}runs.json", timeout=60) as answer:
        assert b"01abc" in answer.read()
    with pytest.raises(HTTPError, match="403"):
        urllib.request.urlopen(f"{pages.address[:-2]}/runs.json", timeout=60)
