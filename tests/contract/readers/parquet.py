from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tests.contract.readers import main, number


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    frame = pd.read_parquet(run_dir / "parquet")
    rows = list(frame.sort_values("seq", kind="stable").itertuples(index=False))
    return {
        "scalars": [
            [row.name, row.axis, int(row.step), number(row.value), int(row.attempt)] for row in rows if not row.amendment
        ],
        "amendments": [[row.name, row.axis, int(row.step), number(row.value)] for row in rows if row.amendment],
    }


if __name__ == "__main__":
    main(read)
