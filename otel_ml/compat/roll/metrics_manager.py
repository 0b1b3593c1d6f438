"""`MetricsManager`: what a pipeline gathers in a step, under the documented names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.roll.families import group_metrics, token_metrics, validation_metrics, value_metrics
from otel_ml.compat.roll.reducing import reduce_metrics
from otel_ml.compat.tracking.unrecordable_arguments import report_unrecordable

__all__ = ["MetricsManager"]


class MetricsManager:
    """Gathers metrics; `get_metrics()` goes to `tracker.log()`.

    Attributes:
        timers: name → object with `mean_throughput` (tokens/s) and `mean` (s), such as those of Ray.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, Any] = {}
        self.domain_metrics: dict[str, dict[str, Any]] = {}
        self.timers: dict[str, Any] = {}

    def add_metric(self, name: str, value: Any) -> None:
        """Add one."""
        self.metrics[name] = value

    def add_metrics(self, metrics_dict: Mapping[str, Any]) -> None:
        """Add several."""
        self.metrics.update(metrics_dict)

    def add_reduced_metrics(
        self, metrics_dict: Mapping[str, Any], prefix: str = "", reduce_func: Callable[[Any], Any] = np.mean
    ) -> None:
        """Add several whose values are lists, reduced as their keys say."""
        reduced = reduce_metrics(dict(metrics_dict), reduce_func)
        self.metrics.update({f"{prefix}/{key}" if prefix else key: value for key, value in reduced.items()})

    def add_domain_metrics(self, domain: str, metrics_dict: Mapping[str, Any]) -> None:
        """Add several as `domain/key`."""
        if metrics_dict:
            self.domain_metrics.setdefault(domain, {}).update(metrics_dict)

    def add_system_metrics(
        self,
        global_step: int,
        batch_size: int,
        resource_manager: Any = None,
        actor_infer: Any = None,
        actor_train: Any = None,
    ) -> None:
        """Add `system/global_step`, `batch_size`, `samples`, and tokens/s of each timer; per GPU and per DP rank."""
        # ROLL's steps begin at 0: after step 0 there is one batch of samples.
        system = {"global_step": global_step, "batch_size": batch_size, "samples": (global_step + 1) * batch_size}
        self.metrics.update({f"system/{name}": value for name, value in system.items()})
        # Suffix of the name → attribute of whoever has so many.
        of_job, of_cluster = {"gpu": "num_gpus"}, {"gpu": "world_size", "dp": "dp_size"}
        places = {
            "tps": ("system/tps", resource_manager, of_job),
            "actor_infer": ("system/actor_infer/tps", actor_infer, of_cluster),
            "actor_infer_response": ("system/actor_infer/response/tps", actor_infer, of_cluster),
            "actor_train": ("system/actor_train/tps", actor_train, of_cluster),
        }
        for name, timer in self.timers.items():
            throughput = getattr(timer, "mean_throughput", None)
            if throughput is None:
                continue
            # ROLL's documentation has `system/tps`, its code `system/tps/tps`.
            self.metrics["system/tps" if name == "tps" else f"system/{name}/tps"] = throughput
            if hasattr(timer, "mean"):
                self.metrics[f"system/time/{name}_mean"] = timer.mean
            title, owner, counts = places.get(name, ("", None, {}))
            for suffix, attribute in counts.items():
                if count := getattr(owner, attribute, None):
                    self.metrics[f"{title}_{suffix}"] = throughput / count

    def add_timer_metrics(self, timer_dict: Mapping[str, Any]) -> None:
        """Add `time/<name>`: seconds, or the `last` of a timer; one that has not run is left out."""
        for name, timer in timer_dict.items():
            seconds = getattr(timer, "last", timer)
            # NaN is what a timer of codetiming has as `last` before it has run.
            if isinstance(seconds, (int, float)) and seconds == seconds:
                self.metrics[f"time/{name}"] = seconds

    def add_token_metrics(self, batch: Any, prefix: str = "tokens") -> dict[str, float]:
        """Add lengths of prompts and responses; return them."""
        return self._added(token_metrics, batch, prefix)

    def add_values_metrics(self, batch: Any, prefix: str = "critic") -> dict[str, float]:
        """Add scores, rewards, advantages, returns and values; return them."""
        return self._added(value_metrics, batch, prefix)

    def add_group_metrics(self, batch: Any, n_sample: int, prefix: str = "group") -> dict[str, float]:
        """Add how the samples of one prompt differ; return it."""
        return self._added(group_metrics, batch, n_sample, prefix)

    def add_validation_metrics(self, scores: Any, tags: Any = None) -> dict[str, float]:
        """Add `val/score/mean`, `max`, `min`, and `val/<tag>/score/…` of each environment; return them."""
        return self._added(validation_metrics, scores, tags)

    def add_all_metrics(
        self,
        global_step: int,
        batch: Any,
        n_sample: int = -1,
        resource_manager: Any = None,
        actor_infer: Any = None,
        actor_train: Any = None,
    ) -> None:
        """Add the families system, tokens and values, and groups where a prompt has several samples.

        `num_return_sequences` of the batch's `generation_config` says how many these are, else `n_sample`.
        """
        size = len(batch.batch["scores"])
        self.add_system_metrics(global_step, size, resource_manager, actor_infer, actor_train)
        self.add_token_metrics(batch)
        self.add_values_metrics(batch)
        generation = (getattr(batch, "meta_info", None) or {}).get("generation_config") or {}
        self.add_group_metrics(batch, generation.get("num_return_sequences", n_sample))

    def add_domain_all_metrics(self, global_step: int, batch_grouped: Mapping[str, Any]) -> None:
        """Add values and tokens of each domain's batch as `domain/key`."""
        del global_step
        for domain, batch in batch_grouped.items():
            for family, prefix in ((value_metrics, "critic"), (token_metrics, "tokens")):
                self.add_domain_metrics(domain, _found(family, batch, prefix))

    def get_metrics(self) -> dict[str, Any]:
        """Return all of them."""
        of_domains = {f"{name}/{key}": v for name, found in self.domain_metrics.items() for key, v in found.items()}
        return {**self.metrics, **of_domains}

    def clear_metrics(self) -> None:
        """Forget them, for the next step."""
        self.metrics, self.domain_metrics = {}, {}

    def _added(self, family: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
        found = _found(family, *arguments)
        self.metrics.update(found)
        return found


def _found(family: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Return a family of metrics; nothing of a batch that lacks what it needs, which is reported once."""
    try:
        return family(*arguments)
    except Exception as error:  # noqa: BLE001 (a batch of the program's fails in any way)
        report_unrecordable(family.__name__, error, ", ".join(safe_repr(one, 40) for one in arguments))
        return {}
