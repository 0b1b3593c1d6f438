"""What a reduction says of its three parts, and what two say together: every part, said or not."""

from __future__ import annotations

from itertools import product

import pytest

from otel_ml.wire.reduction import Reduction

PARTS = ("across", "within", "over")
UNSAID = [
    tuple(part for part, is_out in zip(PARTS, chosen, strict=True) if is_out) for chosen in product([0, 1], repeat=3)
]
ONE, OTHER = (("max",), "sum", "dp"), (("mean",), "last", "tp")


@pytest.mark.parametrize("unsaid", UNSAID)
def test_what_is_unsaid_is_not_explicit_and_all_else_is(unsaid: tuple[str, ...]) -> None:
    said = tuple(None if part in unsaid else value for part, value in zip(PARTS, ONE, strict=True))

    assert Reduction(*ONE, unsaid).explicit == said


@pytest.mark.parametrize("unsaid", UNSAID)
@pytest.mark.parametrize("unsaid_by_other", UNSAID)
def test_of_two_the_first_that_says_a_part_has_it(unsaid: tuple[str, ...], unsaid_by_other: tuple[str, ...]) -> None:
    joined = Reduction(*ONE, unsaid).joined(Reduction(*OTHER, unsaid_by_other))

    for part, mine, other in zip(PARTS, ONE, OTHER, strict=True):
        is_other = part in unsaid and part not in unsaid_by_other
        assert getattr(joined, part) == (other if is_other else mine)
        assert (part in joined.unsaid) == (part in unsaid and part in unsaid_by_other)


@pytest.mark.parametrize("unsaid", UNSAID)
@pytest.mark.parametrize("part", PARTS)
def test_two_contradict_each_other_in_what_both_say(part: str, unsaid: tuple[str, ...]) -> None:
    other = tuple(different if name == part else same for name, same, different in zip(PARTS, ONE, OTHER, strict=True))

    assert Reduction(*ONE).contradicts(Reduction(*other, unsaid)) == (part not in unsaid)
    assert not Reduction(*ONE).contradicts(Reduction(*ONE, unsaid))
