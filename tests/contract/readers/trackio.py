from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.contract.readers import leaves, main, number

OWN = {"otel_ml/attempt", "otel_ml/amendment"}


def read(run_dir: Path, run_id: str) -> Mapping[str, object]:
    os.environ.setdefault("TRACKIO_DIR", str(run_dir.resolve().parents[1] / "trackio"))
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import MEDIA_DIR

    answer = Answer(MEDIA_DIR)
    for row in SQLiteStorage.get_logs("digits", run_id, run_id=run_id):
        answer.add(row)
    config = SQLiteStorage.get_run_config("digits", run_id, run_id) or {}
    names = config.pop("otel_ml/names", {})
    return {**answer.lists, "summary": answer.summary, "params": dict(leaves(config)), "names": names}


class Answer:
    def __init__(self, media: Path) -> None:
        self.media = media
        kinds = ("scalars", "amendments", "texts", "tables", "images", "audio", "histograms")
        self.lists: dict[str, list[object]] = {kind: [] for kind in kinds}
        self.summary: dict[str, object] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        places = {key for key in row if key.startswith("otel_ml/")} - OWN
        axis = next((key.removeprefix("otel_ml/") for key in places), "step")
        for name in row.keys() - {"timestamp", "step"} - OWN - places:
            value = row[name]
            if isinstance(value, dict):
                kind, content = self.content(value)
                self.lists[kind].append([name, row["step"], *content])
            elif name.startswith("summary/"):
                self.summary[name.removeprefix("summary/")] = value
            elif "otel_ml/amendment" in row:
                self.lists["amendments"].append([name, axis, row["step"], number(value)])
            else:
                self.lists["scalars"].append([name, axis, row["step"], number(value), row.get("otel_ml/attempt", 0)])

    def content(self, value: Mapping[str, Any]) -> tuple[str, list[object]]:
        match value["_type"]:
            case "trackio.markdown":
                return "texts", [value["_value"]]
            case "trackio.table":
                rows = value["_value"]
                return "tables", [list(rows[0]), [list(row.values()) for row in rows]]
            case "trackio.histogram":
                return "histograms", [value["bins"], value["values"]]
            case "trackio.image":
                return "images", [self.digest(value)]
            case "trackio.audio":
                return "audio", [self.digest(value)]
        raise AssertionError(value)

    def digest(self, value: Mapping[str, Any]) -> str:
        return hashlib.sha256((self.media / value["file_path"]).read_bytes()).hexdigest()


if __name__ == "__main__":
    main(read)
