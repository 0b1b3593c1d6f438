"""What a Ray driver waits for before Ray kills its workers; in a real cluster it is in `tests/e2e/test_ray.py`."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import ray

from otel_ml.integrations import ray_end
from otel_ml.testing import Capture, capture


class Cluster:
    """Ray as the end of a driver sees it, and what is done there, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_there = False  # a run begins before a cluster is asked for
        self.done: list[object] = []
        self.at_exit: list[Callable[[], None]] = []
        monkeypatch.setattr(ray, "is_initialized", lambda: self.is_there)
        monkeypatch.setattr(ray, "shutdown", self.shutdown)
        monkeypatch.setattr(atexit, "register", self.at_exit.append)
        monkeypatch.setattr(ray_end, "time", SimpleNamespace(sleep=self.done.append))  # nothing is waited for here

    def shutdown(self, *arguments: object, **options: object) -> str:
        self.done.append((arguments, options))
        return "Ray's answer"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.delattr(sys, "last_value", raising=False)
    return Cluster(monkeypatch)


def dismissals(captured: Capture) -> int:
    return sum(event.kind == "ml.started.end" for event in captured.events)


def test_a_driver_waits_until_all_is_on_the_disks_and_then_has_ray_end(cluster: Cluster) -> None:
    cluster.is_there = True
    ray_end.end_gently()

    answer = ray.shutdown(True, _exiting_interpreter=False)

    assert answer == "Ray's answer"
    assert cluster.done == [0.25, ((True,), {"_exiting_interpreter": False})]


def test_it_is_asked_to_only_once(cluster: Cluster) -> None:
    cluster.is_there = True
    ray_end.end_gently()
    ray_end.end_gently()
    ray.shutdown()

    assert cluster.done == [0.25, ((), {})]
    assert len(cluster.at_exit) == 1


def test_without_a_cluster_nothing_is_waited_for(cluster: Cluster) -> None:
    ray_end.end_gently()

    with capture() as captured:
        ray_end.end_others()
        cluster.at_exit[0]()
        ray.shutdown()

        assert dismissals(captured) == 0
    assert cluster.done == [((), {})]


def test_at_exit_the_same_is_waited_for(cluster: Cluster) -> None:
    cluster.is_there = True
    ray_end.end_gently()
    cluster.at_exit[0]()

    assert cluster.done == [0.25]


def test_the_service_is_told_that_the_workers_end_with_a_driver_that_has_some(cluster: Cluster) -> None:
    with capture() as captured:
        cluster.is_there = True
        ray_end.end_gently()
        ray.shutdown()
        without_workers = dismissals(captured)
        ray_end.end_others()
        ray.shutdown()

        assert (without_workers, dismissals(captured)) == (0, 1)


def fails() -> None:
    """Be a driver that ends Ray in any case."""
    try:
        raise ValueError("a worker said so")
    finally:
        ray.shutdown()


def test_of_a_driver_that_fails_the_workers_may_be_the_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture() as captured:
        cluster.is_there = True
        ray_end.end_others()
        ray_end.end_gently()
        with pytest.raises(ValueError, match="a worker said so"):
            fails()
        monkeypatch.setattr(sys, "last_value", ValueError("nobody caught it"), raising=False)
        cluster.at_exit[0]()

        assert dismissals(captured) == 0


def test_what_is_sent_to_a_hosted_service_has_the_time_of_a_flush(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_FLUSH_INTERVAL", "1500")
    with monkeypatch.context() as hosted:
        hosted.setattr(ray_end.RUNTIME, "make_link", ray_end.RUNTIME.make_link)
        cluster.is_there = True
        ray_end.ray_service.use_actor()
        ray_end.end_gently()
        ray.shutdown()

    assert cluster.done == [0.25 + 1.5, ((), {})]


def test_without_a_run_nobody_is_ended(cluster: Cluster) -> None:
    cluster.is_there = True
    ray_end.end_others()
    ray_end.end_gently()
    ray.shutdown()

    assert not ray_end.RUNTIME.is_active
