"""Which argument a name is meant to be that a call does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["meant_name", "meant_names"]

_ALIKE = 0.8
"""How alike a misspelled name is; a value of the program's, which may be called anything, is less so."""

_LONGEST = 80
"""Longer texts are not names of arguments, and to compare one takes long."""

_OF_OTHERS: Mapping[str, str] = {
    "reduction": "reduce",
    "reduce_fx": "reduce",
    "reduce_op": "reduce",
    "aggregation": "reduce",
    "global_step": "step",
    "iteration": "step",
    "batch_size": "weight",
    "sample_weight": "weight",
    "x_axis": "axis",
    "labels": "attributes",
}
"""What other loggers call it → what it is here."""


def meant_name(name: str, known: Iterable[str], of_others: Mapping[str, str] = _OF_OTHERS) -> str:
    """Return the argument of `known` that is meant; nothing where none is near.

    Examples:
        >>> meant_name("weights", ["weight", "step"]), meant_name("Step", ["weight", "step"])
        ('weight', 'step')
        >>> meant_name("reduction", ["reduce", "step"]), meant_name("loss", ["reduce", "step"])
        ('reduce', '')
    """
    import difflib  # where something is wrong: most programs never load it

    known = [*known]
    other = of_others.get(name, "")
    if other in known or len(name) > _LONGEST:
        return other if other in known else ""
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=_ALIKE)
    return near[0] if near else ""


def meant_names(names: Iterable[str], known: Iterable[str]) -> str:
    """Return the question that a message asks of unknown arguments, behind a space; nothing where none is near.

    Examples:
        >>> meant_names(["steps", "loss"], ["step", "axis"])
        " Did you mean 'step'?"
    """
    known = [*known]
    near = [repr(meant) for name in names if (meant := meant_name(name, known))]
    return f" Did you mean {', '.join(near)}?" if near else ""
