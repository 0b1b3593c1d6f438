from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.launchers.cluster import slurm


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with slurm(tmp_path_factory.mktemp("slurm") / "cluster") as environ:
        yield environ
