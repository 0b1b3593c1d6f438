from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fake_cuda import FakeCuda


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    """Two CUDA devices that do at once what is launched; whatever waits for them raises, and fails the test."""
    from tests.fake_cuda import fake_cuda

    with fake_cuda() as found:
        yield found
        assert found.waits == []
