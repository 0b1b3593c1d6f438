from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tests.contract.readers import main, number


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    frame = pd.read_parquet(run_dir / "parquet")
    rows = list(frame.sort_values("seq", kind="stable").itertuples(index=False))
    shown = [([row.name, row.axis, int(row.step), number(row.value)], row) for row in rows]
    return {
        "scalars": [[*point, int(row.attempt)] for point, row in shown if not row.amendment],
        "amendments": [point for point, row in shown if row.amendment],
    }


if __name__ == "__main__":
    main(read)
