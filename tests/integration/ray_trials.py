"""A process in which Ray Tune does one trial after the other: its real actor, whose calls come from a list.

Ray itself is not started: what it says of a call, and where it keeps the actor, is said here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ray
from opentelemetry import propagate
from ray import tune
from ray._private.worker import global_worker
from ray.experimental import internal_kv
from ray.tune.result import TRIAL_INFO

import otel_ml
from otel_ml.integrations.ray_place import await_call


class Trial(tune.Trainable):  # type: ignore[misc] # Ray tells no types
    """A trial that goes on where a checkpoint says, and cleans up."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin."""
        self.at = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Be another trial, or this one with another configuration."""
        self.at = new_config.get("at", 0)
        return True

    def step(self) -> dict[str, Any]:
        """Train."""
        otel_ml.log({"loss": 10 * self.config["rate"] + self.at}, step=self.at)
        self.at += 1
        return {}

    def cleanup(self) -> None:
        """Say the last word."""
        otel_ml.log({"cleaned": 1.0}, step=self.at)


class Actor:
    """The process as Ray has it."""

    def __init__(self) -> None:
        self.function = ""
        self.trainable = Trial.__new__(Trial)
        global_worker.actors["the-actor"] = self.trainable
        context = SimpleNamespace(
            get_actor_id=lambda: "the-actor",
            get_worker_id=lambda: "the-worker",
            get_job_id=lambda: "the-job",
            get_task_function_name=lambda: self.function,
            runtime_env={},
        )
        ray.get_runtime_context = lambda: context
        internal_kv._internal_kv_get = lambda *_, **__: None  # the store of a cluster, which is not here
        internal_kv._internal_kv_list = lambda *_, **__: []  # the same
        internal_kv._internal_kv_put = lambda *_, **__: False  # the same
        await_call()

    def call(self, method: str, *arguments: Any) -> None:
        """Do what a remote call asks for."""
        self.function = f"Trial.{method}"
        propagate.extract({})
        getattr(self.trainable, method)(*arguments)

    def train(self, method: str, trial: int, **config: Any) -> None:
        """Be a trial for two steps."""
        info = SimpleNamespace(trial_name=f"Trial_{trial}", trial_id=f"t_{trial}", trial_resources=None)
        self.call(method, {**config, TRIAL_INFO: info})
        self.call("train")
        self.call("train")


def carried() -> dict[str, str]:
    """Return what a call that this process makes takes along."""
    found: dict[str, str] = {}
    propagate.inject(found)
    return found
