"""What reinforcement learning is watched by: one table of names, one helper for each row."""

from __future__ import annotations

from otel_ml.diagnostics.rl.buffer import buffer_read, buffer_state, buffer_write, evicted
from otel_ml.diagnostics.rl.coordination import (
    batch_creation,
    idle,
    model_loading,
    synchronization,
    tokenization,
    weight_pull,
    weight_push,
)
from otel_ml.diagnostics.rl.engine import ReplicaWatch, generated, kv_cache, requests, sampling_parameters
from otel_ml.diagnostics.rl.samples import batch_reward, episode, groups, sequence_lengths
from otel_ml.diagnostics.rl.table import ROWS, Row, markdown
from otel_ml.diagnostics.rl.training import (
    PolicyUpdates,
    advantages,
    clip_fractions,
    entropy,
    kl,
    policy_staleness,
    returns,
    state_values,
)

__all__ = [
    "ROWS",
    "PolicyUpdates",
    "ReplicaWatch",
    "Row",
    "advantages",
    "batch_creation",
    "batch_reward",
    "buffer_read",
    "buffer_state",
    "buffer_write",
    "clip_fractions",
    "entropy",
    "episode",
    "evicted",
    "generated",
    "groups",
    "idle",
    "kl",
    "kv_cache",
    "markdown",
    "model_loading",
    "policy_staleness",
    "requests",
    "returns",
    "sampling_parameters",
    "sequence_lengths",
    "state_values",
    "synchronization",
    "tokenization",
    "weight_pull",
    "weight_push",
]

synchronisation = synchronization  # the former spelling
tokenisation = tokenization  # the former spelling
