"""`wandb.box3d()`: a box in a cloud of points, by its corners."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept

__all__ = ["box3d"]


def box3d(*, center: Any, size: Any, orientation: Any, color: Any, label: str | None = None, score: Any = None) -> Any:
    """Return a box as W&B describes it. `orientation` is a quaternion (r, x, y, z), which need not be of length 1."""
    try:
        corners = _corners(center, size, orientation)
    except (TypeError, ValueError) as error:
        not_kept("wandb.box3d()", f"AssertionError: {error}. The box has no corners.")
        corners = ()
    return {"corners": corners, "color": color, "label": label, "score": score}


def _corners(center: Any, size: Any, orientation: Any) -> tuple[tuple[float, ...], ...]:
    import numpy as np

    middle, extent = _vector("center", center, 3), _vector("size", size, 3)
    turned = _vector("orientation", orientation, 4)
    if not turned.any():
        raise ValueError("orientation is not zero")
    # A rotation has a quaternion of length 1; programs give (0, 0, 0, 2), too.
    real, axis = np.split(turned / np.linalg.norm(turned), [1])
    # The eight corners of a box around 0: every coordinate is half of the extent, below or above.
    corners = extent * (np.indices((2, 2, 2)).reshape(3, -1).T - 0.5)
    twice_cross = 2 * np.cross(axis, corners)  # of a rotation by a quaternion, without its matrix
    return tuple(map(tuple, (middle + corners + real * twice_cross + np.cross(axis, twice_cross)).tolist()))


def _vector(name: str, given: Any, length: int) -> Any:
    import numpy as np

    vector = np.asarray(given, dtype=float)
    if vector.shape != (length,):
        raise ValueError(f"{name} is {length} numbers, and not {given!r:.80}")
    return vector
