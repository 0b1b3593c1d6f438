from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.contract.readers import main, number

Row = dict[str, object]


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "values" in row and "type" not in row]
    first = [row for row in steps if "amendment" not in row]
    later = [row for row in steps if "amendment" in row]

    def of(kind: str, make: Callable[[Row], object]) -> list[object]:
        return [make(row) for row in rows if row.get("type") == kind]

    def digest(row: Row) -> list[object]:
        return [row["name"], row["step"], hashlib.sha256((run_dir / str(row["path"])).read_bytes()).hexdigest()]

    return {
        "scalars": [
            [name, row["axis"], row["step"], number(value), row["attempt"]]
            for row in first
            for name, value in row["values"].items()
        ],
        "amendments": [
            [name, row["axis"], row["step"], number(value)] for row in later for name, value in row["values"].items()
        ],
        "params": {k: v for row in rows if row.get("type") == "params" for k, v in flat(row["params"]).items()},
        "summary": {k: v for row in rows if row.get("type") == "summary" for k, v in row["values"].items()},
        "texts": of("text", lambda row: [row["name"], row["step"], row["text"]]),
        "tables": of("table", lambda row: [row["name"], row["step"], row["columns"], row["rows"]]),
        "images": of("image", digest),
        "audio": of("audio", digest),
        "histograms": of("histogram", lambda row: [row["name"], row["step"], row["edges"], row["counts"]]),
        "artifacts": of("artifact", lambda row: [row["name"], row["path_in"], row["sha256"]]),
        "status": ([None, *of("status", lambda row: row["status"])])[-1],
    }


def flat(params: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in params.items():
        out.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return out


if __name__ == "__main__":
    main(read)
