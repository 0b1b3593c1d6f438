"""Asynchronous reinforcement learning: a trainer, three generators and a replay buffer, as Ray actors on a CPU.

    python examples/async_rl.py

A small policy learns sums modulo 3 by PPO while generators go on with the version they have. Generator 1 takes four
times as long and generator 0 fails once. Generator 2 once gets its weights from a mirror, which is slow and has the
first ones, and goes on with these for 36 versions. Expected: reward rises, but falls while generator 2 is stale; every
name of `otel_ml.diagnostics.rl` is in the run; and what is wrong is found from the run alone:

    reward: 0.… → 4.…
    slow: generator 1 (… tokens/s, others …)
    stale: generator 2 (… versions behind, others …)
    without it: … versions newer
    failures: 1, recovered in … s
    rl/sample/reward fell at step 6… from 3.… to 2.… (…).
    Caused: the samples of generator 2 had 0.… instead of 3.…: it served version 0 since step 6… and its rl/sync/pull
    took …
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import ray
import torch

import otel_ml
from otel_ml.diagnostics import rl
from otel_ml.types import Context

UPDATES, EPISODES, GROUP, LONGEST, GENERATORS = 110, 96, 4, 6, 3
SLOW, STALE, FAILS = 1, 2, 0
MIRRORED, PATIENCE, MIRROR_S = 60, 36, 0.5  # the version at which the mirror is asked, versions until the next pull
QUESTIONS = [f"{a}+{b}=" for a in range(5) for b in range(5)]
LETTERS = "0123456789+="


class Policy(torch.nn.Module):
    """Answers a question of four letters with one of three numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = torch.nn.Embedding(len(LETTERS), 16)
        self.body = torch.nn.Linear(4 * 16, 64)
        self.answer = torch.nn.Linear(64, 3)
        self.value = torch.nn.Linear(64, 1)

    def encode(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.body(self.letters(tokens).flatten(1)))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        encoded = self.encode(tokens)
        return torch.distributions.Categorical(logits=self.answer(encoded)), self.value(encoded).squeeze(1)


@dataclass(frozen=True)
class Episode:
    """Questions until the first wrong answer; `context` says which generator answered, and with which policy."""

    context: Context
    tokens: list[list[int]]
    answers: list[int]
    log_probs: list[float]
    rewards: list[float]


@ray.remote
class ReplayBuffer:
    """Holds episodes until they are read, and the newest weights."""

    def __init__(self, capacity: int) -> None:
        otel_ml.init(role="replay_buffer")
        otel_ml.set_step(0)
        self.capacity = capacity
        self.episodes: deque[Episode] = deque()
        self.weights: tuple[Context | None, list[Any]] = (None, [])
        self.changed = asyncio.Condition()
        self.waiting = self.reads = 0
        self.stopped = False

    async def publish(self, context: Context, weights: list[Any]) -> None:
        self.weights = (context, weights)

    async def version(self) -> int:
        return -1 if self.weights[0] is None else self.weights[0].version

    async def newest(self) -> tuple[Context, list[Any]]:
        return self.weights

    async def write(self, episodes: list[Episode]) -> bool:
        async with self.changed:
            self.episodes.extend(episodes)
            excess = max(len(self.episodes) - self.capacity, 0)
            for _ in range(excess):
                self.episodes.popleft()
            rl.evicted(excess, reason="full")
            rl.buffer_state(size=len(self.episodes), capacity=self.capacity, queued=self.waiting)
            self.changed.notify_all()
        return not self.stopped

    async def read(self, count: int) -> list[Episode]:
        async with self.changed:
            self.waiting += 1
            await self.changed.wait_for(lambda: len(self.episodes) >= count)
            self.waiting -= 1
            otel_ml.set_step(self.reads)
            self.reads += 1
            return [self.episodes.popleft() for _ in range(count)]

    async def stop(self) -> None:
        self.stopped = True

    async def end(self) -> None:
        otel_ml.shutdown()


@ray.remote
class Generator:
    """Answers questions with the newest policy it has."""

    def __init__(self, rank: int, buffer: Any) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(rank)
        otel_ml.init(role="generator", rank=rank, world_size=GENERATORS)
        otel_ml.set_step(0, axis="rollout")
        self.rank, self.buffer = rank, buffer
        self.rollout, self.version = 0, -1
        self.has_failed = self.has_asked_mirror = False
        self.asks_at = 0
        self.mirror: tuple[Context, Any] | None = None
        self.cache: OrderedDict[str, torch.Tensor] = OrderedDict()
        with rl.model_loading():
            self.policy = Policy()

    def run(self) -> None:
        goes_on = True
        while goes_on:
            otel_ml.set_step(self.rollout, axis="rollout")
            self.rollout += 1
            if self.rank == FAILS and self.rollout == 20 and not self.has_failed:
                self.has_failed = True
                raise RuntimeError("the engine is lost")
            self.refresh()
            with otel_ml.timed("generate"):
                episodes = self.generate()
            with rl.buffer_write(len(episodes)):
                goes_on = ray.get(self.buffer.write.remote(episodes))

    def end(self) -> None:
        otel_ml.shutdown()

    def refresh(self) -> None:
        """Take new weights, if there are any: once from the mirror, which is slow and has the first ones."""
        with rl.synchronisation():
            newest = ray.get(self.buffer.version.remote())
        if newest < self.asks_at:
            return
        with rl.weight_pull():
            if self.rank == STALE and newest >= MIRRORED and not self.has_asked_mirror and self.mirror is not None:
                time.sleep(MIRROR_S)
                context, weights = self.mirror
                self.has_asked_mirror, self.asks_at = True, newest + PATIENCE
            else:
                context, (reference,) = ray.get(self.buffer.newest.remote())
                weights, self.asks_at = ray.get(reference), context.version + 1
            otel_ml.consumed(context)
            self.mirror = self.mirror or (context, weights)
            self.version = context.version
            self.policy.load_state_dict(weights)
        self.cache.clear()

    def generate(self) -> list[Episode]:
        began = time.perf_counter()
        temperature = max(1.0 - self.rollout / 1000, 0.7)
        rl.sampling_parameters(temperature=temperature, top_p=1.0, top_k=3, max_tokens=LONGEST)
        misses = lookups = 0
        episodes = []
        for _ in range(4):
            first = int(torch.randint(len(QUESTIONS), ()))
            for _ in range(GROUP):
                episode, missed = self.episode(first, temperature)
                episodes.append(episode)
                misses, lookups = misses + missed, lookups + len(episode.answers)
            rl.groups([[sum(episode.rewards) for episode in episodes[-GROUP:]]])
        if self.rank == SLOW:
            time.sleep(3 * (time.perf_counter() - began))
        lengths = [5 * len(episode.answers) for episode in episodes]
        rl.sequence_lengths(lengths)
        rl.requests(running=len(episodes), queued=0, replica=str(self.rank))
        size = sum(entry.numel() * entry.element_size() for entry in self.cache.values())
        rl.kv_cache(size=size, utilisation=len(self.cache) / 16, misses=misses, lookups=lookups)
        rl.generated(sum(lengths), seconds=time.perf_counter() - began, replica=str(self.rank))
        return episodes

    def episode(self, first: int, temperature: float) -> tuple[Episode, int]:
        found = Episode(otel_ml.context(version=self.version), [], [], [], [])
        misses, index = 0, first
        while len(found.answers) < LONGEST and 0.0 not in found.rewards:
            question = QUESTIONS[index]
            with rl.tokenisation():
                tokens = [LETTERS.index(letter) for letter in question]
            misses += question not in self.cache
            answer, log_prob = self.answer(question, tokens, temperature)
            found.tokens.append(tokens)
            found.answers.append(answer)
            found.log_probs.append(log_prob)
            found.rewards.append(float(answer == (int(question[0]) + int(question[2])) % 3))
            index = int(torch.randint(len(QUESTIONS), ()))
        rl.episode(sum(found.rewards), len(found.answers))
        return found, misses

    def answer(self, question: str, tokens: list[int], temperature: float) -> tuple[int, float]:
        with torch.no_grad():
            if question not in self.cache:  # what the engine keeps of a question: 16 of the 25 fit
                self.cache[question] = self.policy.encode(torch.tensor([tokens]))
                if len(self.cache) > 16:
                    self.cache.popitem(last=False)
            logits = self.policy.answer(self.cache[question])
            chosen = torch.distributions.Categorical(logits=logits / temperature).sample()
            return int(chosen), float(torch.log_softmax(logits, dim=1)[0, chosen])


class Trainer:
    """PPO with a value baseline."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        with rl.model_loading():
            self.policy = Policy()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-2)
        self.updates = rl.PolicyUpdates()

    def batch(self, episodes: list[Episode]) -> dict[str, torch.Tensor]:
        with rl.batch_creation():
            returns = []
            for episode in episodes:
                value = 0.0
                later = [value := reward + 0.5 * value for reward in reversed(episode.rewards)]
                returns += reversed(later)
            return {
                "tokens": torch.tensor([tokens for episode in episodes for tokens in episode.tokens]),
                "answers": torch.tensor([answer for episode in episodes for answer in episode.answers]),
                "log_probs": torch.tensor([one for episode in episodes for one in episode.log_probs]),
                "returns": torch.tensor(returns),
            }

    def update(self, batch: dict[str, torch.Tensor]) -> None:
        before = torch.nn.utils.parameters_to_vector(self.policy.parameters()).detach()
        for _ in range(2):
            distribution, values = self.policy(batch["tokens"])
            advantages = (batch["returns"] - values).detach()
            ratio = (distribution.log_prob(batch["answers"]) - batch["log_probs"]).exp()
            clipped = ratio.clamp(0.8, 1.2)
            surrogate = torch.minimum(ratio * advantages, clipped * advantages).mean()
            entropy = distribution.entropy()
            value_loss = (values - batch["returns"]).square().mean()
            loss = -surrogate + 0.5 * value_loss - 0.01 * entropy.mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        otel_ml.log({"loss": loss})
        rl.advantages(advantages)
        rl.returns(batch["returns"])
        rl.state_values(values)
        rl.entropy(entropy)
        rl.clip_fractions(ratio.detach())
        rl.kl((ratio - 1 - ratio.log()).detach())  # Schulman's estimator of KL to the policy that generated
        after = torch.nn.utils.parameters_to_vector(self.policy.parameters()).detach()
        self.updates.updated(magnitude=(after - before).norm())


def train(buffer: Any, generators: list[Any]) -> None:
    trainer, watch = Trainer(), rl.ReplicaWatch()
    runs: list[Any] = []
    failed_at: dict[int, int] = {}  # rank → version, until it answers with a later one
    for version in range(UPDATES):
        otel_ml.set_step(version)
        otel_ml.set_step(version, axis="policy_version")
        with rl.weight_push():
            # In a list, a reference travels as it is: generators fetch the weights, the buffer does not.
            ray.get(buffer.publish.remote(otel_ml.context(version=version), [ray.put(trainer.policy.state_dict())]))
        runs = runs or [generator.run.remote() for generator in generators]  # there are weights now
        with rl.idle(), rl.buffer_read(EPISODES):
            episodes = ray.get(buffer.read.remote(EPISODES))
        for rank, run in enumerate(runs):
            if ray.wait([run], timeout=0)[0]:
                watch.failed(str(rank), reason_of(run))
                failed_at[rank] = version
                runs[rank] = generators[rank].run.remote()
        contexts = [one.context for one in episodes]
        for rank in {one.rank for one in contexts if one.version > failed_at.get(one.rank, UPDATES)}:
            watch.recovered(str(rank))
            del failed_at[rank]
        rewards = [sum(episode.rewards) for episode in episodes]
        rl.batch_reward(rewards, correct=[reward == LONGEST for reward in rewards], contexts=contexts)
        rl.policy_staleness(contexts)
        trainer.update(trainer.batch(episodes))
    ray.get(buffer.stop.remote())
    ray.get(runs)


def reason_of(run: Any) -> str:
    try:
        ray.get(run)
    except ray.exceptions.RayTaskError as error:
        return str(error.cause)
    return "it ended"


def findings(run: otel_ml.Run) -> int:
    """Print what the service found and the curves that show it; return the step at which a generator became stale."""
    rows = otel_ml.read(run)

    def mean(name: str) -> float:
        values = rows[name][1]
        return sum(values) / len(values)

    def mostly(name: str) -> int:
        return int(statistics.mode(rows[name][1]))

    rewards = rows["rl/sample/reward"][1]
    print(f"reward: {sum(rewards[:5]) / 5:.2f} → {sum(rewards[-5:]) / 5:.2f}")
    slow = mostly("generator/rollout/otel_ml/straggler/rank")
    rates = [mean(f"generator/rollout/rl/engine/token_rate/replica/{rank}") for rank in range(GENERATORS)]
    print(f"slow: generator {slow} ({rates.pop(slow):.0f} tokens/s, others {min(rates):.0f} to {max(rates):.0f})")
    stale = mostly("otel_ml/stale/generator/rank")
    behind = [mean(f"consumed/staleness/generator/{rank}") for rank in range(GENERATORS)]
    of_stale = f"{behind.pop(stale):.1f} versions behind"
    print(f"stale: generator {stale} ({of_stale}, others {min(behind):.1f}–{max(behind):.1f})")
    print(f"without it: {mean('otel_ml/stale/generator'):.1f} versions newer")
    failures = sum(rows["rl/engine/replica_failures"][1])
    print(f"failures: {failures:.0f}, recovered in {mean('rl/engine/recovery_time'):.3f} s")
    return next(
        step for step, behind in zip(*rows[f"consumed/staleness/generator/{STALE}"], strict=True) if behind > PATIENCE
    )


def main() -> None:
    torch.set_num_threads(1)
    run = otel_ml.init("async-rl", role="trainer")
    otel_ml.set_step(0)
    ray.init(num_cpus=1 + GENERATORS, include_dashboard=False, runtime_env={"env_vars": otel_ml.child_env()})
    buffer = ReplayBuffer.remote(capacity=4 * EPISODES)
    generators = [Generator.remote(rank, buffer) for rank in range(GENERATORS)]
    ray.get([generator.__ray_ready__.remote() for generator in generators])  # on a busy machine one may start late
    train(buffer, generators)
    ray.get([actor.end.remote() for actor in [*generators, buffer]])
    ray.shutdown()
    otel_ml.shutdown(timeout=30.0)
    until = time.monotonic() + 60.0  # on a busy machine what was acknowledged is written later
    while len(otel_ml.read(run).get("loss", ([], []))[0]) < UPDATES and time.monotonic() < until:
        time.sleep(0.5)
    stale_since = findings(run)
    sys.stdout.flush()
    why = [
        sys.executable,
        "-m",
        "otel_ml_service",
        "why",
        run.id,
        f"{stale_since - 12}-{stale_since + 20}",  # on a busy machine the generators are further behind
        "--metric",
        "rl/sample/reward",
    ]
    subprocess.run(why, check=True)


if __name__ == "__main__":
    main()
