"""Which of the host's GPUs this process may use: `CUDA_VISIBLE_DEVICES` and AMD's variables, by number or UUID."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

__all__ = ["visible_devices"]


_OF_NVIDIA = (("CUDA_VISIBLE_DEVICES",),)
_OF_AMD = (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
"""Variables that count one after the other. Of several in one place HIP reads the first that is not empty."""


def visible_devices(
    uuids: Sequence[str], environ: Mapping[str, str] | None = None, *, vendor: Literal["amd", "nvidia"] = "amd"
) -> list[int]:
    """Return the places in `uuids` of the devices this process may use, in the order it numbers them.

    Unset is all of them, set to nothing is none. As CUDA does, the list ends at the first entry that is not a device.
    `HIP_VISIBLE_DEVICES`, or else `CUDA_VISIBLE_DEVICES`, counts among what `ROCR_VISIBLE_DEVICES` left. A MIG slice
    counts as its device where its name holds the device's UUID (`MIG-GPU-…/1/0`); a plain `MIG-…` is named by none of
    them, and ends the list.

    Args:
        uuids: of all devices of the host, in the driver's order.
        environ: instead of this process' environment.
        vendor: of the devices; those of NVIDIA do not heed AMD's variables.

    Examples:
        >>> uuids = ["GPU-aa01", "GPU-bb02", "GPU-cc03"]
        >>> visible_devices(uuids, {}), visible_devices(uuids, {"CUDA_VISIBLE_DEVICES": ""})
        ([0, 1, 2], [])
        >>> visible_devices(uuids, {"CUDA_VISIBLE_DEVICES": "GPU-cc,0"})
        [2, 0]
        >>> visible_devices(uuids, {"CUDA_VISIBLE_DEVICES": "1,-1,0"})
        [1]
    """
    variables = os.environ if environ is None else environ
    found = list(range(len(uuids)))
    for names in _OF_NVIDIA if vendor == "nvidia" else _OF_AMD:
        given = [variables[name] for name in names if name in variables]
        if given:
            # Set to nothing means none, which is not the same as unset.
            found = _chosen(next(filter(None, given), ""), found, uuids)
    return found


def _chosen(given: str, among: Sequence[int], uuids: Sequence[str]) -> list[int]:
    chosen: list[int] = []
    for entry in given.split(","):
        place = _place(entry.strip(), among, uuids)
        if place is None:
            break
        if place not in chosen:
            chosen.append(place)
    return chosen


def _place(entry: str, among: Sequence[int], uuids: Sequence[str]) -> int | None:
    if entry.isdigit():
        # A number counts among what the variable before has left.
        return among[int(entry)] if int(entry) < len(among) else None
    wanted = entry.removeprefix("MIG-").partition("/")[0].lower() if entry.startswith("MIG-GPU-") else entry.lower()
    if not wanted.startswith("gpu-"):
        return None
    # As CUDA has it, the beginning of a UUID does where it fits one device alone.
    matching = [place for place in among if uuids[place].lower().startswith(wanted)]
    return matching[0] if len(matching) == 1 else None
