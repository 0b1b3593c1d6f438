"""Names that are too long for a line, and what a person means who copies a part of one."""

from __future__ import annotations

from itertools import accumulate

__all__ = ["is_part_of", "shortened"]

_CUT = "…"


def shortened(name: str, width: int) -> str:
    """Return a name in at most `width` columns of a terminal: names differ at their ends, so the middle is left out.

    Its end begins with no hyphen: a command that is given it would take it for an option.

    Examples:
        >>> shortened("llama-8b-lr-3e-4-seed-17", 14), shortened("llama-8b", 14)
        ('llama-8…eed-17', 'llama-8b')
        >>> shortened("llama-8b-lr-3e-4-seed-17", 17)
        'llama-8b…seed-17'
        >>> shortened("模型训练", 6)
        '模…练'
    """
    if _columns(name) <= width:
        return name
    kept = max(width - _columns(_CUT), 2)
    end = _beginning(name[::-1], kept // 2)[::-1]
    return f"{_beginning(name, kept - kept // 2)}{_CUT}{end.lstrip('-') or end}"


def _beginning(text: str, width: int) -> str:
    """Return as many characters as fit into so many columns; a Chinese one, or an emoji, takes two."""
    ends = accumulate(map(_columns, text))
    return text[: next((at for at, end in enumerate(ends) if end > width), len(text))]


def _columns(text: str) -> int:
    from rich.cells import cell_len  # here: the service, which a job waits for, shortens no names

    return cell_len(text)


def is_part_of(written: str, name: str) -> bool:
    """Whether a text is a part of a name, or the name as it is shown where it is too long.

    Examples:
        >>> is_part_of("seed-17", "llama-8b-lr-3e-4-seed-17"), is_part_of("llama-8…eed-17", "llama-8b-lr-3e-4-seed-17")
        (True, True)
        >>> is_part_of("", "llama"), is_part_of("llama…llama", "llama"), is_part_of("ama…a", "llama")
        (False, False, False)
    """
    begin, cut, end = written.partition(_CUT)
    if not cut:
        return bool(written) and written in name
    return len(name) >= len(begin) + len(end) and name.startswith(begin) and name.endswith(end)
