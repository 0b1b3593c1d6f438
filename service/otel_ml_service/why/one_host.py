"""What was found of several roles at the same time, on one host: then it is the host, and told once.

Roles do different work, so nobody compares their ranks with each other. Where all ranks that each of several roles has
on a host are slow at the same time, and others of these roles are not, what they share is the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from otel_ml_service.findings.wording import listed
from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.facts import Place, RunFacts, Slow
from otel_ml_service.why.finding_text import what_was_when

__all__ = ["alone_on_hosts", "told_with_hosts"]

_HOST = "host "


def told_with_hosts(facts: RunFacts, place: Place, causes: Sequence[Slow]) -> list[str]:
    """Return who did what in which steps; of a host that is slow in other roles, too, all of it once."""
    elsewhere = [one for one in facts.findings if one.accuses and (one.place, one.axis) != (place.prefix, place.axis)]
    hosts = facts.hosts() if elsewhere and causes else {}
    told: dict[str, list[str]] = {}
    for slow in causes:
        host = _host(slow, hosts.get(place.role, {}))
        others = [one for one in elsewhere if host and _is_of(facts, hosts, host, one, causes[0], place)]
        if host and others and _is_all(hosts.get(place.role, {}), host, causes):
            said = told.setdefault(f"host {host} was slow: ", [])
            said += [what_was_when(slow)]
            said += [text for one in others if (text := f"{what_was_when(one)}, of {_role(facts, one)}") not in said]
        else:
            told[what_was_when(slow)] = []
    # `sorted(set(said), key=said.index)` is what was said, each once, in its order.
    return [f"{name}{listed(sorted(set(said), key=said.index))}" if said else name for name, said in told.items()]


def alone_on_hosts(facts: RunFacts, place: Place, causes: Sequence[Slow]) -> list[Evidence]:
    """Return which stages with more work are all of a host: whether it is their work or the host nobody can tell."""
    of_stages = [slow for slow in causes if slow.kind == "stage"]
    stages = facts.stages(place.role) if of_stages else {}
    hosts = facts.hosts().get(place.role, {}) if stages else {}
    found = []
    for slow in of_stages:
        there, elsewhere = set[str](), set[str]()
        for rank, stage in stages.items():
            (there if slow.who == f"stage {stage}" else elsewhere).add(hosts.get(rank, ""))
        # "" is a rank of which the host is not known: it may be this one.
        if len(there) == 1 and there.isdisjoint({"", *elsewhere}):
            text = f"{slow.who} is all that is on host {there.pop()}: a host that is slow would look the same"
            found.append(Evidence("finding", slow.since, text))
    return found


def _role(facts: RunFacts, slow: Slow) -> str:
    return facts.place_of(slow.axis, slow.place).role


def _host(slow: Slow, of_rank: Mapping[int, str]) -> str:
    """Return the host that a finding is on; nothing where it is on none, or on several."""
    if slow.who.startswith(_HOST):
        return slow.who.removeprefix(_HOST)
    return of_rank.get(int(slow.rank), "") if isinstance(slow.rank, int) else ""


def _is_of(
    facts: RunFacts, hosts: Mapping[str, Mapping[int, str]], host: str, one: Slow, slow: Slow, place: Place
) -> bool:
    """Whether another role's finding is on the host, all of its ranks there are slow, and at the same time."""
    role = _role(facts, one)
    of_role = [other for other in facts.findings if (other.place, other.axis) == (one.place, one.axis)]
    if role == place.role or _host(one, hosts.get(role, {})) != host or not _is_all(hosts.get(role, {}), host, of_role):
        return False
    begin, end = _time(facts, place, slow)
    since, last = _time(facts, facts.place_of(one.axis, one.place), one)
    # Axes have steps of their own, so it is seconds that overlap: half of the shorter of both.
    both = min(end, last) - max(begin, since)
    return both > 0 and 2 * both >= min(end - begin, last - since)


def _is_all(of_rank: Mapping[int, str], host: str, found: Sequence[Slow]) -> bool:
    """Whether all ranks of a role on the host were found slow, and it has others elsewhere."""
    there = {rank for rank, of in of_rank.items() if of == host}
    slow = {one.rank for one in found if _host(one, of_rank) == host}
    is_told = any(one.who == f"{_HOST}{host}" for one in found)
    return bool(there) and len(there) < len(of_rank) and (is_told or there <= slow)


def _time(facts: RunFacts, place: Place, slow: Slow) -> tuple[float, float]:
    """Return the seconds since the epoch in which a finding was so."""
    times = [at for step, at in facts.times.get(place, {}).items() if slow.since <= step <= slow.last]
    return min(times, default=math.inf), max(times, default=-math.inf)
