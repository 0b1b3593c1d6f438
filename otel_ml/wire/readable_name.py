"""What a run without a name is called: two words and a number, the same for everybody who knows its id."""

from __future__ import annotations

import hashlib
import re

__all__ = ["readable_name"]

_MADE_UP = re.compile(
    r"(?:[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-[0-9a-f]{8})?)(?P<more>-.+)?"
)
"""A ULID, which we make up, or a UUID, which launchers do (torchrun's, with eight digits for which start it is).

Another id was chosen by a person or a launcher, who knows it.
"""

_FIRST_WORDS = (
    "amber brave bright calm clear cosmic crisp daring deep eager early fair fast fine fresh gentle glad golden "
    "grand green happy jolly keen kind light lively lucky lunar mellow merry mild misty modest neat noble patient "
    "plain proud quick quiet rapid ready round royal shiny silent silver simple smooth snowy soft solar solid "
    "steady still sunny super sweet swift tidy vivid warm wise"
)
_SECOND_WORDS = (
    "badger bear beaver bison brook canyon cedar cliff cloud comet coral crane creek delta dune eagle ember falcon "
    "fern field finch fjord forest fox garden glade grove harbor hawk heron hill island lake lark leaf lion lynx "
    "maple meadow moon oak ocean orbit otter owl peak pine pond prairie rain raven reef ridge river robin salmon "
    "sky spring star stone summit tiger valley wave"
)
_FIRST, _SECOND = _FIRST_WORDS.split(), _SECOND_WORDS.split()
_NUMBERS = 1_000


def readable_name(run_id: str) -> str:
    """Return what a run is called that nobody gave a name.

    Examples:
        >>> readable_name("01M8D14D6YXWJERTVVK0MCNTP1"), readable_name("slurm-4711")
        ('brave-fern-43', 'slurm-4711')
        >>> readable_name("0313a6b7-78d8-4534-a519-3f982cda14a7-b8b2ec6f-2")
        'steady-summit-525-2'
    """
    made_up = _MADE_UP.fullmatch(run_id)
    if made_up is None:
        return run_id
    number = int.from_bytes(hashlib.sha256(run_id.removesuffix(made_up["more"] or "").encode()).digest()[:8], "big")
    # Two words and a number of one hash, each by what is left of it after the one before.
    number, last = divmod(number, _NUMBERS)
    number, second = divmod(number, len(_SECOND))
    return f"{_FIRST[number % len(_FIRST)]}-{_SECOND[second]}-{last}{made_up['more'] or ''}"
