"""A generator of an RL job: 64 asyncio tasks, three versions of the policy in flight at once.

    python examples/async_generator.py

Each task says with `otel_ml.step()` to which policy version its records belong, so versions may overlap as they like.
Expected: on the axis `policy_version`, 12 rows, each with 32 `generator/policy_version/episodes`, their mean reward,
the sum of their tokens and the time that went into them (`…/time/generate`); no row is amended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import otel_ml

VERSIONS, PROMPTS, TASKS = 12, 32, 64


def tokens_of(version: int, prompt: int) -> int:
    return 16 + (7 * prompt + 3 * version) % 48


async def generate(version: int, prompt: int) -> float:
    await asyncio.sleep(tokens_of(version, prompt) / 1000)
    return version / VERSIONS + (prompt % 4) / 100


async def actor(work: Iterator[tuple[int, int]]) -> None:
    for version, prompt in work:
        with otel_ml.step(version, axis="policy_version"):
            with otel_ml.timed("generate"):
                reward = await generate(version, prompt)
            otel_ml.log({"reward": reward})
            otel_ml.log({"tokens": tokens_of(version, prompt), "episodes": 1}, reduce="sum")


async def main() -> None:
    # 64 tasks over 32 prompts a version: two versions are always in flight, with the stragglers of a third.
    work = ((version, prompt) for version in range(VERSIONS) for prompt in range(PROMPTS))
    with otel_ml.init("async-generator", role="generator"):
        await asyncio.gather(*(actor(work) for _ in range(TASKS)))


if __name__ == "__main__":
    asyncio.run(main())
