"""The one table of what reinforcement learning records: helper, name, unit, reduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from otel_ml.diagnostics.measure import Measure, Measures

__all__ = ["ROWS", "Row", "extent_measures", "markdown", "measure"]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric.

    Attributes:
        helper: the function or method of `otel_ml.diagnostics.rl` that records it.
        measure: name, unit, reduction and meaning.
    """

    helper: str
    measure: Measure

    @property
    def reduction(self) -> str:
        """In the grammar of docs/protocol.md §2.8."""
        across = ",".join(self.measure.reduce)
        return f"{self.measure.within}>{across}" if self.measure.within else across

    @property
    def convention(self) -> str:
        """The name in the form of OpenTelemetry's proposal `rl.*`, whose phases are loop, sample, train and sync."""
        name = self.measure.name
        dotted = name.removeprefix("time/").replace("/", ".")
        return f"{dotted}.duration" if name.startswith("time/") else dotted


_MEAN, _SUM, _MIN, _MAX = ("mean",), ("sum",), ("min",), ("max",)
_SPREAD = ("mean", "min", "max", "p50", "p99")


def _row(
    helper: str, name: str, unit: str, reduce: tuple[str, ...], description: str, within: str | None = None
) -> Row:
    return Row(helper, Measure(name, unit, reduce, description, within))


def _three(helper: str, name: str, what: str) -> tuple[Row, ...]:
    return (
        _row(helper, name, "1", _MEAN, f"Mean {what}, each element counted once."),
        _row(helper, f"{name}/min", "1", _MIN, f"Smallest {what}."),
        _row(helper, f"{name}/max", "1", _MAX, f"Largest {what}."),
    )


def _timer(helper: str, name: str, what: str) -> Row:
    return _row(helper, f"time/{name}", "s", ("mean", "max"), what, "sum")


ROWS: tuple[Row, ...] = (
    *_three("advantages", "rl/train/advantage", "advantage"),
    *_three("returns", "rl/train/return", "return"),
    *_three("state_values", "rl/train/value", "value"),
    *_three("kl", "rl/train/kl", "KL divergence from the reference"),
    _row("entropy", "rl/train/entropy", "nat", _MEAN, "Entropy of the policy, per token or action."),
    *_three("clip_fractions", "rl/train/ratio", "probability ratio"),
    _row("clip_fractions", "rl/train/clip_fraction_low", "1", _MEAN, "Ratios below the lower clip."),
    _row("clip_fractions", "rl/train/clip_fraction_high", "1", _MEAN, "Ratios above the upper clip."),
    _row(
        "PolicyUpdates.updated", "rl/train/update_frequency", "{update}/s", _MEAN, "Updates of the policy per second."
    ),
    _row("PolicyUpdates.updated", "rl/train/update_magnitude", "1", _MEAN, "L2 norm of the change of parameters."),
    _row("policy_staleness", "rl/train/staleness", "{version}", _SPREAD, "Versions the policy is ahead of a sample."),
    _row("batch_reward", "rl/sample/reward", "1", ("mean", "min", "max", "std"), "Reward of a sample."),
    _row("batch_reward", "rl/sample/correct", "1", _MEAN, "Samples whose answer is correct."),
    _row("batch_reward", "rl/sample/reward/correct", "1", _MEAN, "Reward of correct samples."),
    _row("batch_reward", "rl/sample/reward/incorrect", "1", _MEAN, "Reward of incorrect samples."),
    _row("episode", "rl/sample/episode_reward", "1", ("mean", "min", "max"), "Sum of rewards of an episode."),
    _row("episode", "rl/sample/episode_length", "{step}", ("mean", "min", "max"), "Steps of an episode."),
    _row("groups", "rl/sample/group_reward_std", "1", _MEAN, "Deviation of reward inside a group of one prompt."),
    _row("groups", "rl/sample/group_uniform", "1", _MEAN, "Groups of equal rewards, which teach nothing."),
    _row("sequence_lengths", "rl/sample/sequence_length", "{token}", _SPREAD, "Tokens of a sequence."),
    _row("sequence_lengths", "rl/sample/sequence_length/distribution", "{token}", ("histogram",), "The same."),
    _timer("tokenization", "rl/sample/tokenisation", "Turning text into tokens."),
    _row("sampling_parameters", "rl/sample/temperature", "1", _MEAN, "Temperature.", "last"),
    _row("sampling_parameters", "rl/sample/top_p", "1", _MEAN, "Nucleus.", "last"),
    _row("sampling_parameters", "rl/sample/top_k", "{token}", _MEAN, "Tokens that are sampled from.", "last"),
    _row("sampling_parameters", "rl/sample/max_tokens", "{token}", _MEAN, "Longest answer allowed.", "last"),
    _row("generated", "rl/engine/token_rate", "{token}/s", _SUM, "Tokens per second of all replicas.", "mean"),
    _row("requests", "rl/engine/requests_running", "{request}", ("sum", "max"), "Requests in work.", "last"),
    _row("requests", "rl/engine/queue_depth", "{request}", ("sum", "max"), "Requests that wait.", "last"),
    _row("kv_cache", "rl/engine/kv_cache_size", "By", _SUM, "Size of the KV cache.", "last"),
    _row("kv_cache", "rl/engine/kv_cache_utilisation", "1", ("mean", "max"), "Part of it in use.", "last"),
    _row("kv_cache", "rl/engine/kv_cache_miss_rate", "1", _MEAN, "Look-ups that missed."),
    _row("ReplicaWatch.failed", "rl/engine/replica_failures", "{failure}", _SUM, "Replicas that failed."),
    _row("ReplicaWatch.recovered", "rl/engine/recovery_time", "s", ("mean", "max"), "From a failure to recovery."),
    _timer("model_loading", "rl/loop/model_loading", "Loading a model."),
    _timer("idle", "rl/loop/idle", "Waiting for another role; the role is in front of the name."),
    _timer("batch_creation", "rl/loop/batch_creation", "Making a batch of samples."),
    _timer("weight_push", "rl/sync/push", "Giving weights away."),
    _timer("weight_pull", "rl/sync/pull", "Taking weights over."),
    _timer("synchronization", "rl/sync/overhead", "Waiting for others to be in the same place."),
    _row("buffer_state", "rl/buffer/size", "{sample}", _SUM, "Samples in the buffer.", "last"),
    _row("buffer_state", "rl/buffer/utilisation", "1", _MEAN, "Part of its capacity in use.", "last"),
    _row("buffer_state", "rl/buffer/queue", "{request}", _SUM, "Requests that wait for the buffer.", "last"),
    _row("evicted", "rl/buffer/evicted", "{sample}", _SUM, "Samples thrown out unread."),
    _row("buffer_write", "rl/buffer/write_throughput", "{sample}/s", _MEAN, "Samples per second of writing."),
    _row("buffer_read", "rl/buffer/read_throughput", "{sample}/s", _MEAN, "Samples per second of reading."),
    _row("buffer_read", "rl/buffer/retrieval_latency", "s", ("mean", "p50", "p99"), "Duration of one read."),
)
"""Everything `otel_ml.diagnostics.rl` records."""

_BY_NAME = {row.measure.name: row.measure for row in ROWS}


def measure(name: str) -> Measure:
    """Return the row's measure."""
    return _BY_NAME[name]


@cache
def extent_measures(name: str) -> Measures:
    """Return what is recorded of many values: the mean by its `name`, and `min` and `max`."""
    return Measures(measure(name), measure(f"{name}/min"), measure(f"{name}/max"), prefix=f"{name}/")


def markdown() -> str:
    """Return the table as it stands in the documentation."""
    rows = (
        f"| `{row.helper}` | `{row.measure.name}` | {row.measure.unit} | `{row.reduction}` | `{row.convention}` | "
        f"{row.measure.description} |"
        for row in ROWS
    )
    return "\n".join(["| helper | name | unit | reduction | as `rl.*` | meaning |", "|---|---|---|---|---|---|", *rows])
