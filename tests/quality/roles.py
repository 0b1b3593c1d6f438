"""Jobs of two roles, of which it is known whether all ranks of one are slow: generators hand samples to trainers.

Trainers wait for the samples of a rollout, and generators for weights, two rollouts behind. Who waits may say so, or
wait inside of a timer of work: then nothing tells who it is, and nobody may be accused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.slow_role import Beside
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.quality.score import Score

__all__ = ["KINDS_OF_ROLES", "ROLE_STEPS", "RoleJob", "role_job", "score_roles"]

Floats = npt.NDArray[np.float64]

ROLE_STEPS = 160

Factor = Callable[[int, int], float]
"""(step, rank) → how many times as long as usual."""


def as_usual(step: int, rank: int) -> float:
    return 1.0


@dataclass(frozen=True)
class RoleJob:
    """Attributes:
    generate, train: how much longer the work of each role takes.
    waits_in: role → the timer in which it waits; one of work hides that.
    evaluates: seconds of `eval` of the trainers in each step.
    tokens: of each rollout and generator; None where nobody says.
    together: scatter that all of a role have in common, as lengths of sequences have.
    slow: place → (phases, first step, first step after it) of who is slow.
    may_be_found: whether to name that place is no more than right.
    """

    kind: str
    seed: int
    generators: int
    trainers: int
    generate: Factor = as_usual
    train: Factor = as_usual
    waits_in: Mapping[str, str] = frozenset  # type: ignore[assignment]
    evaluates: Factor = lambda step, rank: 0.0
    tokens: Factor | None = None
    together: float = 0.0
    slow: Mapping[str, tuple[tuple[str, ...], int, int]] = frozenset  # type: ignore[assignment]
    may_be_found: bool = False


class Closed(NamedTuple):
    """A step of a role that closes."""

    at_s: float
    role: str
    step: int
    timers: StepTimers


def closed(job: RoleJob) -> list[Closed]:
    """Return the steps of both roles in the order in which they end."""
    return sorted(_played(job), key=lambda one: one.at_s)


def _played(job: RoleJob) -> Iterator[Closed]:
    of = np.random.default_rng(job.seed + 1)
    generators, trainers = range(job.generators), range(job.trainers)
    ended, trained = np.zeros(job.generators), [0.0, 0.0]
    for step in range(ROLE_STEPS):
        both = np.exp(job.together * of.standard_normal(2))
        begun = np.maximum(ended, trained[-2])
        work = both[0] * of.lognormal(0.0, 0.02, job.generators) * [job.generate(step, rank) for rank in generators]
        waited, ended = begun - ended, begun + work
        timers = {"generate": work, "score": np.full(job.generators, 0.05)}
        yield Closed(ended.max(), "generator", step, _timers(job, "generator", timers, waited, ended, step))
        ready = max(float(ended.max()), trained[-1])
        factors = np.array([job.train(step, rank) for rank in trainers])
        forward = 0.25 * both[1] * of.lognormal(0.0, 0.02, job.trainers) * factors
        backward = 0.5 * both[1] * of.lognormal(0.0, 0.02, job.trainers) * factors
        last = (forward + backward).max() + 0.02
        evaluation = np.array([job.evaluates(step, rank) for rank in trainers])
        end = ready + last + evaluation.max()
        timers = {"forward": forward, "backward": last - forward, "eval": evaluation}
        waited = np.full(job.trainers, ready - trained[-1])
        yield Closed(end, "trainer", step, _timers(job, "trainer", timers, waited, np.full(job.trainers, end), step))
        trained.append(end)


def _timers(
    job: RoleJob, role: str, work: Mapping[str, Floats], waited: Floats, ended: Floats, step: int
) -> StepTimers:
    timers = dict(work)
    wait = job.waits_in[role]
    timers[wait] = timers.get(wait, np.zeros(len(waited))) + waited
    phases = tuple(phase for phase, seconds in timers.items() if seconds.any())
    found = StepTimers(tuple(range(len(waited))), phases, np.column_stack([timers[phase] for phase in phases]))
    found = found._replace(ended_ns=tuple(round(1e9 * float(at)) for at in ended))
    if role == "generator" and job.tokens is not None:
        given = np.array([[1000.0 * job.tokens(step, rank)] for rank in range(len(waited))])
        found = found._replace(amounts=("tokens",), given=given)
    return found


def role_job(seed: int) -> RoleJob:
    """Return the job of a seed; the kinds take turns."""
    kind = list(KINDS_OF_ROLES)[seed % len(KINDS_OF_ROLES)]
    draw = np.random.default_rng(seed)
    first = int(draw.integers(45, 70))
    end = first + int(draw.integers(40, 60))
    share = float(draw.uniform(0.2, 0.8))

    def longer(step: int, rank: int) -> float:
        return 1 + share * (first <= step < end)

    said = {"generator": "sync_weights", "trainer": "rl/loop/idle"}
    made = RoleJob(kind, seed, int(draw.choice([2, 4, 8])), int(draw.choice([2, 4, 8])), waits_in=said, slow={})
    return KINDS_OF_ROLES[kind](made, longer, (first, end, share))


Longer = tuple[int, int, float]


def _slow_generators(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    return _with(job, generate=longer, slow={"role generator": (("generate",), *when[:2])})


def _slow_trainers(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    def train(step: int, rank: int) -> float:
        return 1.2 * longer(step, rank)  # they are what takes longest

    return _with(job, train=train, slow={"role trainer": (("forward", "backward"), *when[:2])})


def _trainers_wait_for_data(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    made = _slow_generators(job, longer, when)
    return _with(made, waits_in={**job.waits_in, "trainer": "data"}, may_be_found=True)


def _trainers_wait_in_work(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    made = _slow_generators(job, longer, when)
    return _with(made, waits_in={**job.waits_in, "trainer": "forward"}, may_be_found=True)


def _generators_wait_in_work(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    made = _slow_trainers(job, lambda step, rank: 1.5 * longer(step, rank), when)
    return _with(made, waits_in={**job.waits_in, "generator": "generate"}, may_be_found=True)


def _generators_wait_for_evaluation(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    def evaluates(step: int, rank: int) -> float:
        return 0.3 + 1.5 * (longer(step, rank) - 1)

    return _with(job, evaluates=evaluates, waits_in={**job.waits_in, "generator": "generate"})


def _one_generator(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    def generate(step: int, rank: int) -> float:
        return longer(step, rank) if rank == 1 else 1.0

    many = max(job.generators, 4)
    return _with(
        job, generators=many, generate=generate, slow={"rank 1": (("generate",), *when[:2])}, may_be_found=True
    )


def _one_trainer(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    def train(step: int, rank: int) -> float:
        return 1.3 * (longer(step, rank) if rank == 1 else 1.0)

    slow = {"rank 1": (("forward", "backward"), *when[:2])}
    return _with(job, trainers=max(job.trainers, 8), train=train, slow=slow, may_be_found=True)


def _one_trainer_a_little(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    """So little that the rank may not be found: the others wait for it in `backward`, a tenth and more of that."""
    return _one_trainer(job, lambda step, rank: 1 + 0.09 * (longer(step, rank) > 1), when)


def _shared_host(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    """Two ranks of each role are on a host that is slow."""

    def there(step: int, rank: int) -> float:
        return longer(step, rank) if rank < 2 else 1.0

    slow = {f"rank {rank}": (("generate", "forward", "backward"), *when[:2]) for rank in range(2)}
    made = _with(job, generators=8, trainers=8, generate=there, slow=slow, may_be_found=True)
    return _with(made, train=lambda step, rank: 1.2 * there(step, rank))


def _longer_samples(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    return _with(job, generate=longer, tokens=longer)


def _lengths(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    return _with(job, together=0.3)


def _both(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    return _with(job, generate=longer, train=longer)


def _slower_and_slower(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    first, _, share = when

    def generate(step: int, rank: int) -> float:
        return 1 + share * min(max(step - first, 0), 60) / 60

    return _with(job, generate=generate)


def _as_usual(job: RoleJob, longer: Factor, when: Longer) -> RoleJob:
    return job


def _with(job: RoleJob, **changed: object) -> RoleJob:
    return RoleJob(**{**{name: getattr(job, name) for name in job.__dataclass_fields__}, **changed})  # type: ignore[arg-type]


KINDS_OF_ROLES: Mapping[str, Callable[[RoleJob, Factor, Longer], RoleJob]] = {
    "all generators slow": _slow_generators,
    "all trainers slow": _slow_trainers,
    "all generators slow, trainers wait in `data`": _trainers_wait_for_data,
    "all generators slow, trainers wait in `forward`": _trainers_wait_in_work,
    "all trainers slow, generators wait in `generate`": _generators_wait_in_work,
    "longer evaluation, generators wait in `generate`": _generators_wait_for_evaluation,
    "one generator slow": _one_generator,
    "one trainer slow": _one_trainer,
    "one trainer a little slow": _one_trainer_a_little,
    "a slow host with ranks of both": _shared_host,
    "generators are given more": _longer_samples,
    "steps of all lengths": _lengths,
    "both roles slower at once": _both,
    "slower and slower": _slower_and_slower,
    "nobody": _as_usual,
}


def score_roles(job: RoleJob) -> Score:
    """Play a job; return who was found and who was accused wrongly."""
    found = {"generator": StepFindings(), "trainer": StepFindings()}
    over: list[Finding] = []
    stands: list[list[Finding]] = []
    for at_s, role, step, timers in closed(job):
        others = [(one.of_role,) for other, one in found.items() if other != role]
        changes = found[role].step(step, timers, {}, Beside(role, round(1e9 * at_s), others))
        over += [one for one in changes if one.is_over]
        stands.append([one for of_role in found.values() for one in of_role])
    every = [*over, *stands[-1]]
    accused = Counter((one.place, one.phase) for one in every if one.kind not in {"shape", "pause"})
    result = Score(healthy=ROLE_STEPS)
    for place, (phases, first, end) in job.slow.items():
        of_it = [one for one in every if one.place == place and one.phase in phases]
        for one in of_it:
            accused.pop((one.place, one.phase), None)
        result.healthy = ROLE_STEPS - (end - first)
        if job.may_be_found:
            continue
        result.culprits += 1
        at_end = next((now for now in stands if any(one.last >= end - 8 for one in now)), [])
        order = list(dict.fromkeys(one.place for one in sorted(at_end, key=lambda one: -one.extra_s)))
        result.first += order[:1] == [place]
        result.among_three += place in order[:3]
        result.exact += any(abs(one.since - first) <= 2 and abs(one.last - end + 1) <= 2 for one in of_it)
    result.wrong = len(accused)
    return result
