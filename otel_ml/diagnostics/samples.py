"""Prompts with their responses and rewards: a panel for whoever watches, one growing table in the run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from otel_ml._internal.events.event_calls import log_table
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.steps.step import step_for
from otel_ml.never_raises import never_raises
from otel_ml.printable import printable
from otel_ml.warn_once import reporter

__all__ = ["log_samples"]

_KEPT = 1000
"""Rows of the table; older ones leave it. Every table that is logged is stored whole."""

_SHOWN = 600
"""Characters of a text in the panel."""

_BARS = "▁▂▃▄▅▆▇█"

COLUMNS = ("step", "prompt", "response", "reward")

_tables: dict[tuple[str, str], list[list[object]]] = {}
"""(run, name) → the rows of its table so far."""


class Sample(NamedTuple):
    """One row: `reward` is None where none was given."""

    prompt: str
    response: str
    reward: float | None


@never_raises
def log_samples(
    prompts: Iterable[object],
    responses: Iterable[object],
    rewards: Iterable[Any] | None = None,
    *,
    print: int = 10,  # noqa: A002 (how many to print)
    name: str = "samples",
    step: int | None = None,
    axis: str | None = None,
) -> None:
    """Record samples of a step: in a table that grows from step to step, and some of them on rank 0's console.

    What is printed goes from the worst to the best, evenly over their order by reward, so the worst, the median and the
    best are among it; with a histogram of all rewards. The table keeps the newest 1,000 rows; other ranks' tables are
    `<name>/rank_<r>`.

    Args:
        prompts: texts; anything else by its `str`.
        responses: as many.
        rewards: as many numbers, each may be a tensor of one element; or an array or tensor of them; or None. One that
            is NaN is printed last, if at all. Those on a device are waited for: what is printed needs them.
        print: at most so many are printed; 0 prints none, nor does `OTEL_ML_CONSOLE=off`.
        name: of the table.
        step: the current one by default.
        axis: of the step.
    """
    session = RUNTIME.current
    run = None if session is None else session.run
    if run is None or not recorder.enabled:
        return
    asked, answered = [str(prompt) for prompt in prompts], [str(response) for response in responses]
    given = [None] * len(asked) if rewards is None else _each(rewards)
    # Nobody can tell which belong together: none of them is recorded.
    if not len(asked) == len(answered) == len(given):
        reporter.drop(
            "bad_event",
            f"log_samples(): {len(asked)} prompts, {len(answered)} responses and "
            f"{'no' if rewards is None else len(given)} rewards were given. Expected equally many.",
        )
        return
    try:
        numbers = [None if reward is None else float(reward) for reward in given]
    except (TypeError, ValueError) as error:
        reporter.drop("bad_event", f"log_samples(): a reward is not a number: {error}. Expected one number a response.")
        return
    found = [*map(Sample, asked, answered, numbers)]
    place = step_for(step, axis, "log_samples()", 1)
    if place is None or not found:
        return
    # By run: a process may have several, one after the other or side by side.
    rows = _tables.setdefault((run.id, name), [])
    rows += [[place.index, *sample] for sample in found]
    del rows[:-_KEPT]
    log_table(name, rows, columns=COLUMNS, step=step, axis=axis)
    session = RUNTIME.current
    config = None if session is None else session.config
    if print > 0 and run.rank == 0 and config is not None and not config.is_quiet:
        show(found, print, title=f"{name}, step {place.index}" if place.index is not None else name)


def _each(rewards: Iterable[Any]) -> list[Any]:
    """Return the rewards one by one; an array of any shape that holds them, all at once, is flattened."""
    if hasattr(rewards, "detach"):
        rewards = rewards.detach().flatten().tolist()
    elif hasattr(rewards, "reshape"):
        rewards = rewards.reshape(-1).tolist()
    return list(rewards)


def chosen(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return at most `most` samples, evenly from the worst to the best; in their order where there are no rewards.

    Those whose reward is NaN are neither, and come after the best.

    Examples:
        >>> [sample.reward for sample in chosen([Sample("", "", r) for r in (3.0, 9.0, 1.0, 5.0, 7.0)], 3)]
        [1.0, 5.0, 9.0]
    """
    numbers = [sample for sample in samples if not _is_nan(sample)]
    ordered = sorted(numbers, key=lambda sample: sample.reward if sample.reward is not None else 0.0)
    if len(ordered) <= most:
        return [*ordered, *filter(_is_nan, samples)][:most]
    # Between one sample and itself there is no distance to divide.
    if most == 1:
        return [ordered[-1]]
    return [ordered[round(place * (len(ordered) - 1) / (most - 1))] for place in range(most)]


def _is_nan(sample: Sample) -> bool:
    return sample.reward is not None and math.isnan(sample.reward)


def histogram(rewards: Sequence[float], bins: int = 24) -> str:
    """Return the rewards' distribution as one line.

    Examples:
        >>> histogram([0.0, 0.0, 0.0, 1.0], bins=4)
        '0 █▁▁▃ 1'
    """
    low, high = min(rewards), max(rewards)
    if low == high:
        return f"all {low:g}"
    counts = [0] * bins
    by = 2.0 if math.isinf(high - low) else 1.0  # the difference of the largest doubles is infinite
    for reward in rewards:
        # The largest reward would be in a bin behind the last.
        counts[min(int((reward / by - low / by) / (high / by - low / by) * bins), bins - 1)] += 1
    top = max(counts)
    return f"{low:g} {''.join(_BARS[round(count / top * (len(_BARS) - 1))] for count in counts)} {high:g}"


def show(samples: Sequence[Sample], most: int, title: str) -> None:
    """Print at most `most` samples on stderr, with a histogram of all rewards."""
    from rich.console import Console, Group
    from rich.panel import Panel
    from rich.rule import Rule
    from rich.text import Text

    shown: list[Text | Rule] = []
    for sample in chosen(samples, most):
        reward = "" if sample.reward is None else f"   reward {sample.reward:g}"
        shown += [Rule(style="dim")] if shown else []
        shown.append(Text.assemble((_cut(sample.prompt), "cyan"), (reward, "bold")))
        shown.append(Text(_cut(sample.response)))
    finite = [sample.reward for sample in samples if sample.reward is not None and abs(sample.reward) < float("inf")]
    below = f"{len(samples)} samples" + (f", rewards {histogram(finite)}" if finite else "")
    try:
        Console(file=sys.stderr, highlight=False).print(Panel(Group(*shown), title=Text(title), subtitle=Text(below)))
    except (OSError, ValueError):
        return  # a closed stderr must not end a training run


def _cut(text: str) -> str:
    """Return what of a text a panel can hold; it comes from a model, so no control character of it acts."""
    lines = "\n".join(printable(line) for line in text.splitlines())
    return lines if len(lines) <= _SHOWN else f"{lines[:_SHOWN]}…"
