"""The table of a round, and the one of all rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.chaos.compare import HELD_UP_MS, VALUES_A_STEP, Table
from tests.chaos.injector import Injector
from tests.chaos.stalls import Stall


@dataclass
class Total:
    """The sum of all rounds."""

    rounds: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    table: Table = field(default_factory=Table)
    failed: list[str] = field(default_factory=list)

    def add(self, injected: Counter[str], table: Table | None) -> None:
        self.rounds += 1
        self.injected += injected
        if table is None:
            return
        mine = self.table
        for name in ("recorded", "checked", "delivered", "unsafe", "amended", "too_late", "superseded", "said_lost"):
            setattr(mine, name, getattr(mine, name) + getattr(table, name))
        mine.lost += table.lost
        mine.duplicated += table.duplicated
        mine.stalls += [longest(table.stalls)]
        mine.control += [longest(table.control)]

    def lines(self) -> Iterator[str]:
        yield f"all: {self.rounds} rounds, {self.injected.total()} faults"
        yield from rows(self.injected, self.table)
        yield f"{len(self.failed)} rounds failed"
        yield from (f"  repeat: {command}" for command in self.failed)


def shown(mode: str, seed: int, injector: Injector, table: Table | None, seconds: float) -> Iterator[str]:
    """Yield the lines of a round."""
    yield f"{mode}, seed {seed}: {injector.injected.total()} faults in {seconds:.0f} s"
    if table is None:
        yield "  the job did not come to its end"
        return
    yield from rows(injector.injected, table)
    for name, count in injector.ended.items():
        yield f"  {count} × {name} ended by itself and was started again"
    for sentence in [*table.wrong, *table.examples]:
        yield f"    {sentence}"
    for stall in sorted(table.stalls, key=lambda stall: -stall.own_ms)[:10]:
        if stall.own_ms > HELD_UP_MS:
            yield f"    held up: {sentence_of(stall)}"


def rows(injected: Mapping[str, int], table: Table) -> Iterator[str]:
    for kind, count in sorted(injected.items()):
        yield f"  {count:5} × {kind}"
    values = {
        "values recorded": table.recorded,
        "delivered": table.delivered,
        "lost": by_backend(table.lost),
        "said to be lost": table.said_lost,
        "duplicated": by_backend(table.duplicated),
        "within 200 ms of a kill": VALUES_A_STEP * table.unsafe,
        "amended": table.amended,
        "superseded by a restart": table.superseded,
        "too late": table.too_late,
        "longest stall of training": sentence_of(longest(table.stalls)),
        "  a loop without otel_ml": sentence_of(longest(table.control)),
    }
    for name, value in values.items():
        yield f"  {name:26} {value}"


def by_backend(counts: Counter[str]) -> str:
    return ", ".join([str(counts.total()), *(f"{name}: {count}" for name, count in counts.items() if count)])


def longest(stalls: list[Stall]) -> Stall:
    return max(stalls, key=lambda stall: stall.own_ms, default=Stall(0.0, 0.0, 0.0, 0.0, 0.0, "-", 0.0, 0))


def sentence_of(stall: Stall) -> str:
    work = f"{stall.work_ms:.1f} ms work, {stall.queue_ms:.1f} ms waiting for a core"
    others = f", its other threads {stall.others_ms:.1f} ms" if stall.others_ms >= 1.0 else ""
    stolen = f", its processor was away for {stall.stolen_ms:.1f} ms" if stall.stolen_ms >= 1.0 else ""
    if stall.any_stolen_ms - stall.stolen_ms >= 1.0:
        stolen += f", any processor for {stall.any_stolen_ms:.1f} ms"
    garbage = f"; Python looked for garbage for {stall.garbage_ms:.1f} ms" if stall.garbage_ms >= 1.0 else ""
    took = f"{stall.wall_ms:.1f} ms, of which {work}{others}{stolen}{garbage}"
    return f"{stall.surely_own_ms:.1f} to {stall.own_ms:.1f} ms ({took}; {stall.call} {stall.call_ms:.1f} ms)"
