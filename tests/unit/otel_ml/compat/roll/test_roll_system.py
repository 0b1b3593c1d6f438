"""`MetricsManager.add_system_metrics`: held against ROLL's own, by what each count of GPUs is taken from."""

from __future__ import annotations

from types import SimpleNamespace

from otel_ml.compat.roll import MetricsManager


def the_manager(*timers: str) -> MetricsManager:
    manager = MetricsManager()
    manager.timers = {name: SimpleNamespace(mean_throughput=48.0, mean=2.0) for name in timers}
    return manager


def test_a_cluster_has_the_gpus_of_its_world_and_the_whole_job_those_that_ray_has() -> None:
    both = SimpleNamespace(num_gpus=8, world_size=4, dp_size=2)
    manager = the_manager("tps", "actor_infer", "actor_infer_response", "actor_train")

    manager.add_system_metrics(0, 4, resource_manager=both, actor_infer=both, actor_train=both)

    rates = {name: value for name, value in manager.metrics.items() if name.endswith(("_gpu", "_dp"))}
    assert rates == {
        "system/tps_gpu": 6.0,
        "system/actor_infer/tps_gpu": 12.0,
        "system/actor_infer/tps_dp": 24.0,
        "system/actor_infer/response/tps_gpu": 12.0,
        "system/actor_infer/response/tps_dp": 24.0,
        "system/actor_train/tps_gpu": 12.0,
        "system/actor_train/tps_dp": 24.0,
    }


def test_a_count_that_is_not_known_makes_no_rate() -> None:
    manager = the_manager("tps", "actor_train")

    manager.add_system_metrics(
        0, 4, resource_manager=SimpleNamespace(world_size=4), actor_train=SimpleNamespace(num_gpus=8, dp_size=0)
    )

    assert not [name for name in manager.metrics if name.endswith(("_gpu", "_dp"))]
