"""What the job wrote down against what each backend stored."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tests.chaos.job import RANKS, Job, Life
from tests.chaos.steps import AXES, file_of
from tests.e2e.jobs import BACKENDS, answer_of

SAFE_S = 0.2
"""What was recorded so long before a `kill -9` must be there (issue 4)."""

VALUES_A_STEP = 3
NAMES = {"trainer": "tokens", "generator": "generator/rollout/tokens"}


@dataclass
class Table:
    """What `make chaos` prints."""

    recorded: int = 0
    delivered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    duplicated: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    amended: int = 0
    too_late: int = 0
    superseded: int = 0
    stall_s: float = 0.0
    stall_without_s: float = 0.0


Step = tuple[str, int]
"""(role, step)."""


def compare(job: Job) -> Table:
    table = Table()
    must: dict[Step, set[int]] = defaultdict(set)
    may: dict[Step, set[int]] = defaultdict(set)
    for life in job.lives:
        for moment, step in begun(job, life, table):
            if life.role == "trainer" and owner(job.starts, step) != life.attempt:
                continue
            is_safe = life.killed_at is None or moment < life.killed_at - SAFE_S
            (must if is_safe else may)[life.role, step].add(life.rank)
    [run] = {path.parent for path in job.runs.glob("*/*/metrics.jsonl")}
    stored = {backend: answer_of(backend, run) for backend in BACKENDS}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    check(lines, must, may, table)
    rows = {backend: rows_of(answer) for backend, answer in stored.items()}
    # MLflow stores a point once: one that two attempts share, to the millisecond, is the same one there.
    rows["mlflow"] = Counter({row: rows["jsonl"].get(row, n) for row, n in rows["mlflow"].items()})
    for backend in ("tensorboard", "mlflow", "wandb"):
        table.lost[backend] = (rows["jsonl"] - rows[backend]).total()
        table.duplicated[backend] = (rows[backend] - rows["jsonl"]).total()
        for row in [*(rows["jsonl"] - rows[backend]), *(rows[backend] - rows["jsonl"])][:5]:
            table.examples.append(f"{backend}: {row} {rows['jsonl'][row]} times in jsonl, {rows[backend][row]} here")
    numbers = [line["seq"] for line in lines if "seq" in line]
    table.duplicated["jsonl, seq"] = len(numbers) - len(set(numbers))
    summary = stored["jsonl"]["summary"]
    table.amended, table.too_late, table.superseded = (
        int(summary.get(f"otel_ml/{name}", 0)) for name in ("amended", "too_late", "superseded")
    )
    return table


def owner(starts: list[int], step: int) -> int:
    """Return the attempt whose values count at `step`: the newest that began at or below it."""
    return max(attempt for attempt, first in enumerate(starts) if first <= step)


def begun(job: Job, life: Life, table: Table) -> list[tuple[float, int]]:
    file = file_of(job.steps, life.role, life.rank, life.process.pid)
    if not file.exists():
        return []
    found = []
    for line in file.read_text().splitlines():
        moment, step, took, plain = line.split()
        found.append((float(moment), int(step)))
        table.recorded += VALUES_A_STEP
        if not any(began - 0.5 <= float(moment) <= ended + 0.5 for began, ended in life.stopped):
            table.stall_s = max(table.stall_s, float(took))
            table.stall_without_s = max(table.stall_without_s, float(plain))
    return found


def check(lines: list[dict], must: dict[Step, set[int]], may: dict[Step, set[int]], table: Table) -> None:
    """Each rank adds one digit of the sum, in base 4: how often it was counted. The last row of a step counts."""
    shown: dict[Step, int] = {}
    rows: Counter[tuple[str, int, int]] = Counter()
    for line in lines:
        name = NAMES.get(line.get("role", ""))
        if name in line.get("values", ()):
            shown[line["role"], line["step"]] = int(line["values"][name])
            rows[line["role"], line["step"], line["attempt"]] += "amendment" not in line
    table.duplicated["rows of a step"] = sum(count - 1 for count in rows.values())
    for role, step in sorted(must.keys() | may.keys() | shown.keys()):
        value = shown.get((role, step), 0)
        for rank in range(RANKS[role]):
            counted = value // 4**rank % 4
            if counted < (rank in must[role, step]):
                table.lost["jsonl"] += 1
            elif counted > (rank in must[role, step] or rank in may[role, step]):
                table.duplicated["jsonl"] += 1
            else:
                table.delivered += counted
                continue
            if len(table.examples) < 40:
                table.examples.append(f"{role} {AXES[role]} {step} rank {rank} counted {counted} times")


def rows_of(answer: dict) -> Counter[tuple[str, int, float]]:
    rows = [*answer["scalars"], *answer.get("amendments", [])]
    return Counter((name, step, round(float(value), 9)) for name, _, step, value, *_ in rows if name in NAMES.values())
