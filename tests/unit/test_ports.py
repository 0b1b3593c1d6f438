"""Two servers of a test never get one port."""

from __future__ import annotations

from tests import ports
from tests.ports import free_port


def test_no_port_is_given_twice() -> None:
    # Of 17,000, 200 draws would have one twice in two of three runs; it ended a run of all tests once.
    given = [free_port() for _ in range(200)]
    assert len(set(given)) == len(given)
    assert set(given) <= set(ports.RANGE)
