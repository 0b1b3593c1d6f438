"""What the job wrote down against what each backend stored."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_ml._internal.transport.spool import DISK_AGAIN_S
from otel_ml.wire.published_name import published_name
from tests.chaos.control import CONTROL
from tests.chaos.job import Job, Life, Span
from tests.chaos.layout import AXES, RANKS
from tests.chaos.pulse import lateness_s
from tests.chaos.stalls import Stall, stalls_in
from tests.chaos.steps import begun_in, file_of
from tests.chaos.stolen import absences_in
from tests.e2e.jobs import BACKENDS, answer_of

SAFE_S = 0.2
"""What was recorded so long before a `kill -9` must be there (issue 4)."""

VALUES_A_STEP = 3
TOKENS = {"trainer": "tokens", "generator": "generator/rollout/tokens"}
BESIDE = {role: {published_name(role, axis, name) for name in ("loss", "time/work")} for role, axis in AXES.items()}
"""What each rank records in a step besides its tokens; nothing in it says of which rank it is."""

HELD_UP_MS = 5.0
"""The longest that training may be held up by what is surely ours (docs/reliability.md)."""

EXAMPLES = 40

LEAKED = 4
"""Files that a rank may have more open while the disk is full: a connection that was lost and is made anew."""

Step = tuple[str, int]
"""(role, step)."""

Row = tuple[str, int, float]
"""(name, step, value)."""


@dataclass
class Table:
    """What a round has shown.

    Attributes:
        recorded: values the ranks recorded.
        checked: of the sums over ranks: how many (rank, step) were found where they must be.
        delivered: values of these: each of the names that a row of the step has.
        unsafe: (rank, step) that may be lost: killed within 200 ms, or with a full disk under the spool.
        unseen: (rank, step) of a former attempt that no row of that attempt has: a hop may have swallowed them, too.
        lost: by backend: (rank, step) that no sum has, rows of JSONL that the backend has not.
        duplicated: by backend: the same, once too often.
        wrong: what else is not as it must be.
        said_lost: values that the run says are lost.
        said_recorded: values that the run says were recorded.
        at_least: values that every process surely recorded.
        stall: the longest one, by what the machine had no part in.
        control: the same of a loop without otel_ml beside it.
    """

    recorded: int = 0
    checked: int = 0
    delivered: int = 0
    unsafe: int = 0
    unseen: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    duplicated: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    amended: int = 0
    too_late: int = 0
    superseded: int = 0
    said_lost: int = 0
    said_recorded: int = 0
    at_least: int = 0
    stalls: list[Stall] = field(default_factory=list)
    control: list[Stall] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        return not self.lost.total() and not self.duplicated.total() and not self.wrong

    def example(self, sentence: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(sentence)


@dataclass
class Expected:
    """Which ranks a step must have, and which it may have."""

    must: dict[Step, set[int]] = field(default_factory=lambda: defaultdict(set))
    may: dict[Step, set[int]] = field(default_factory=lambda: defaultdict(set))
    replaced: set[tuple[str, int, int, int]] = field(default_factory=set)
    """(role, step, attempt, rank) of what a newer attempt recorded anew."""


def compare(job: Job) -> Table:
    table = Table()
    expected = Expected()
    absences = absences_in(job.steps)
    for life in job.lives:
        expect(job, life, expected, table)
        file = file_of(job.steps, life.role, life.rank, life.process.pid).with_suffix(".stalls")
        stalls = stalls_in(file, absences)
        table.stalls += [stall for stall in stalls if not is_within(stall.at, life.stopped, 0.5)]
    table.control = stalls_in(job.steps / CONTROL, absences)
    check_stalls(table)
    runs = sorted({path.parent for path in job.runs.glob("*/*/metrics.jsonl")})
    if len(runs) != 1:
        table.wrong.append(f"{len(runs)} runs in {job.runs}, expected 1: {[run.name for run in runs]}")
        return table
    with ThreadPoolExecutor(2) as pool:
        stored = dict(zip(BACKENDS, pool.map(lambda backend: answer_of(backend, runs[0]), BACKENDS), strict=True))
    lines = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    check_sums(lines, expected, table)
    check_backends(stored, table)
    numbers = [line["seq"] for line in lines if "seq" in line]
    table.duplicated["jsonl, seq"] = len(numbers) - len(set(numbers))
    summary = stored["jsonl"]["summary"]
    table.amended, table.too_late, table.superseded = (
        int(summary.get(f"otel_ml/{name}", 0)) for name in ("amended", "too_late", "superseded")
    )
    check_account(summary, table, is_swallowed=job.is_swallowed)
    if job.leaked > LEAKED:
        table.wrong.append(f"a rank had {job.leaked} files more open at the end of a full disk than at its beginning")
    return table


def check_stalls(table: Table) -> None:
    """Training is never held up for long by what is surely ours; a loop without otel_ml that was, too, excuses it."""
    most_ms = max([HELD_UP_MS, *(stall.surely_own_ms for stall in table.control)])
    too_long = [stall.surely_own_ms for stall in table.stalls if stall.surely_own_ms > most_ms]
    if too_long:
        table.wrong.append(
            f"training was held up for more than {most_ms:.1f} ms {len(too_long)} times, at most {max(too_long):.1f} ms"
        )


def check_account(summary: Mapping[str, float], table: Table, *, is_swallowed: bool) -> None:
    """What the run says of itself: everything that is missing, and nothing that is not.

    Args:
        summary: the run's own.
        table: in which what is missing was counted; what the run says is lost is not a silent loss.
        is_swallowed: a hop acknowledged requests and did not pass them on.
    """
    said = {name: int(value) for name, value in summary.items() if name.startswith("otel_ml/dropped/")}
    table.said_lost = sum(count for name, count in said.items() if "events" not in name) + table.too_late
    table.said_recorded = int(summary.get("otel_ml/recorded", 0))
    missing = table.lost["jsonl"]
    if is_swallowed:
        table.lost["jsonl"] = max(0, missing - table.said_lost)
    most = VALUES_A_STEP * (missing + table.unsafe + is_swallowed * table.unseen)
    if table.said_lost > most:
        table.wrong.append(f"the run says that {table.said_lost} values are lost ({said}); at most {most} are")
    if not table.at_least <= table.said_recorded + table.said_lost <= table.recorded + table.said_lost:
        table.wrong.append(
            f"the run says that {table.said_recorded} values were recorded, and {table.said_lost} lost; "
            f"it were {table.at_least} to {table.recorded}"
        )


def expect(job: Job, life: Life, expected: Expected, table: Table) -> None:
    file = file_of(job.steps, life.role, life.rank, life.process.pid)
    pulse = file.with_suffix(".pulse")
    late_s = 0.0 if life.killed_at is None else lateness_s(pulse, life.killed_at)
    full = [
        (began - SAFE_S - lateness_s(pulse, began), ended + DISK_AGAIN_S + SAFE_S) for began, ended in job.spools_full
    ]
    begun = list(begun_in(file))
    for number, (_, step, recorded_at) in enumerate(begun, 1):
        table.recorded += VALUES_A_STEP
        is_cut = life.is_ended and number == len(begun)  # it was told to end in the middle of this one
        table.at_least += VALUES_A_STEP * (life.killed_at is None and not is_cut)
        if life.role == "trainer" and owner(job.starts, step) != life.attempt:
            expected.replaced.add((life.role, step, life.attempt, life.rank))
            continue
        is_young = life.killed_at is not None and recorded_at + late_s >= life.killed_at - SAFE_S
        is_safe = not is_cut and not is_young and not is_in_memory(recorded_at, life.gone_at, full)
        table.unsafe += not is_safe
        (expected.must if is_safe else expected.may)[life.role, step].add(life.rank)


def is_in_memory(at: float, gone_at: float | None, full: Iterable[Span]) -> bool:
    """Return whether a process that was gone while no spool could be written may have had it in memory alone.

    One that ends tries for its 5 s: a service that is stopped then takes nothing, either.
    """
    return gone_at is not None and any(began <= at and began <= gone_at <= ended for began, ended in full)


def owner(starts: list[int], step: int) -> int:
    """Return the attempt whose values count at `step`: the newest that began at or below it."""
    return max(attempt for attempt, first in enumerate(starts) if first <= step)


def is_within(at: float, spans: Iterable[Span], margin_s: float) -> bool:
    return any(began - margin_s <= at <= ended + margin_s for began, ended in spans)


def check_sums(lines: list[dict[str, Any]], expected: Expected, table: Table) -> None:
    """Each rank adds one digit of the sum, in base 4: how often it was counted. The last row of a step counts."""
    shown: dict[Step, int] = {}
    counted_in: dict[tuple[str, int, int], int] = {}
    beside: dict[Step, set[str]] = defaultdict(set)
    rows: Counter[tuple[str, int, int]] = Counter()
    for line in lines:
        role = line.get("role", "")
        name = TOKENS.get(role)
        if name is not None:
            beside[role, line["step"]].update(line.get("values", {}).keys() & BESIDE[role])
        if name in line.get("values", ()):
            shown[line["role"], line["step"]] = value = int(line["values"][name])
            counted_in[line["role"], line["step"], line["attempt"]] = value
            rows[line["role"], line["step"], line["attempt"]] += "amendment" not in line
    table.duplicated["rows of a step"] = sum(max(0, count - 1) for count in rows.values())
    table.unseen = sum(
        not counted_in.get((role, step, attempt), 0) // 4**rank % 4 for role, step, attempt, rank in expected.replaced
    )
    for role, step in sorted(expected.must.keys() | expected.may.keys() | shown.keys()):
        value = shown.get((role, step), 0)
        must, may = expected.must[role, step], expected.may[role, step]
        for rank in range(RANKS[role]):
            counted = value // 4**rank % 4
            if counted < (rank in must):
                table.lost["jsonl"] += 1
            elif counted > (rank in must or rank in may):
                table.duplicated["jsonl"] += 1
            else:
                table.checked += counted
                table.delivered += counted * (1 + len(beside[role, step]))
                continue
            table.example(f"{role} {AXES[role]} {step} rank {rank} counted {counted} times")


def check_backends(stored: dict[str, dict[str, Any]], table: Table) -> None:
    """Every row that JSONL has, each other backend has as often; and all know how the run ended."""
    rows = {backend: rows_of(answer) for backend, answer in stored.items()}
    # MLflow stores a point once: one that two attempts share, to the millisecond, is the same one there.
    rows["mlflow"] = Counter({row: rows["jsonl"].get(row, n) for row, n in rows["mlflow"].items()})
    for backend in BACKENDS[1:]:
        missing, further = rows["jsonl"] - rows[backend], rows[backend] - rows["jsonl"]
        table.lost[backend] = missing.total()
        table.duplicated[backend] = further.total()
        for row in [*missing, *further][:5]:
            table.example(f"{backend}: {row} {rows['jsonl'][row]} times in jsonl, {rows[backend][row]} here")
    ends = {backend: answer["status"] for backend, answer in stored.items()}
    # TensorBoard knows success and failure only.
    if len({ends["jsonl"], ends["mlflow"], ends["wandb"]}) != 1 or "running" in ends.values():
        table.wrong.append(f"the run's end differs: {ends}")


def rows_of(answer: dict[str, Any]) -> Counter[Row]:
    """Return what a backend holds of the job's own values, as TensorBoard has them: in 32 bits."""
    rows = [*answer["scalars"], *answer.get("amendments", [])]
    return Counter((name, step, in_32_bits(value)) for name, _, step, value, *_ in rows if is_own(name))


def in_32_bits(value: Any) -> float:
    """Return a value with six digits, of 32 bits: else one that ends with a 5 is rounded up here and down there."""
    return float(f"{struct.unpack('f', struct.pack('f', float(value)))[0]:.6g}")


def is_own(name: str) -> bool:
    return not name.startswith("otel_ml/") and "/otel_ml/" not in name


def evidence(job: Job, folder: Path) -> None:
    """Keep what was on disks that end with this process."""
    for disk in (job.disk, job.spools):
        shutil.copytree(disk.folder, folder / disk.folder.name, dirs_exist_ok=True, ignore_dangling_symlinks=True)
